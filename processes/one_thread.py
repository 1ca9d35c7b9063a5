"""Have libraries start no threads of their own: a fork loses them, and idle ones spin at first."""

import os

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""What they read when they are imported; numpy brings OpenBLAS."""


def use_one_thread() -> None:
    """Set it where the environment says nothing else; call this before numpy is imported."""
    for name, value in ONE_THREAD.items():
        os.environ.setdefault(name, value)
