"""Who may do what: tokens, sessions, groups and signed links."""
