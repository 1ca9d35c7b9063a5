"""Celery fetches messages only while the worker may run what they name."""

import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from celery import Celery
from celery.worker.consumer import Consumer
from kombu import Connection
from kombu.asynchronous import Hub

from tasks.messages.celery_app import make_app
from tasks.service.memory_runtime import memory_runtime
from tasks.settings import Settings
from tasks.storage.clock import ManualClock
from worker.files.scratch import Scratch
from worker.slots.service import _Pulse, _Slots
from worker.slots.supervisor import Supervisor


class Listening(Consumer):  # type: ignore[misc]
    """Celery's consumer without its connection and its loop: it notes what it fetches."""

    def __init__(self, app: Celery, connection: Connection, queue: str) -> None:
        self.app = app
        self.heard: list[str] = []
        self.connection = connection
        app.amqp.queues.select_add(queue)
        self.task_consumer = app.amqp.TaskConsumer(
            connection.default_channel, callbacks=[self._hear]
        )
        self.task_consumer.consume()

    def _hear(self, body: Any, message: Any) -> None:
        self.heard += body
        message.ack()

    def fetch(self) -> list[str]:
        """Return all that has been fetched, after a look at the queue."""
        with suppress(TimeoutError):
            while True:
                self.connection.drain_events(timeout=0.05)
        return self.heard


@pytest.fixture
def queue() -> str:
    return f"attempts-{uuid.uuid4().hex}"


@pytest.fixture
def listening(queue: str) -> Iterator[Listening]:
    app = make_app("memory://")
    with app.connection_for_write() as connection:
        yield Listening(app, connection, queue)


def test_nothing_is_fetched_while_the_lease_is_stale(
    listening: Listening, queue: str, tmp_path: Path
) -> None:
    """Messages stay on the queue, for workers that may run them, and are fetched afterwards."""
    clock = ManualClock()
    supervisor = Supervisor(
        runtime=memory_runtime(clock),
        settings=Settings(data_dir=tmp_path, lease_seconds=30),
        name="w",
        scratch=Scratch(tmp_path, "w"),
        start=Mock(),
    )
    lease = supervisor.lease
    pulse = type("Pulse", (_Pulse,), {"supervisor": supervisor, "queues": (queue,)})(None)

    def send(text: str) -> None:
        with listening.app.producer_pool.acquire() as producer:
            producer.publish([text], routing_key=queue, exchange="", serializer="json")

    def turn_and_fetch() -> list[str]:
        pulse._turn(listening)
        return listening.fetch()

    send("before the first beat")
    assert turn_and_fetch() == []
    lease.renew(clock.monotonic())
    assert turn_and_fetch() == ["before the first beat"]
    clock.sleep(22)
    send("fresh")
    assert turn_and_fetch()[1:] == ["fresh"]
    clock.sleep(1)
    pulse._turn(listening)
    send("stale")
    assert turn_and_fetch()[2:] == []
    lease.renew(clock.monotonic())
    assert turn_and_fetch()[2:] == ["stale"]
    supervisor.scratch.close()


def test_a_slot_that_is_free_again_turns_the_loop() -> None:
    """Celery's loop asks Redis for a message when a slot is free, and sleeps meanwhile."""
    freed = os.eventfd(0, os.EFD_NONBLOCK)
    pulse = type("Pulse", (_Pulse,), {"supervisor": Mock(), "queues": (), "freed": freed})(None)
    hub = Hub()
    pool = type("Slots", (_Slots,), {"freed": freed})(limit=1)
    try:
        pulse.register_with_event_loop(Mock(), hub)
        assert not hub.poller.poll(0)
        ran: list[str] = []
        pool.on_apply(ran.append, ("a message",), callback=lambda _: None).get()
        pool.on_stop()
        assert ran == ["a message"]
        [(file, _)] = hub.poller.poll(0)
        read, arguments = hub.readers[file]
        read(*arguments)
        assert not hub.poller.poll(0)
    finally:
        hub.close()
        os.close(freed)
