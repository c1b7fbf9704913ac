"""The tokens that each answer was made of, so that the next prompt continues them."""
