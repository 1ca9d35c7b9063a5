"""A registry with one small image, which it may not give."""

import gzip
import hashlib
import io
import json
import tarfile
from http.server import BaseHTTPRequestHandler
from typing import ClassVar

IMAGE = "swathmill/worker:1"
_OCI = "application/vnd.oci.image"


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _contents() -> dict[str, bytes]:
    """Return what is served, by path: an image of one empty layer."""
    empty = io.BytesIO()
    with tarfile.open(fileobj=empty, mode="w"):
        pass
    layer = gzip.compress(empty.getvalue(), mtime=0)
    system = {"architecture": "amd64", "os": "linux"}
    layers = {"type": "layers", "diff_ids": [_digest(empty.getvalue())]}
    config = json.dumps({**system, "rootfs": layers, "config": {}}).encode()

    def described(kind: str, content: bytes) -> dict[str, str | int]:
        media = f"{_OCI}.{kind}"
        return {"mediaType": media, "size": len(content), "digest": _digest(content)}

    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": described("config.v1+json", config),
            "layers": [described("layer.v1.tar+gzip", layer)],
        }
    ).encode()
    name, _, tag = IMAGE.partition(":")
    return {
        "/v2/": b"{}",
        **{f"/v2/{name}/blobs/{_digest(one)}": one for one in (layer, config)},
        **{f"/v2/{name}/manifests/{one}": manifest for one in (tag, _digest(manifest))},
    }


class Registry(BaseHTTPRequestHandler):
    """Answers as the distribution specification of OCI says; 404 for what it does not `give`."""

    gives: ClassVar[bool] = True
    _served: ClassVar[dict[str, bytes]] = _contents()

    def do_GET(self) -> None:
        """Answer."""
        manifest = "/manifests/" in self.path
        found = None if manifest and not type(self).gives else self._served.get(self.path)
        self.send_response(404 if found is None else 200)
        if manifest:
            self.send_header("Content-Type", f"{_OCI}.manifest.v1+json")
        self.send_header("Content-Length", str(len(found or b"")))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(found or b"")

    def do_HEAD(self) -> None:
        """Answer without the content."""
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing."""
