"""One machine's stack: Redis, a mail catcher, manager, workers, portal, and Azurite if asked for."""
