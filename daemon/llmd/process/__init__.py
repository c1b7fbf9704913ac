"""The daemon's process: options, listening sockets, log lines, and messages to systemd."""
