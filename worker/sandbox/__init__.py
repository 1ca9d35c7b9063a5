"""Child processes: how they are started, guarded, confined and ended completely."""
