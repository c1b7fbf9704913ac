"""Which tokens an answer was made of, to be spliced in where the client sends the answer back."""
