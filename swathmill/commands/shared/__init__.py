"""What several commands share: options, paths, targets, counts."""
