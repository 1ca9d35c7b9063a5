"""Workers: the 4x rule, lost workers, slow machines."""
