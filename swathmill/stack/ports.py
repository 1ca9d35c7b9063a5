"""Free loopback ports."""

import socket
from collections.abc import Sequence

LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def answers(port: int) -> bool:
    """Whether something listens on this loopback port."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((LOOPBACK, port)) == 0


def choose(count: int, *, preferred: Sequence[int] = ()) -> tuple[int, ...]:
    """`count` different free ports: the preferred ones that are free, then any.

    Another program may take a port between the choice and its use; whoever starts a server on it
    tries again with others.
    """
    chosen = [port for port in dict.fromkeys(preferred) if is_free(port)][:count]
    holders: list[socket.socket] = []
    try:
        while len(chosen) < count:
            holder = socket.socket()
            holders.append(holder)
            holder.bind((LOOPBACK, 0))
            port = int(holder.getsockname()[1])
            if port not in chosen:
                chosen.append(port)
    finally:
        for holder in holders:
            holder.close()
    return tuple(chosen)
