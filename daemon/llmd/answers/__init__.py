"""Which tokens an answer was made of, so that the next prompt goes on after them."""
