"""The bag of tasks: specifications, keys, classes, states, protocol, rows and history."""
