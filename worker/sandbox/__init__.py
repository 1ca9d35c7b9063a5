"""Child processes: started, guarded, confined and ended whole."""
