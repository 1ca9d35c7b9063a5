"""One contract for every request queue: in memory, in an SQLite file, and Azure's (Azurite)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.storage.queues import MemoryQueue, RequestQueue
from tasks.storage.sqlite_file import SqliteFile
from tasks.storage.sqlite_queue import SqliteQueue


@pytest.fixture(params=["memory", "sqlite", pytest.param("azurite", marks=pytest.mark.integration)])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RequestQueue]:
    """Each queue in turn, empty."""
    if request.param == "memory":
        yield MemoryQueue()
    elif request.param == "sqlite":
        file = SqliteFile(tmp_path / "tables.sqlite")
        file.create()
        yield SqliteQueue(file)
        file.close()
    else:
        from azure.storage.queue import QueueClient

        from tasks.storage.azure.queue import AzureQueue

        connection = request.getfixturevalue("azurite")
        with QueueClient.from_connection_string(connection, "contract") as client:
            made = AzureQueue(client)
            made.create()
            client.clear_messages()
            yield made


def take_all(queue: RequestQueue) -> list[str]:
    """Receive and acknowledge until nothing comes."""
    taken = []
    while found := queue.receive():
        for request, acknowledge in found:
            taken.append(request)
            acknowledge()
    return taken


def test_an_empty_queue_has_nothing(queue: RequestQueue) -> None:
    assert queue.receive() == []


def test_each_message_comes_until_it_is_acknowledged(queue: RequestQueue) -> None:
    sent = [f"r{number:02}" for number in range(70)]  # more than one call brings
    for request in sent:
        queue.send(request)
    assert sorted(take_all(queue)) == sent
    assert queue.receive() == []


def test_a_message_sent_while_an_equal_one_is_looked_at_is_kept(queue: RequestQueue) -> None:
    queue.send("r")
    ((_, acknowledge),) = queue.receive()
    queue.send("r")
    acknowledge()
    assert take_all(queue) == ["r"]
