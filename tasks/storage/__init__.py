"""Tables and blobs: the interfaces, files of one machine, Azure Storage, and memory behind them."""
