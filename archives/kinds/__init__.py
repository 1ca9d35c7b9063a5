"""The kinds of sources: folders, FTP, HTTP listings, LAADS, CMR, STAC."""
