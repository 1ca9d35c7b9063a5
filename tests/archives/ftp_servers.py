"""A real FTP server on loopback that does wrong when it is told to."""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

with warnings.catch_warnings():
    # Under Python 3.11 it uses the standard library's asyncore, which is on its way out.
    warnings.simplefilter("ignore", DeprecationWarning)
    from pyftpdlib.authorizers import DummyAuthorizer
    from pyftpdlib.handlers import DTPHandler
    from pyftpdlib.handlers import FTPHandler as FTPHandler
    from pyftpdlib.servers import FTPServer

Act = Callable[[FTPHandler], None]


@dataclass
class FtpServed:
    """What runs: its address, commands that came in, and answers to give instead, by command."""

    url: str = ""
    commands: list[str] = field(default_factory=list)
    instead: dict[str, list[Act]] = field(default_factory=dict)
    cut_after: list[int] = field(default_factory=list)  # bytes, one for each transfer


def reply(text: str) -> Act:
    """This answer."""
    return lambda handler: handler.respond(text)


def silent(_handler: FTPHandler) -> None:
    """No answer at all."""


def hang_up(handler: FTPHandler) -> None:
    """The connection is closed."""
    handler.close()


@contextmanager
def ftp_server(
    root: Path, *, user: str = "", password: str = "", mlsd: bool = True
) -> Iterator[FtpServed]:
    """A running server over a folder; anonymous unless a user is given."""
    served = FtpServed()

    class Data(DTPHandler):  # type: ignore[misc]
        def send(self, data: bytes) -> int:
            if served.cut_after and self.tot_bytes_sent + len(data) > served.cut_after[0]:
                left = max(0, served.cut_after.pop(0) - self.tot_bytes_sent)
                super().send(data[:left])
                self.close()
                self.cmd_channel.close()
                return len(data)
            return int(super().send(data))

    class Control(FTPHandler):  # type: ignore[misc]
        dtp_handler = Data
        authorizer = DummyAuthorizer()
        use_sendfile = False
        banner = "ready"
        auth_failed_timeout = 0

        def pre_process_command(self, line: str, cmd: str, arg: str) -> None:
            served.commands.append(f"{cmd} {arg}".strip())
            acts = served.instead.get(cmd)
            if acts:
                acts.pop(0)(self)
            elif cmd == "MLSD" and not mlsd:
                self.respond('500 Command "MLSD" not understood.')
            else:
                super().pre_process_command(line, cmd, arg)

        def log(self, *_: object, **__: object) -> None:
            """Say nothing."""

        logline = logerror = log

    if user:
        Control.authorizer.add_user(user, password, str(root), perm="elr")
    else:
        Control.authorizer.add_anonymous(str(root))
    server = FTPServer(("127.0.0.1", 0), Control)
    served.url = f"ftp://127.0.0.1:{server.address[1]}"
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            server.ioloop.loop(timeout=0.02, blocking=False)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield served
    finally:
        ended.set()
        thread.join()
        server.close_all()
