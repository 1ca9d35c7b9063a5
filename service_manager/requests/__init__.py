"""A request's life: taken up, obeyed, ended, retried, released, told by mail."""
