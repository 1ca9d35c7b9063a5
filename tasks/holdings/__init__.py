"""What the archive holds, as the manager publishes it, and what a request finds there."""
