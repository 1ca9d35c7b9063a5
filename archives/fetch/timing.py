"""The seconds that calls to archives may take."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Seconds: limit to connect, silence that counts as a stall, pause before resuming."""

    connect: float = 10.0
    stall: float = 60.0
    pause: float = 1.0
