"""What an attempt does in each phase."""
