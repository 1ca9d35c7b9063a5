"""The request queue of one machine, in the SQLite file of the tables."""

import logging
from collections.abc import Callable

from tasks.errors import StoreError
from tasks.storage.sqlite_file import SqliteFile

_AT_ONCE = 32


class SqliteQueue:
    """Request ids in order of arrival. They are wake-ups: failures are only logged."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._log = logging.getLogger("tasks.queue")

    def send(self, request: str) -> None:
        try:
            with self._file.write("sending a wake-up") as connection:
                connection.execute("INSERT INTO wakeups (request) VALUES (?)", (request,))
        except StoreError as error:
            self._log.warning("request wake-up %s not sent: %s", request, error)

    def receive(self) -> list[tuple[str, Callable[[], None]]]:
        query = f"SELECT id, request FROM wakeups ORDER BY id LIMIT {_AT_ONCE}"
        try:
            with self._file.read("receiving wake-ups") as connection:
                found = connection.execute(query).fetchall()
        except StoreError as error:
            self._log.warning("request wake-ups not received: %s", error)
            return []
        return [(request, self._acknowledge(number)) for number, request in found]

    def _acknowledge(self, number: int) -> Callable[[], None]:
        def delete() -> None:
            try:
                with self._file.write("deleting a wake-up") as connection:
                    connection.execute("DELETE FROM wakeups WHERE id = ?", (number,))
            except StoreError as error:
                self._log.warning("request wake-up %d not deleted: %s", number, error)

        return delete
