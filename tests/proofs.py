"""Run the long proofs: `make proofs` those of pytest, `make proofs ONLY=chaos` one of `PROOFS`.

What `ONLY` names otherwise are words of tests (`pytest -k`).
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHON = sys.executable
PYTEST = (PYTHON, "-m", "pytest", "--dist", "loadfile", "--no-loadscope-reorder")
FAST = "not slow and not proof and not integration and not browser and not real_data"
CONTAINERS = tuple(f"tests/acceptance/test_{name}.py" for name in ("containers", "new_user"))


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What a proof shows, and its commands: each gets the arguments.

    `needs` are stamps of the Makefile beside those of `make test`. `image`: an image of this
    checkout is built first, by SWATHMILL_TEST_ENGINE with the options of SWATHMILL_TEST_BUILD.
    """

    what: str
    commands: tuple[tuple[str, ...], ...]
    needs: tuple[str, ...] = ()
    image: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


def _module(name: str, *arguments: str) -> tuple[str, ...]:
    return (PYTHON, "-m", name, *arguments)


PROOFS = {
    "chaos": Proof(
        what="the real stack under faults [--minutes 10 --seed 1 --storage azurite --archive F]",
        commands=(_module("bench.chaos"),),
    ),
    "plan": Proof(
        what="ten million tasks planned and written within 300 MiB (15 GB of disk, one hour)",
        commands=(
            _module(
                "bench.plan",
                *("--days", "34550", "--whole", "--stored", "60", "--within", "300"),
            ),
        ),
    ),
    "kills": Proof(
        what="processes of the stack killed at random, round after round [--rounds 20]",
        commands=(_module("bench.kills"),),
    ),
    "cuts": Proof(
        what="three worker hosts cut off the network, for 5 to 120 s, on Azurite [--seed 1]",
        commands=(_module("bench.chaos.cuts"),),
    ),
    "hosts": Proof(
        what="three hosts in namespaces: one fails all, one is noisy (root) [--how disk|child]",
        commands=(_module("bench.chaos.hosts"),),
    ),
    "host-faults": Proof(
        what="three hosts, one of which meets faults (root, libfaketime, podman) [--only WORDS]",
        commands=(_module("bench.chaos.host_faults"),),
    ),
    "region": Proof(
        what="storage, Redis, portal and hosts are lost; all goes on from an export (root)",
        commands=(_module("bench.chaos.region"),),
    ),
    "mutate": Proof(
        what="each change by mutmut is seen by a test [--only MODULE --note]",
        commands=(_module("tests.mutants.mutate"),),
        needs=("mutmut",),
    ),
    "layers": Proof(
        what="every layer of every product and collection, on generated granules",
        commands=((*PYTEST, "-q", "tests/worker/test_every_layer.py"),),
        environment={"SWATHMILL_EVERY_LAYER": "1"},
    ),
    "other-programs": Proof(
        what="layers of `swathmill view` as QGIS and GDAL draw them, where these are there",
        commands=((*PYTEST, "-q", "-m", "proof", "tests/portal/views/test_other_programs.py"),),
    ),
    "pictures": Proof(
        what="pictures of all pages in all states, both themes, 360 to 1600 px [--only WORDS]",
        commands=(_module("tests.browser.pictures", "build/pictures"),),
    ),
    "granules": Proof(
        what="damaged granules end in a result or a named error [--count 2000]",
        commands=(_module("bench.fuzz_granules", "--jobs", "2"),),
    ),
    "values": Proof(
        what="damaged granules never give other values in silence [--count 500]",
        commands=(
            _module("bench.fuzz_values", "--jobs", "2"),
            _module("bench.fuzz_values", "--jobs", "2", "--anywhere"),
        ),
    ),
    "kernels": Proof(
        what="the C kernels under address and undefined-behaviour sanitizers (needs gcc)",
        commands=(("sh", "bench/sanitize.sh"),),
        environment={"PYTHON": PYTHON},
    ),
    "api": Proof(
        what="the HTTP API is as it is described, to scientist, operator, nobody [EXAMPLES]",
        commands=(_module("tests.portal.fuzz"),),
    ),
    "clients": Proof(
        what="programs of others: the STAC API validator, odc-stac, GDAL, a generated client",
        commands=(_module("tests.portal.clients", ".venv-clients/bin/python"),),
        needs=("clients",),
    ),
    "removal": Proof(
        what="a feature is taken out of a copy, and all else passes there [FEATURE --tests FILES]",
        commands=(_module("tests.removal"),),
    ),
    "zones": Proof(
        what="the quick tests 13 hours ahead of UTC, and 11 behind",
        commands=tuple(
            ("env", f"TZ={zone}", *PYTEST, "-n", "3", "-m", FAST) for zone in ("XXX-13", "XXX+11")
        ),
    ),
    "infra": Proof(
        what="infra/ by security policies (installs checkov apart, into .venv-policy)",
        commands=(("sh", "tools/check-infra.sh"),),
    ),
    "containers": Proof(
        what="docker-compose.yml in containers, own and shipped packages in it",
        commands=(
            (*PYTEST, "--durations", "5", *CONTAINERS, "tests/acceptance/test_shipped_packages.py"),
        ),
        image=True,
    ),
    "container-kills": Proof(
        what="a manager and a host in containers are killed, each part is restarted under load",
        commands=(_module("bench.container_kills"),),
        image=True,
    ),
}


def _make_image() -> int:
    engine = shlex.split(os.environ.setdefault("SWATHMILL_TEST_ENGINE", "podman"))
    build = os.environ.get("SWATHMILL_TEST_BUILD", "").split()
    file = ("--file", "infra/Containerfile", "--tag", "swathmill:tested", ".")
    return subprocess.call([*engine, "build", *build, *file], cwd=ROOT)


def main(words: list[str]) -> int:
    """Run the proof that the first word names with the others, or those of pytest; or list them."""
    name, *arguments = words or [""]
    if name == "list":
        for known, one in PROOFS.items():
            print(f"make proofs ONLY={known:16} {one.what}")
        return 0
    if name not in PROOFS:
        chosen = ("-k", name) if name else ()
        return subprocess.call([*PYTEST, "-n", "2", "-m", "proof", *chosen, *arguments], cwd=ROOT)
    proof = PROOFS[name]
    for need in proof.needs:
        if code := subprocess.call(["make", f".venv/.stamp/{need}"], cwd=ROOT):
            return code
    if proof.image and (code := _make_image()):
        return code
    for command in proof.commands:
        if code := subprocess.call(
            [*command, *arguments], cwd=ROOT, env={**os.environ, **proof.environment}
        ):
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
