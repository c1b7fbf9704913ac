"""The endpoints of llmd's own API. Each file has endpoints that belong together, such as those of sessions. routes.py
has the table of all endpoints.
"""
