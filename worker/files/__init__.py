"""Files on the worker: the cache, partial downloads, scratch folders."""
