"""Plans on their way: made, frozen in blobs, written into the table, forecast."""
