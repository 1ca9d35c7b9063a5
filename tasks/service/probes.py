"""How a manager or worker is, over HTTP: for whoever restarts processes, and for Prometheus.

`/livez` answers 503 when the process does nothing any more: it should be started again. `/readyz`
answers 503 when it cannot work at present, for example because storage does not answer: starting it
again would not help. `/metrics` is in the text format of Prometheus.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tasks.settings import Settings, WrongSettingError, host_and_port

PLAIN = "text/plain; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"

Fault = Callable[[], str]
"""Says what is wrong, "" for nothing."""


@dataclass(frozen=True, kw_only=True)
class ProbeAnswers:
    """What a process answers; `metrics` is called for each scrape."""

    live: Fault
    ready: Fault
    metrics: Callable[[], bytes]


class Probes:
    """Serves on threads of its own until it is closed."""

    def __init__(self, host: str, port: int, answers: ProbeAnswers) -> None:
        """Listen. Raises OSError."""
        self._server = _Server((host, port), _handler(answers))
        threading.Thread(target=self._server.serve_forever, name="probes", daemon=True).start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


def serve_probes(settings: Settings, answers: ProbeAnswers) -> Probes:
    """Serve where the settings say.

    Raises:
        WrongSettingError: the address cannot be used.
    """
    try:
        return Probes(*host_and_port(settings.probe_address), answers)
    except OSError as error:
        raise WrongSettingError(
            f"The setting SWATHMILL_PROBE_ADDRESS is {settings.probe_address!r}; nothing can "
            f"listen there: {error.strerror or error}.",
            "Name an address of this machine and a port that is free (docs/settings.md).",
        ) from error


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


def _handler(answers: ProbeAnswers) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0

        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/livez":
                    self._state(answers.live())
                case "/readyz":
                    self._state(answers.ready())
                case "/metrics":
                    self._answer(HTTPStatus.OK, METRICS, answers.metrics())
                case _:
                    self._answer(HTTPStatus.NOT_FOUND, PLAIN, b"/livez, /readyz, /metrics\n")

        def _state(self, fault: str) -> None:
            status = HTTPStatus.SERVICE_UNAVAILABLE if fault else HTTPStatus.OK
            self._answer(status, PLAIN, f"{fault or 'ok'}\n".encode())

        def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: probes come every few seconds."""

    return Handler
