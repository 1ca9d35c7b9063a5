"""The command's groups, a module each; each registers its commands with the application."""
