"""What the daemon needs as a process: options, listening sockets, log lines, and messages to systemd."""
