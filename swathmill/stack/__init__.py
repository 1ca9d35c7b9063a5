"""One machine's stack: Redis, mail catcher, manager, workers, portal; Azurite where asked for."""
