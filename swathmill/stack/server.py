"""A server that keeps or carries data for the services, on loopback ports over one folder."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from swathmill.stack.children import Child, ChildSpec


@dataclass(frozen=True, kw_only=True)
class Server(ABC):
    """How a server is started, and how to tell that it answers."""

    folder: Path
    log: Path

    ready_seconds: ClassVar[float]
    """How long it may take to answer."""

    @abstractmethod
    def spec(self) -> ChildSpec:
        """Return how it is started."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Tell whether it answers."""

    def start(self) -> Child:
        """Start it and wait until it is ready; raise StackError if it does not become ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        child = Child(self.spec())
        child.start()
        try:
            child.wait_until(self.is_ready, limit_seconds=self.ready_seconds)
        except BaseException:
            child.kill()
            raise
        return child
