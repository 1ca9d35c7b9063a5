"""Find free loopback ports."""

import socket
from collections.abc import Sequence

LOOPBACK = "127.0.0.1"

# Ports for which this process keeps a bound socket open; it never listens on them.
_held: set[int] = set()


def is_free(port: int) -> bool:
    """Tell whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def answers(port: int) -> bool:
    """Tell whether something listens on this loopback port."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((LOOPBACK, port)) == 0


def choose(count: int, *, preferred: Sequence[int] = ()) -> tuple[int, ...]:
    """Choose `count` different free ports, the preferred ones first, and keep them.

    Until this process ends, no other program gets one of these ports by chance: neither a program
    that asks for any free port nor an outgoing connection. A server that sets SO_REUSEADDR can
    listen on them; Node, Redis, uvicorn and asyncio do.
    """
    chosen = [port for port in dict.fromkeys(preferred) if _hold(port)][:count]
    while len(chosen) < count:
        holder = socket.socket()
        holder.bind((LOOPBACK, 0))
        # Set it only after bind: with the option at bind, the kernel could choose a shared port.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        chosen.append(_keep(holder))
    return tuple(chosen)


def _hold(port: int) -> bool:
    if not is_free(port):
        return False
    if port not in _held:
        holder = socket.socket()
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind((LOOPBACK, port))
        except OSError:
            holder.close()
            return False
        _keep(holder)
    return True


def _keep(holder: socket.socket) -> int:
    port = int(holder.getsockname()[1])
    _held.add(port)
    holder.detach()  # the descriptor stays open until the process ends
    return port
