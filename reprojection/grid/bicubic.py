"""Cubics between control points: the weights that numpy and the C kernels share, and their sums.

All are Lagrange's cubics through four points at -1, 0, 1 and 2, of places between the middle two.
"""

import numpy as np

from reprojection.grid.crs import Floats

BLOCK = 128
"""Target pixels between control points, and the side of the blocks kernels work on."""

SEGMENT = 16
"""Target pixels of a row over which coordinates are one quadratic in float32."""

FINE = 32
"""Spacing of the finer control points used where 128 is too coarse."""

PARTS = BLOCK // FINE
"""Number of fine steps along one side of a block."""


def _weights(t: Floats) -> Floats:
    """Lagrange weights (n, 4) of points at -1, 0, 1, 2 for places t in [0, 1]."""
    table: Floats = np.stack(
        [
            -t * (t - 1) * (t - 2) / 6,
            (t + 1) * (t - 1) * (t - 2) / 2,
            -(t + 1) * t * (t - 2) / 2,
            (t + 1) * t * (t - 1) / 6,
        ],
        axis=1,
    )
    return table


def _slopes(t: Floats) -> Floats:
    return np.stack(
        [
            -(3 * t * t - 6 * t + 2) / 6,
            (3 * t * t - 4 * t - 1) / 2,
            -(3 * t * t - 2 * t - 2) / 2,
            (3 * t * t - 1) / 6,
        ],
        axis=1,
    )


def _bends(t: Floats) -> Floats:
    return np.stack([-(6 * t - 6) / 6, (6 * t - 4) / 2, -(6 * t - 2) / 2, 6 * t / 6], axis=1)


_SEGMENT_CENTRES = (np.arange(BLOCK // SEGMENT) + 0.5) * SEGMENT / BLOCK

SEGMENT_WEIGHTS: Floats = np.ascontiguousarray(
    np.stack(
        [
            _weights(_SEGMENT_CENTRES).T,
            _slopes(_SEGMENT_CENTRES).T / BLOCK,
            _bends(_SEGMENT_CENTRES).T / (2 * BLOCK * BLOCK),
        ]
    )
)
"""(3, 4, 8): what gives value, slope and half bend per pixel at the centres of 8 segments."""

CENTRE_WEIGHTS: Floats = _weights((np.arange(BLOCK) + 0.5) / BLOCK)
"""(128, 4): what gives the value at pixel centres."""

EDGE_WEIGHTS: Floats = _weights(np.arange(BLOCK + 1) / BLOCK)
"""(129, 4): what gives the value at pixel edges."""


def _spread(places: Floats) -> Floats:
    """Weights (n, 7) of a block's seven fine points, -1 to 5, for places in [0, 4]."""
    part = np.minimum(np.floor(places), PARTS - 1).astype(np.intp)
    table = np.zeros((len(places), PARTS + 3))
    table[np.arange(len(places))[:, None], part[:, None] + np.arange(4)] = _weights(places - part)
    return table


SPREAD_CENTRE_WEIGHTS: Floats = _spread((np.arange(BLOCK) + 0.5) / FINE)
"""(128, 7): what gives the value at pixel centres, of a block's seven finer control points."""

SPREAD_EDGE_WEIGHTS: Floats = _spread(np.arange(BLOCK + 1) / FINE)
"""(129, 7): the same for `EDGE_WEIGHTS`."""

FINE_CENTRE_WEIGHTS: Floats = _weights((np.arange(FINE) + 0.5) / FINE)
"""(32, 4): `CENTRE_WEIGHTS` between finer control points."""

FINE_EDGE_WEIGHTS: Floats = _weights(np.arange(FINE + 1) / FINE)
"""(33, 4): `EDGE_WEIGHTS` between finer control points."""


def bicubic(nodes: Floats, table: Floats) -> Floats:
    """The bicubic of nodes (..., m, m, k) at the places of a weight table (n, m): (..., n, n, k).

    Sums run in one fixed order, so that the compiled version gives the same bits.
    """
    down: Floats = _weigh(table, np.moveaxis(nodes, -3, 0))
    both: Floats = np.moveaxis(_weigh(table, np.moveaxis(down, -2, 0)), [0, 1], [-2, -3])
    return both


def _weigh(table: Floats, nodes: Floats) -> Floats:
    """Sum over the first axis of nodes; the places become the first axis."""
    column = table.reshape(table.shape + (1,) * (nodes.ndim - 1))
    total: Floats = column[:, 0] * nodes[0]
    for k in range(1, table.shape[1]):
        total = total + column[:, k] * nodes[k]
    return total


def between(nodes: Floats) -> Floats:
    """Interpolate at the centre of every 4 x 4 neighbourhood of nodes.

    Nodes of shape (..., m, n, 2) give (..., m - 3, n - 3, 2).
    """
    n = nodes
    n = (
        9.0 * (n[..., 1:-2, :, :] + n[..., 2:-1, :, :]) - (n[..., :-3, :, :] + n[..., 3:, :, :])
    ) / 16
    return np.asarray(
        (9.0 * (n[..., 1:-2, :] + n[..., 2:-1, :]) - (n[..., :-3, :] + n[..., 3:, :])) / 16
    )
