"""Commands about what storage holds: its backup, worth, prices and the form of its rows."""
