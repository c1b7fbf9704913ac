"""The daemon as a process of the system: its options, listening sockets, log lines and messages to systemd."""
