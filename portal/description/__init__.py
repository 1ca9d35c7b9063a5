"""The description of the HTTP API, for programs and as a page."""
