"""The models of the HTTP API's answers: the portal makes them, and the client reads them."""
