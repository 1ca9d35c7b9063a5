"""Signing in and out, tokens for programs, groups."""
