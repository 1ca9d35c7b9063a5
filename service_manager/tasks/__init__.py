"""Tasks on their way: dispatched, heard of when they end, and what waits on them."""
