"""The rows of tasks and requests and every change that may be made of them."""
