"""Cases that show that each parameter of each dialect does what its table says, with a module for each dialect's
folder.
"""
