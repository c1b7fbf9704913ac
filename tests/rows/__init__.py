"""What shows that each parameter of each dialect does what its table says: a module for each dialect's folder."""
