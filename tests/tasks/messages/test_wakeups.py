"""The list of wake-ups that nobody drains."""

import pytest

from tasks.messages import wakeups
from tasks.messages.wakeups import RedisWakeUps


class Kept:
    """A list in Redis, as a pipeline changes it."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def pipeline(self) -> "Kept":
        return self

    def __enter__(self) -> "Kept":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def rpush(self, _: str, *keys: str) -> None:
        self.keys.extend(keys)

    def ltrim(self, _: str, start: int, end: int) -> None:
        assert end == -1
        self.keys = self.keys[start:]

    def execute(self) -> None:
        pass


def test_the_newest_of_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "MOST", 3)
    wake_ups, kept = RedisWakeUps("redis://127.0.0.1:1"), Kept()
    monkeypatch.setattr(wake_ups, "_redis", kept)
    wake_ups.publish("a", "b", "c")
    assert kept.keys == ["a", "b", "c"]
    wake_ups.publish("d")
    assert kept.keys == ["b", "c", "d"]
