"""Records in a request: the products that one stands for."""
