"""The daemon as a process: its options, its sockets, its log, systemd."""
