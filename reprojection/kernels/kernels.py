"""Load the C kernels as Python callables; without them nothing is masked or reprojected.

The library is built from `csrc` (`setup.py`) and loaded with ctypes, so that every call releases
the GIL. SWATHMILL_KERNELS names another library: one with sanitizers, for example.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprojection.errors import KernelsAbsentError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

REMEDY = (
    "Install Swathmill's wheel for this machine; in a checkout, install a C compiler and run "
    "`make kernels`."
)
"""What to do where the kernels are absent."""

_VERSION = 9
_LIBRARY = Path(__file__).with_name("libkernels.so")

CType = type[ctypes.c_int32] | type[ctypes.c_int64] | type[ctypes.c_double] | type[ctypes.c_void_p]

_LETTERS: dict[str, CType] = {"p": ctypes.c_void_p, "i": ctypes.c_int64, "d": ctypes.c_double}


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """Return the loaded library.

    Raises:
        KernelsAbsentError: it is not there, of another version, or compiled for another CPU.
        OSError: the machine's loader refuses it.
    """
    path = Path(os.environ.get("SWATHMILL_KERNELS") or _LIBRARY)
    if not path.is_file():
        raise KernelsAbsentError(f"the C kernels are absent. {REMEDY}")
    loaded = ctypes.CDLL(str(path))
    version = loaded.swathmill_kernels_version()
    if not version:
        raise KernelsAbsentError(f"the C kernels {path} were compiled for another CPU. {REMEDY}")
    if version != _VERSION:
        raise KernelsAbsentError(f"the C kernels {path} are of another version. {REMEDY}")
    return loaded


def function(
    name: str, argtypes: Sequence[CType], restype: CType | None = None
) -> Callable[..., Any]:
    """Return the kernel with this name and these argument types.

    Pointers are `ctypes.c_void_p`: pass `address(array)`. Raises KernelsAbsentError without the
    library, and AttributeError for a name that it does not export, which is a programming error.
    """
    loaded = library()
    if name not in vars(loaded):
        made = loaded[name]
        made.argtypes = list(argtypes)
        made.restype = restype
        setattr(loaded, name, made)
    found: Callable[..., Any] = getattr(loaded, name)
    return found


def by_letters(name: str, signature: str, restype: CType | None = None) -> Callable[..., Any]:
    """Return the kernel with this name by its arguments' letters: p pointer, i integer, d double.

    Raises as `function` does.
    """
    return function(name, [_LETTERS[letter] for letter in signature], restype)


def address(array: "NDArray[np.generic] | None") -> int | None:
    """Return the address of an array's first element; None stays None (a null pointer)."""
    return None if array is None else array.ctypes.data
