"""What tasks are: states, specifications, keys, failure categories, packages."""
