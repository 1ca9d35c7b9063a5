"""What the portal knows and does, without its pages and addresses."""
