"""The endpoints of llmd's own API, one file per family. routes.py has the table of all endpoints."""
