"""Deployment into Azure by its own command `az`: what `swathmill deploy` does."""
