"""The request queue on Azure Storage."""

import logging

from azure.core.exceptions import AzureError, ResourceExistsError
from azure.storage.queue import QueueClient, QueueMessage

from tasks.storage.queues import Ack


class AzureQueue:
    """The request queue on Azure Storage. Its messages are wake-ups: failures are only logged."""

    def __init__(self, client: QueueClient) -> None:
        self._client = client
        self._log = logging.getLogger("tasks.queue")

    def create(self) -> None:
        """Create the queue if it does not exist."""
        try:
            self._client.create_queue()
        except ResourceExistsError:
            return

    def send(self, request: str) -> None:
        try:
            self._client.send_message(request, time_to_live=3600)
        except AzureError as error:
            self._log.warning("request wake-up %s not sent: %s", request, error)

    def receive(self) -> list[tuple[str, Ack]]:
        found: list[tuple[str, Ack]] = []
        try:
            for message in self._client.receive_messages(max_messages=32, visibility_timeout=60):
                found.append((str(message.content), self._acknowledge(message)))
                if len(found) >= 32:
                    break
        except AzureError as error:
            self._log.warning("request wake-ups not received: %s", error)
        return found

    def _acknowledge(self, message: QueueMessage) -> Ack:
        def delete() -> None:
            try:
                self._client.delete_message(message)
            except AzureError as error:
                self._log.warning("request wake-up %s not deleted: %s", message.id, error)

        return delete
