"""The C kernels: their source, how they are loaded, and the threads that run them."""
