"""Tables and blobs: the interfaces, Azure Storage behind them, and the one in memory."""
