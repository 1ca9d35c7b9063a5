"""Hosts that cannot run a package: they have no sandbox, or none with a network.

A worker there gives the run back, uncharged, where the worker of another host can run it, and says
so. Its runs go to the other hosts then. After a while it is tried there again: the machine may have
been mended.
"""

from dataclasses import dataclass, field

_WHILE = 60.0  # seconds


@dataclass
class Unsuited:
    """The hosts that gave back runs of a package lately. Times are monotonic."""

    _hosts: dict[str, dict[str, float]] = field(default_factory=dict)  # by family of classes
    _why: dict[str, str] = field(default_factory=dict)

    def gave_back(self, family: str, host: str, why: str, now: float) -> None:
        """Take note that a host cannot run a package."""
        self._hosts.setdefault(family, {})[host] = now
        self._why[family] = why

    def hosts(self, family: str, now: float) -> frozenset[str]:
        """Return the hosts that a package's runs are not sent to."""
        found = self._hosts.get(family)
        if not found:
            return frozenset()
        for host in [host for host, at in found.items() if now - at >= _WHILE]:
            del found[host]
        if not found:
            del self._hosts[family], self._why[family]
        return frozenset(found)

    def families(self) -> list[str]:
        """List the packages that some host gave back."""
        return list(self._hosts)

    def why(self, family: str) -> str:
        """Return why the latest run was given back."""
        return self._why.get(family, "")
