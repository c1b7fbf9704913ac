"""llmctl: the program that inspects and controls a running llmd from the command line. Each group of verbs, such as
`sessions`, has a file. client.py sends the requests of all verbs.
"""
