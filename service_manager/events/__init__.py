"""What becomes of tasks when attempts end."""
