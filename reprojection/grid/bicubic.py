"""Interpolate between control points with cubics; numpy and the C kernels share the weights.

All are Lagrange cubics through four points at -1, 0, 1 and 2, for positions between the two middle
points.
"""

import numpy as np

from reprojection.grid.crs import Floats

BLOCK = 128
"""Distance of control points in target pixels; also the side of the kernels' blocks."""

SEGMENT = 16
"""Length of a segment in target pixels; along it coordinates are a float32 quadratic."""

FINE = 32
"""Distance of the finer control points in target pixels, used where 128 is too coarse."""

PARTS = BLOCK // FINE
"""Number of fine steps along one side of a block."""


def _weights(t: Floats) -> Floats:
    """Compute Lagrange weights (n, 4) of points at -1, 0, 1, 2 for positions t in [0, 1]."""
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
"""Weights (3, 4, 8) of value, slope and half bend per pixel at the centres of 8 segments."""

CENTRE_WEIGHTS: Floats = _weights((np.arange(BLOCK) + 0.5) / BLOCK)
"""Weights (128, 4) of the value at pixel centres."""

EDGE_WEIGHTS: Floats = _weights(np.arange(BLOCK + 1) / BLOCK)
"""Weights (129, 4) of the value at pixel edges."""


def _spread(places: Floats) -> Floats:
    """Compute weights (n, 7) of a block's seven fine points, -1 to 5, for positions in [0, 4]."""
    part = np.minimum(np.floor(places), PARTS - 1).astype(np.intp)
    table = np.zeros((len(places), PARTS + 3))
    table[np.arange(len(places))[:, None], part[:, None] + np.arange(4)] = _weights(places - part)
    return table


SPREAD_CENTRE_WEIGHTS: Floats = _spread((np.arange(BLOCK) + 0.5) / FINE)
"""Weights (128, 7) of a block's seven finer control points, for values at pixel centres."""

SPREAD_EDGE_WEIGHTS: Floats = _spread(np.arange(BLOCK + 1) / FINE)
"""Weights (129, 7) of a block's seven finer control points, for values at pixel edges."""

FINE_CENTRE_WEIGHTS: Floats = _weights((np.arange(FINE) + 0.5) / FINE)
"""Weights (32, 4) like `CENTRE_WEIGHTS`, between finer control points."""

FINE_EDGE_WEIGHTS: Floats = _weights(np.arange(FINE + 1) / FINE)
"""Weights (33, 4) like `EDGE_WEIGHTS`, between finer control points."""


def bicubic(nodes: Floats, table: Floats) -> Floats:
    """Interpolate nodes (..., m, m, k) at the positions of a weight table (n, m).

    The result has the shape (..., n, n, k). Sums run in one fixed order, so that the compiled
    version gives the same bits.
    """
    down: Floats = _weigh(table, np.moveaxis(nodes, -3, 0))
    both: Floats = np.moveaxis(_weigh(table, np.moveaxis(down, -2, 0)), [0, 1], [-2, -3])
    return both


def _weigh(table: Floats, nodes: Floats) -> Floats:
    """Sum nodes over their first axis with the table's weights; positions become the first axis."""
    column = table.reshape(table.shape + (1,) * (nodes.ndim - 1))
    total: Floats = column[:, 0] * nodes[0]
    for k in range(1, table.shape[1]):
        total = total + column[:, k] * nodes[k]
    return total


def between(nodes: Floats) -> Floats:
    """Interpolate at the centre of every 4 x 4 neighbourhood of nodes.

    `(..., m, n, 2)` becomes `(..., m - 3, n - 3, 2)`.
    """
    n = nodes
    n = (
        9.0 * (n[..., 1:-2, :, :] + n[..., 2:-1, :, :]) - (n[..., :-3, :, :] + n[..., 3:, :, :])
    ) / 16
    return np.asarray(
        (9.0 * (n[..., 1:-2, :] + n[..., 2:-1, :]) - (n[..., :-3, :] + n[..., 3:, :])) / 16
    )
