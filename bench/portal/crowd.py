"""Many people at one portal: open pages of a request that runs, and API calls at a steady rate.

    python -m bench.portal.crowd < ORDER > WHAT THEY SAW

A process of its own, so that its CPU time counts for nobody else. It speaks HTTP by itself: a
client library would take more CPU time than the portal. It ends with its standard input.
"""

import asyncio
import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field

_DONE = re.compile(r'"soft">(\d[\d,]*) of \d[\d,]*')  # the label of the bar says it once more
_PATIENCE = 30.0
READY = "all pages are open"


@dataclass(frozen=True, kw_only=True)
class Order:
    """Where to call, as whom, and what: `pages` of some requests, `calls` a second of the paths."""

    host: str
    port: int
    cookie: str
    token: str
    requests: tuple[str, ...]
    paths: tuple[str, ...]
    pages: int
    calls: float


@dataclass(kw_only=True)
class Seen:
    """What the crowd saw once all pages were open.

    It has the seconds of calls, each from when it was due, their statuses, and events: when, of
    which request, with how many tasks done.
    """

    seconds: list[float] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)
    events: list[tuple[float, str, int]] = field(default_factory=list)
    lost: int = 0
    opened: float = 0.0  # seconds until all pages had shown how things stand
    cpu: float = 0.0  # seconds that this process took


class Crowd:
    """Opens pages and calls until it is stopped."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._seen = Seen()
        self._free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = (
            asyncio.Queue()
        )
        self._etags: dict[str, str] = {}
        self._opened = asyncio.Semaphore(0)

    async def until(self, stopped: asyncio.Event) -> Seen:
        """Be there until the event."""
        names, began = self._order.requests, time.monotonic()
        tasks = [
            asyncio.create_task(self._page(names[number % len(names)]))
            for number in range(self._order.pages)
        ]
        for _ in tasks:
            await self._opened.acquire()
        opened = time.monotonic() - began
        sys.stdout.write(f"{READY}\n")
        sys.stdout.flush()
        self._seen, cpu = Seen(opened=opened), time.process_time()
        tasks.append(asyncio.create_task(self._calls()))
        await stopped.wait()
        self._seen.cpu = time.process_time() - cpu
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return self._seen

    async def _page(self, request: str) -> None:
        """Follow a request as its page does, and come again when the stream breaks."""
        order, last = self._order, -1
        while True:
            try:
                reader, writer = await self._open()
                self._send(
                    writer,
                    f"/requests/{request}/events",
                    {"Cookie": order.cookie, "Accept": "text/event-stream"},
                )
                await reader.readuntil(b"\r\n\r\n")
                while line := await reader.readline():
                    if line.startswith(b"data: "):
                        at, said = time.time(), json.loads(line[6:])
                        done = sum(int(n.replace(",", "")) for n in _DONE.findall(said["html"]))
                        if done != last:  # else it tells what is running, or when it ends
                            self._seen.events.append((at, request, done))
                            last = done
                        self._opened.release()
                        if said["ended"]:
                            writer.close()
                            return
            except (OSError, asyncio.IncompleteReadError):
                self._seen.lost += 1
            await asyncio.sleep(1.0)

    async def _calls(self) -> None:
        """Call at a steady rate, whatever the answers take."""
        order, due, number = self._order, time.monotonic(), 0
        under_way = set[asyncio.Task[None]]()
        while True:
            due += 1.0 / order.calls
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            task = asyncio.create_task(self._call(order.paths[number % len(order.paths)], due))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            number += 1

    async def _call(self, path: str, due: float) -> None:
        status = "none"
        with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            status = await asyncio.wait_for(self._answer(path), _PATIENCE)
        self._seen.seconds.append(time.monotonic() - due)
        self._seen.statuses[status] = self._seen.statuses.get(status, 0) + 1

    async def _answer(self, path: str) -> str:
        reader, writer = self._free.get_nowait() if self._free.qsize() else await self._open()
        headers = {"Authorization": f"Bearer {self._order.token}", "Accept": "application/json"}
        if path in self._etags:
            headers["If-None-Match"] = self._etags[path]
        self._send(writer, path, headers)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        told = {name.lower(): value for name, _, value in (line.partition(": ") for line in head)}
        if "content-length" in told:
            await reader.readexactly(int(told["content-length"]))
        if "etag" in told:
            self._etags[path] = told["etag"]
        self._free.put_nowait((reader, writer))
        return head[0].split(" ")[1]

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._order.host, self._order.port, limit=2**20)

    def _send(self, writer: asyncio.StreamWriter, path: str, more: Mapping[str, str]) -> None:
        headers = {"Host": f"{self._order.host}:{self._order.port}", **more}
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())


async def _main(order: Order) -> Seen:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.run_in_executor(None, _wait_for_end, loop, stopped)
    return await Crowd(order).until(stopped)


def _wait_for_end(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    sys.stdin.read()
    loop.call_soon_threadsafe(stopped.set)


def main(lines: Sequence[str]) -> None:
    """Do what the first line orders, until the input ends."""
    said = json.loads(lines[0])
    seen = asyncio.run(_main(Order(**{**said, "paths": tuple(said["paths"])})))
    sys.stdout.write(json.dumps(asdict(seen)))


if __name__ == "__main__":
    main([sys.stdin.readline()])
