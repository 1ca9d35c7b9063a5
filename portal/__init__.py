"""The web: scientists' pages, the operators' dashboard, the HTTP API."""
