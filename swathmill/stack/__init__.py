"""One machine's stack: Azurite, Redis, a mail catcher, the service manager, workers, the portal."""
