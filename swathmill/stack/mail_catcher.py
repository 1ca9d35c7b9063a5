"""A mail server that delivers nothing: every mail it receives becomes a file.

`python -m swathmill.stack.mail_catcher [--host HOST] --port PORT --folder FOLDER`
"""

import argparse
import asyncio
import itertools
import signal
from pathlib import Path

from aiosmtpd.smtp import SMTP, Envelope, Session

from processes.ready import say_ready
from swathmill.stack.ports import LOOPBACK

LARGEST_MAIL_BYTES = 10 * 1024 * 1024


class Keeper:
    """Writes each mail to `<number>.eml`; numbers continue those in the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        taken = [int(p.stem) for p in folder.glob("*.eml") if p.stem.isdigit()]
        self._numbers = itertools.count(max(taken, default=0) + 1)

    async def handle_DATA(  # noqa: N802 - aiosmtpd's name
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        """Write the mail to a file, whole or not at all."""
        del server, session
        content = envelope.content or b""
        data = content if isinstance(content, bytes) else content.encode()
        path = self._folder / f"{next(self._numbers):04d}.eml"
        draft = path.with_suffix(".part")
        draft.write_bytes(data)
        draft.replace(path)
        return f"250 kept as {path.name}"


async def serve(host: str, port: int, folder: Path) -> None:
    """Receive mail on one address until SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    keeper = Keeper(folder)
    server = await loop.create_server(
        lambda: SMTP(keeper, data_size_limit=LARGEST_MAIL_BYTES, hostname="localhost", loop=loop),
        host=host,
        port=port,
    )
    async with server:
        say_ready()
        await stop.wait()


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(prog="swathmill.stack.mail_catcher")
    parser.add_argument("--host", default=LOOPBACK)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    asyncio.run(serve(arguments.host, arguments.port, arguments.folder))


if __name__ == "__main__":
    main()
