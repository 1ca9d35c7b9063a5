"""Values of results within polygons, by date."""
