"""llmctl: the program that inspects and controls a running llmd from the command line. Each group of verbs has a file,
and client.py sends their requests.
"""
