"""The Celery application: it wakes workers, and decides nothing.

A message names the task keys of a batch, all of one shard, on the queue of all workers or on that
of one host's; the workers of a place have queues of their own. A slot takes the first one when it
is free, and no earlier: so the queue is a short list that the manager may take back and write
again. Early acknowledgement and no results: a lost message is sent again by the manager, a doubled
one claims nothing. Celery's own time limits, retries and revokes stay unused.
"""

from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

from celery import Celery
from kombu.exceptions import OperationalError
from redis import RedisError

from tasks.storage.queues import FIRST, address, of_address

TASK = "swathmill.attempt"
QUEUE = "attempts"
_OF_HOST = "at"  # sorts before the queue of all: taken first
_AHEAD = "ahead"  # sorts before both
_KEPT = 3600  # seconds that messages to a host wait at most: it may be gone for good


def queue_of(whom: str) -> str:
    """Return the name of the queue of an address: of one host's workers, of all, of all FIRST."""
    host, place = of_address(whom)
    name = {"": QUEUE, FIRST: _AHEAD}.get(host, f"{_OF_HOST}.{host}")
    return address(name, place)


def verified(redis_url: str) -> str:
    """Return an address of Redis that demands a good certificate where it says nothing of that.

    Kombu would take any certificate then, and send the password to whoever shows it; redis-py,
    which the other clients use, takes none but a good one.
    """
    parts = urlsplit(redis_url)
    if parts.scheme != "rediss" or "ssl_cert_reqs" in parse_qs(parts.query):
        return redis_url
    query = "&".join(filter(None, (parts.query, "ssl_cert_reqs=required")))
    return parts._replace(query=query).geturl()


def make_app(redis_url: str) -> Celery:
    """Make the application over one Redis."""
    app = Celery("swathmill", broker=verified(redis_url))
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_default_queue=QUEUE,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_acks_late=False,
        task_create_missing_queues=True,
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_enable_remote_control=False,
        broker_connection_retry_on_startup=True,
        # For ever, with pauses that grow to half a minute: a worker outlives any absence of Redis.
        broker_connection_max_retries=None,
        broker_transport_options={
            "socket_timeout": 10,
            "socket_connect_timeout": 5,
            "queue_order_strategy": "sorted",
            # A message is acknowledged when it is taken: Redis need not be told of either.
            "ack_emulation": False,
            # How long Redis holds a call for messages: queues are added between two such calls.
            "polling_interval": 0.2,
        },
        enable_utc=True,
    )
    return app


class Sender:
    """Sends the message that wakes a slot for a batch of tasks, at one address if it is named.

    Raises kombu's OperationalError.
    """

    def __init__(self, application: Celery) -> None:
        self._app = application
        self._queues = {QUEUE}  # to which messages were sent

    def __call__(self, keys: Sequence[str], whom: str = "") -> None:
        queue = queue_of(whom)
        self._queues.add(queue)
        with self._app.producer_pool.acquire(block=True) as producer:
            self._app.send_task(
                TASK, args=[*keys], queue=queue, producer=producer, retry=False, ignore_result=True
            )
            if whom:
                with suppress(RedisError):
                    producer.channel.client.expire(queue, _KEPT)

    def recall(self) -> list[str]:
        """Take back all messages that no slot has taken; return the keys that they name.

        What was taken back before Redis failed is returned as well.
        """
        keys: list[str] = []
        with (
            suppress(OperationalError, RedisError),
            self._app.producer_pool.acquire(block=True) as producer,
        ):
            for queue in self._queues:
                while message := producer.channel.basic_get(queue, no_ack=True):
                    keys += message.payload[0]
        return keys
