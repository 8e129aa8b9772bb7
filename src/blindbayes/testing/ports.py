"""Free ports on loopback, for processes of one machine."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port that the system gives nobody else for a minute, since a connection ended on its side; a server may bind it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        probe.listen(1)
        address: tuple[str, int] = probe.getsockname()
        with socket.create_connection(address):
            probe.accept()[0].close()  # first: so the wait after the end is this port's
        return address[1]
