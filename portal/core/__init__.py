"""What the portal knows and does, apart from pages and addresses."""
