"""The manager itself: leadership, its lease, and its rounds."""
