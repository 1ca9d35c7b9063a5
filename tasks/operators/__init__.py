"""What operators and the manager leave in rows: restrictions, the audit, the lease."""
