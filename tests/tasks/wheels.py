"""A registry of wheels on this machine: a simple repository (PEP 503) over HTTP."""

import base64
import hashlib
import http.server
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.serving import Quiet, serving


def write_wheel(
    folder: Path, name: str, version: str, files: dict[str, str], needs: str = ""
) -> str:
    """Write a wheel into a registry's folder; return its SHA-256."""
    spelt = name.replace("-", "_")
    about = f"{spelt}-{version}.dist-info"
    requires = f"Requires-Dist: {needs}\n" if needs else ""
    texts = {
        **files,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{path},sha256={_digest(text)},{len(text)}" for path, text in texts.items()]
    texts[f"{about}/RECORD"] = "\n".join([*record, f"{about}/RECORD,,", ""])
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    wheel = place / f"{spelt}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in texts.items():
            archive.writestr(path, text)
    _index(place)
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def write_sdist(folder: Path, name: str, version: str) -> None:
    """Offer a source distribution alone, whose content is never looked at."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{name}-{version}.tar.gz").write_bytes(b"not opened")
    _index(place)


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def _index(place: Path) -> None:
    files = sorted(path for path in place.iterdir() if path.name != "index.html")
    links = [
        f'<a href="{path.name}#sha256={hashlib.sha256(path.read_bytes()).hexdigest()}">'
        f"{path.name}</a>"
        for path in files
    ]
    (place / "index.html").write_text(f"<html><body>{''.join(links)}</body></html>")


class _Files(Quiet, http.server.SimpleHTTPRequestHandler):
    pass


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """Serve a registry's folder; yield its address."""
    handler = partial(_Files, directory=str(folder))
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)) as address:
        yield address
