"""Finding granules and fetching them."""
