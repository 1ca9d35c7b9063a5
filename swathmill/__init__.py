"""The `swathmill` command: one machine's stack, and every room's front door."""
