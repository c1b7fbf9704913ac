"""The tokens of past answers, so that the next prompt continues them."""
