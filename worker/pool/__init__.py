"""The reduction pool: runners that carry out reductions for workers, and hold no secret."""
