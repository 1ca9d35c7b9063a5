"""Values at sites on the pages of a request, and how they agree with measurements."""
