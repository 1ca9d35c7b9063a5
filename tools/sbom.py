"""Make one bill of materials of what ships: the Python lock, and npm's packages of the portal.

    .venv-supply/bin/python -m tools.sbom OUT.cdx.json --commit COMMIT [--role ROLE --base BASE]

Both parts come from their makers' tools: `cyclonedx-py requirements` reads `requirements.lock`,
`npm sbom` reads `package-lock.json`. Here they become one CycloneDX document, which is checked
against its schema. It names what is locked: for all platforms, with all extras but the one that
brings Node as a wheel. With a role it is that of the role's image: without what the image leaves
out (`infra/roles.txt`), and without npm's packages but for the portal. Its base image is one
component; what that holds is not part of the document.
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tools.slim import left_out

ROOT = Path(__file__).parents[1]
Document = dict[str, Any]


def joined(python: Document, npm: Document, direct: Iterable[str], commit: str) -> Document:
    """Return the Python document with npm's components in it, under one root.

    `direct` are the names of the Python packages that Swathmill itself names. What these depend on
    is not known from a lock; for npm's packages it is.
    """
    root = python["metadata"]["component"]["bom-ref"]
    inner = npm["metadata"]["component"]["bom-ref"]
    wanted = {normal(name) for name in direct}
    above = [one["bom-ref"] for one in python["components"] if normal(one["name"]) in wanted]
    edges = {one["ref"]: one for one in npm["dependencies"]}
    above += edges.pop(inner).get("dependsOn", [])
    own = [one for one in python["dependencies"] if one["ref"] != root]
    metadata = python["metadata"] | {"properties": [{"name": "swathmill:commit", "value": commit}]}
    return python | {
        "metadata": metadata,
        "components": [*python["components"], *map(_shipped, npm["components"])],
        "dependencies": [{"ref": root, "dependsOn": sorted(above)}, *own, *edges.values()],
    }


def of_role(document: Document, role: str, base: str) -> Document:
    """Return the document of a role's image over a base image, `NAME@sha256:DIGEST`.

    Raises ValueError for a base without a digest: a tag may be moved.
    """
    name, at, digest = base.partition("@")
    if not at or not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise ValueError(f"{base} is not NAME@sha256:DIGEST")
    gone = {*left_out(role)}
    kept = [
        one
        for one in document["components"]
        if (normal(one["name"]) not in gone if _is_python(one) else role == "portal")
    ]
    image = {
        "bom-ref": "base-image",
        "hashes": [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}],
        "name": name,
        "type": "container",
        "version": digest,
    }
    refs = {one["bom-ref"] for one in kept}
    root = document["metadata"]["component"]["bom-ref"]
    edges = [
        one | {"dependsOn": [ref for ref in one.get("dependsOn", ()) if ref in refs]}
        for one in document["dependencies"]
        if one["ref"] in refs | {root}
    ]
    edges[0]["dependsOn"].append("base-image")
    said = [*document["metadata"]["properties"], {"name": "swathmill:role", "value": role}]
    return document | {
        "metadata": document["metadata"] | {"properties": said},
        "components": [*kept, image],
        "dependencies": edges,
    }


def _is_python(component: Document) -> bool:
    return str(component.get("purl", "")).startswith("pkg:pypi/")


def normal(name: str) -> str:
    """Return a Python package's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def direct_names(project: Mapping[str, Any]) -> list[str]:
    """List the packages that `pyproject.toml` names for use, its extras but for `dev` included."""
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(one for n, some in extras.items() if n != "dev" for one in some),
    ]
    return [found[0] for text in wanted if (found := re.match(r"[A-Za-z0-9._-]+", text))]


def _shipped(component: Document) -> Document:
    """Return npm's component without what its list of tools alone has."""
    return {name: value for name, value in component.items() if value not in ([], "")}


def _read(command: list[str]) -> Document:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{command[0]}: {done.stderr.strip() or done.stdout.strip()}")
    found: Document = json.loads(done.stdout)
    return found


def main() -> int:
    """Write the document; 1 when it does not hold to its schema."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--commit", required=True, help="of the sources")
    parser.add_argument("--role", choices=["portal", "manager", "worker", "runner"])
    parser.add_argument("--base", default="", help="NAME@sha256:DIGEST of the role's base image")
    arguments = parser.parse_args()
    cyclonedx = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "cyclonedx_py",
        "requirements",
        "requirements.lock",
    ]
    python = _read(
        [*cyclonedx, "--pyproject", "pyproject.toml", "--output-reproducible", "--of", "JSON"]
    )
    npm = _read(
        ["npm", "sbom", "--package-lock-only", "--omit", "dev", "--sbom-format", "cyclonedx"]
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    document = joined(python, npm, direct_names(project), arguments.commit)
    if arguments.role:
        document = of_role(document, arguments.role, arguments.base)
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    wrong = JsonStrictValidator(SchemaVersion.from_version(document["specVersion"])).validate_str(
        text
    )
    if wrong is not None:
        print(f"{arguments.out} is not written, it breaks its schema: {wrong}", file=sys.stderr)
        return 1
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(text)
    print(f"{arguments.out}: {len(document['components'])} components")
    return 0


if __name__ == "__main__":
    sys.exit(main())
