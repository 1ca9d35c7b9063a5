"""What a process needs to run: connections, logs, sources, categories of errors, backup."""
