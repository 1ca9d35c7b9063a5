"""The real stack under faults for minutes on end, and whether anything was lost."""
