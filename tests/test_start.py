"""What is found out before the daemon serves: addresses, directories, templates. Each complaint names its option."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from llmd.listen import ListenError, open_listeners
from tests.serving import config_of


def test_a_port_is_taken_while_the_model_loads(tmp_path: Path) -> None:
    """The second daemon comes before the first has a model to serve."""
    first = open_listeners(config_of(tmp_path))
    port = first.sockets[0].getsockname()[1]
    try:
        with pytest.raises(ListenError, match=rf"port {port}: Address already in use; choose another with --port"):
            open_listeners(config_of(tmp_path, port=port, socket=tmp_path / "other.sock"))
        with socket.create_connection(("127.0.0.1", port), timeout=30):
            pass  # clients wait for the first
    finally:
        first.close()
