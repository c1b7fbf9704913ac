"""The endpoints of our own API, one file per family; the table of all is routes.py."""
