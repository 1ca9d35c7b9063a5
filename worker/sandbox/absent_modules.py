"""What to do about a library that a program imports, and that is not there.

Found by what the program printed last: Python's exception, or what R says.
"""

import re

PROMISED = frozenset({"numpy", "scipy", "rasterio", "pyproj", "shapely", "h5py"})
"""Modules that a program may import without declaring them (docs/reductions.md).

The image of workers alone has no scipy; that of all and the runners' have all of them.
"""
_RAISED = re.compile(r"[\w.]*(Error|Exception|Exit|Interrupt|Warning)\b.*")
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(?P<name>[\w.]+)'")
_NO_R_PACKAGE = re.compile(r"there is no package called \W?(?P<name>[\w.]+)")
_R_LINES = 5  # at the end, among them "Execution halted"
_DECLARE = (
    "in the package's script or requirements.txt, and upload it again (docs/packages.md, Python "
    "dependencies)"
)


def remedy(printed: str) -> str:
    """Return what to do, in a sentence; empty unless a library was absent."""
    lines = [one.strip() for one in printed.splitlines() if one.strip()]
    raised = [one for one in lines if _RAISED.fullmatch(one)]
    last = raised[-1] if raised else ""
    if found := _NO_MODULE.match(last):
        name = found["name"].partition(".")[0]
        if name in PROMISED:
            return (
                f"The image of this worker has no {name}: the operator has packages run in the "
                "reduction pool (SWATHMILL_REDUCTION_POOL) or by workers with the image of all "
                f"roles. Or declare {name} {_DECLARE}"
            )
        return f"Nothing here has {name}: declare what brings it {_DECLARE}"
    if last.startswith("ImportError"):
        return (
            "A library here is absent, or not of the version that the program needs: declare what "
            f"brings it {_DECLARE}"
        )
    if found := _NO_R_PACKAGE.search(" ".join(lines[-_R_LINES:])):
        return (
            f"The R here has no package {found['name']}: the operator adds it to the image of "
            "those who run packages (docs/reductions.md)"
        )
    return ""
