"""The daemon as a process: options, sockets, log, systemd."""
