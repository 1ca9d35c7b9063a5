"""Find granules in archives, and fetch them."""
