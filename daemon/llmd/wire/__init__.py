"""Types of every dialect llmd speaks. No I/O."""
