"""Results outside the portal: copies to other storage, Zarr stores, takeaway texts."""
