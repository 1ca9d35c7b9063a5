"""The portal under many open pages and API calls, beside workers that are at work."""
