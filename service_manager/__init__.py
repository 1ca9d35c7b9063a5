"""Plans requests into tasks, dispatches ready tasks, monitors attempts, notifies."""
