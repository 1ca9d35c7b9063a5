"""The command's groups, one module each; each registers its commands with the application."""
