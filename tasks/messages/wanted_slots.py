"""The number of slots wanted, where autoscalers read it: the length of a Redis list.

KEDA's Redis scaler starts one replica for so many entries of a list, and it reads no plain number.
The list stays when no manager acts, so that a fleet at work is not stopped.
"""

import redis
import structlog

LIST = "swathmill:wanted-slots"
"""The list of workers without a place; with a colon and its name, that of a place."""

# KEYS: the list. ARGV: its length to be.
RESIZE = """
local wanted = tonumber(ARGV[1])
redis.call('LTRIM', KEYS[1], 0, wanted - 1)
if wanted == 0 then redis.call('DEL', KEYS[1]) end
for _ = redis.call('LLEN', KEYS[1]) + 1, wanted do redis.call('RPUSH', KEYS[1], '') end
"""


class RedisWantedSlots:
    """Tells autoscalers over Redis how many slots are wanted."""

    def __init__(self, url: str) -> None:
        self._redis = redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=2)
        self._resize = self._redis.register_script(RESIZE)
        self._log = structlog.get_logger("tasks.messages.wanted_slots")

    def __call__(self, wanted: int, place: str = "") -> None:
        """Say how many at a place. Never raises: the number is told again soon."""
        try:
            self._resize(keys=[f"{LIST}:{place}" if place else LIST], args=[wanted])
        except redis.RedisError as error:
            self._log.warning("wanted slots not published", wanted=wanted, error=str(error))
