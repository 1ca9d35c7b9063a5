"""An engine's API on loopback, with JSON."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Document = dict[str, Any]
TOKEN = "Bearer an-identity"


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call as it came: its path with the query."""

    method: str
    path: str
    headers: dict[str, str]
    document: Document


Answer = tuple[int, Document]


@dataclass
class Engine:
    """Answers calls by `answer`; those without the token are refused."""

    answer: Callable[[Call], Answer]
    url: str = ""
    calls: list[Call] = field(default_factory=list)


@contextmanager
def engine_server(answer: Callable[[Call], Answer]) -> Iterator[Engine]:
    engine = Engine(answer)

    class Handler(BaseHTTPRequestHandler):
        def act(self) -> None:
            size = int(self.headers.get("Content-Length", "0"))
            document = json.loads(self.rfile.read(size) or b"{}")
            headers = {name.lower(): value for name, value in self.headers.items()}
            call = Call(method=self.command, path=self.path, headers=headers, document=document)
            engine.calls.append(call)
            known = headers.get("authorization") == TOKEN
            status, said = engine.answer(call) if known else (401, {})
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = act  # noqa: N815 - the names are the library's

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    engine.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield engine
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
