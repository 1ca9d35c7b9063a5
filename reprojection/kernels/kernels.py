"""Load the C kernels as Python callables; `available()` tells whether the library was found.

The library is built from `csrc` (`setup.py`) and loaded with ctypes, so that every call releases
the GIL. SWATHMILL_KERNELS names another library (one with sanitizers, for example), or is `none` to
use the numpy versions.
"""

import ctypes
import logging
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

REMEDY = (
    "Install Swathmill's wheel for this machine; in a checkout, install a C compiler and run "
    "`make kernels`."
)
"""What to do where the kernels are absent."""

_VERSION = 8
_LIBRARY = Path(__file__).with_name("libkernels.so")
_log = logging.getLogger(__name__)

CType = type[ctypes.c_int32] | type[ctypes.c_int64] | type[ctypes.c_double] | type[ctypes.c_void_p]

_LETTERS: dict[str, CType] = {"p": ctypes.c_void_p, "i": ctypes.c_int64, "d": ctypes.c_double}


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """Return the loaded library, or None (said once in the log, with what to do)."""
    chosen = os.environ.get("SWATHMILL_KERNELS", "")
    if chosen == "none":
        return None
    path = Path(chosen) if chosen else _LIBRARY
    if path.is_file():
        loaded = ctypes.CDLL(str(path))
        if loaded.swathmill_kernels_version() == _VERSION:
            return loaded
        _log.warning("%s is of another version and is not used", path)
    _log.warning("the C kernels are absent: reprojection uses numpy and is slow. %s", REMEDY)
    return None


def available() -> bool:
    """Tell whether the C kernels can be used; otherwise callers use the numpy versions."""
    return library() is not None


def function(
    name: str, argtypes: Sequence[CType], restype: CType | None = None
) -> Callable[..., Any] | None:
    """Return the kernel with this name and these argument types; None if the library is absent.

    Pointers are `ctypes.c_void_p`: pass `address(array)`. Raises AttributeError for a name the
    library does not export, which is a programming error.
    """
    loaded = library()
    if loaded is None:
        return None
    if name not in vars(loaded):
        made = loaded[name]
        made.argtypes = list(argtypes)
        made.restype = restype
        setattr(loaded, name, made)
    found: Callable[..., Any] = getattr(loaded, name)
    return found


def by_letters(name: str, signature: str, restype: CType | None = None) -> Callable[..., Any]:
    """Return the kernel with this name by its arguments' letters: p pointer, i integer, d double.

    Only for callers that have asked `available()`: raises RuntimeError if the library is absent.
    """
    found = function(name, [_LETTERS[letter] for letter in signature], restype)
    if found is None:
        raise RuntimeError("the C kernels vanished after they were found")
    return found


def address(array: "NDArray[np.generic] | None") -> int | None:
    """Return the address of an array's first element; None stays None (a null pointer)."""
    return None if array is None else array.ctypes.data
