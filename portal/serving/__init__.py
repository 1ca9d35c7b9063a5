"""How any call is answered: who calls, what one may see, problems, pages, sending."""
