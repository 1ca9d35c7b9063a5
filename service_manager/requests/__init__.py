"""A request's life: taken up, obeyed, ended, retried, released, reported by mail."""
