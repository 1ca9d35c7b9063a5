"""From a request to a plan: which granules, which cells, which tasks; pure but for the search."""
