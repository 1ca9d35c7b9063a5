"""The shares of footprints in plain numpy: those of csrc/swath_shares.c, sums in the same order."""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from reprojection.grid.sphere import unit_vectors
from reprojection.grid.targets import Targets
from reprojection.warp.footprint_shares import Shares
from reprojection.warp.swath import Swath

Index = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Seen = npt.NDArray[np.int32]
Number = TypeVar("Number", np.int32, np.float64)


def shares_in_numpy(swath: Swath, corners: Targets, seen: Seen, per: int, begun: int) -> Shares:
    """Compute the same shares, slowly: a row of pixels at a time."""
    lines, pixels = seen.shape[0] - 1, (seen.shape[1] - 1) // per
    parts, top = [], 0
    while top < lines:
        row = (begun + top) // per
        bottom = min((row + 1) * per - begun, lines)
        parts.append(_one_row(swath, corners, seen, per, (top, bottom), row * pixels))
        top = bottom
    return Shares(
        pixel=np.concatenate([one.pixel for one in parts]),
        footprint=np.concatenate([one.footprint for one in parts]),
        share=np.concatenate([one.share for one in parts]),
    )


def _one_row(
    swath: Swath, corners: Targets, seen: Seen, per: int, lines: tuple[int, int], number: int
) -> Shares:
    top, bottom = lines
    height, pixels = bottom - top, (seen.shape[1] - 1) // per
    place = np.stack(
        np.broadcast_arrays(
            *unit_vectors(
                corners.lat[top : bottom + 1] if corners.lat.shape[0] > 1 else corners.lat,
                corners.lon[top : bottom + 1] if corners.lon.shape[0] > 1 else corners.lon,
            )
        ),
        axis=-1,
    )
    place = np.broadcast_to(place, (height + 1, seen.shape[1], 3))
    block = seen[top : bottom + 1]
    see = _corners_of(block).reshape(-1, 4).astype(np.int64)
    at = _corners_of(place).reshape(-1, 4, 3)
    # Squares in the order of pixels, and in each from left to right and from top to bottom.
    squares = np.arange(height * pixels * per).reshape(height, pixels, per)
    order = squares.transpose(1, 0, 2).ravel()
    see, at = see[order], at[order]
    pixel = np.repeat(np.arange(pixels), height * per)
    parts = _square_shares(swath, see, at)
    owned = [
        (np.flatnonzero(there), see[there, slot], part[there])
        for slot, (there, part) in enumerate(parts)
    ]
    square, footprint, some = (np.concatenate(column) for column in zip(*owned, strict=True))
    inner = np.argsort(square, kind="stable")
    square, footprint, some = square[inner], footprint[inner], some[inner]
    # Footprints of a pixel in the order in which its corners see them, line by line.
    met = [
        block[:, one * per : (one + 1) * per + 1].ravel().astype(np.int64) for one in range(pixels)
    ]
    size = np.int64(swath.lat.size)
    first = np.concatenate([one * size + ids[ids >= 0] for one, ids in enumerate(met)])
    known, where = np.unique(first, return_index=True)
    known = known[np.argsort(where)]
    rank = np.argsort(known)
    key = pixel[square] * size + footprint
    index = rank[np.searchsorted(known[rank], key)]
    total = np.zeros(len(known))
    np.add.at(total, index, some)
    there = total > 0.0
    return Shares(
        pixel=number + known[there] // size, footprint=known[there] % size, share=total[there]
    )


def _corners_of(grid: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Return what lies at the corners of each square, in a new axis after rows and columns.

    They go around the square: top left, top right, bottom right, bottom left.
    """
    return np.stack([grid[:-1, :-1], grid[:-1, 1:], grid[1:, 1:], grid[1:, :-1]], axis=2)


def _square_shares(
    swath: Swath, see: Index, at: Floats
) -> list[tuple[npt.NDArray[np.bool_], Floats]]:
    """Return, for each corner, the squares in which it names a footprint first, and its share."""
    first = np.ones(see.shape, np.bool_)
    for slot in range(1, 4):
        first[:, slot] = (see[:, slot, None] != see[:, :slot]).all(axis=1)
    part = np.zeros(see.shape)
    rim = (see < 0).any(axis=1)
    for slot in range(4):
        part[rim, slot] = 0.25 * (see[rim] == see[rim, slot, None]).sum(axis=1)
    count = first.sum(axis=1)
    part[~rim & (count == 1), 0] = 1.0
    lat, lon = swath.lat.ravel(), swath.lon.ravel()
    for number, divide in ((2, _two), (3, _three), (4, _four)):
        some = np.flatnonzero(~rim & (count == number))
        if not some.size:
            continue
        slots = np.nonzero(first[some])[1].reshape(-1, number)
        ids = np.take_along_axis(see[some], slots, axis=1)
        centres = np.stack(unit_vectors(lat[ids], lon[ids]), axis=-1)
        away = at[some][:, None] - centres[:, :, None]
        square = away * away
        near = -((square[..., 0] + square[..., 1]) + square[..., 2])
        who = (see[some][:, :, None] == ids[:, None, :]).argmax(axis=2)
        part[some[:, None], slots] = divide(near, who)
    return [(first[:, slot] & (see[:, slot] >= 0), part[:, slot]) for slot in range(4)]


def _within(t: Floats) -> Floats:
    return np.where(t > 0.0, np.where(t < 1.0, t, 1.0), 0.0)


def _crossing(a: Floats, b: Floats, i: Index, j: Index) -> Floats:
    """Return where from corner i to corner j two footprints are equally far."""
    rows = np.arange(len(a))
    g = a[rows, i] - b[rows, i]
    with np.errstate(divide="ignore", invalid="ignore"):
        return _within(g / (g - (a[rows, j] - b[rows, j])))


def _meeting(a: Floats, b: Floats, c: Floats) -> Floats:
    """Return where three footprints are equally far, as u and v."""
    g, h = a[:, 0] - b[:, 0], a[:, 0] - c[:, 0]
    gu, gv = (a[:, 1] - b[:, 1]) - g, (a[:, 3] - b[:, 3]) - g
    hu, hv = (a[:, 1] - c[:, 1]) - h, (a[:, 3] - c[:, 3]) - h
    with np.errstate(divide="ignore", invalid="ignore"):
        per = 1.0 / (gu * hv - gv * hu)
        return np.stack(
            [_within((gv * h - g * hv) * per), _within((g * hu - gu * h) * per)], axis=1
        )


_CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])


def _along(i: Index, j: Index, t: Floats) -> Floats:
    a, b = _CORNERS[i], _CORNERS[j]
    return np.asarray(a + t[:, None] * (b - a))


def _turn(p: Floats, q: Floats) -> Floats:
    return np.asarray(p[:, 0] * q[:, 1] - q[:, 0] * p[:, 1])


def _four_sided(p: Floats, q: Floats, r: Floats, s: Floats) -> Floats:
    return np.asarray(0.5 * np.abs((_turn(p, q) + _turn(q, r)) + (_turn(r, s) + _turn(s, p))))


def _around(first: Index) -> tuple[Index, Index, Index, Index]:
    return first, (first + 1) & 3, (first + 2) & 3, (first + 3) & 3


def _two(f: Floats, who: Index) -> Floats:
    mine = who == 0
    count = mine.sum(axis=1)
    begins = mine & ~np.roll(mine, 1, axis=1)
    i, j, k, el = _around(3 - begins[:, ::-1].argmax(axis=1))
    a, b = f[:, 0], f[:, 1]
    one = 0.5 * _crossing(a, b, i, j) * _crossing(a, b, i, el)
    two = 0.5 * (_crossing(a, b, i, el) + _crossing(a, b, j, k))
    three = 1.0 - 0.5 * _crossing(b, a, el, i) * _crossing(b, a, el, k)
    part = np.select([count == 1, count == 3, who[:, 0] == who[:, 2]], [one, three, 0.5], two)
    return np.stack([part, 1.0 - part], axis=1)


def _three(f: Floats, who: Index) -> Floats:
    rows = np.arange(len(f))
    beside = who == np.roll(who, -1, axis=1)
    is_beside = beside.any(axis=1)
    first = np.where(is_beside, beside.argmax(axis=1), np.where(who[:, 0] == who[:, 2], 0, 1))
    i, j, k, el = _around(first)
    parts = np.empty((len(f), 3))
    # Two corners side by side see the same footprint.
    a, b, c = f[rows, who[rows, i]], f[rows, who[rows, k]], f[rows, who[rows, el]]
    p = _meeting(a, b, c)
    ab, bc = _along(j, k, _crossing(a, b, j, k)), _along(k, el, _crossing(b, c, k, el))
    ca = _along(i, el, _crossing(a, c, i, el))
    second = np.minimum(_four_sided(_CORNERS[k], bc, p, ab), 1.0)
    third = np.minimum(_four_sided(_CORNERS[el], ca, p, bc), 1.0 - second)
    # Two corners across from each other do.
    b = f[rows, who[rows, j]]
    other = np.minimum(0.5 * _crossing(b, a, j, i) * _crossing(b, a, j, k), 1.0)
    last = np.minimum(0.5 * _crossing(c, a, el, i) * _crossing(c, a, el, k), 1.0 - other)
    second, third = np.where(is_beside, second, other), np.where(is_beside, third, last)
    parts[rows, who[rows, np.where(is_beside, k, j)]] = second
    parts[rows, who[rows, el]] = third
    parts[rows, who[rows, i]] = (1.0 - second) - third
    return parts


def _four(f: Floats, who: Index) -> Floats:
    del who  # each corner sees its own
    zero = np.zeros(len(f), np.int64)
    near = [f[:, k] for k in range(4)]
    e01, e12, e23, e30 = (
        _along(zero + i, zero + j, _crossing(near[i], near[j], zero + i, zero + j))
        for i, j in ((0, 1), (1, 2), (2, 3), (3, 0))
    )
    corner = [_CORNERS[zero + k] for k in range(4)]
    p = _meeting(near[0], near[1], near[3])
    at = [
        one[:, 0] + (p[:, 0] * (one[:, 1] - one[:, 0]) + p[:, 1] * (one[:, 3] - one[:, 0]))
        for one in near
    ]
    q, r = _meeting(near[0], near[1], near[2]), _meeting(near[0], near[2], near[3])
    second = np.minimum(_four_sided(corner[1], e12, q, e01), 1.0)
    fourth = np.minimum(_four_sided(corner[3], e30, r, e23), 1.0 - second)
    left = (1.0 - second) - fourth
    five = _four_sided(corner[0], e01, q, r) + 0.5 * np.abs(_turn(r, e30))
    first = np.minimum(five, left)
    across = np.stack([first, second, left - first, fourth], axis=1)
    r = _meeting(near[1], near[2], near[3])
    first = np.minimum(_four_sided(corner[0], e01, p, e30), 1.0)
    third = np.minimum(_four_sided(corner[2], e23, r, e12), 1.0 - first)
    left = (1.0 - first) - third
    five = _four_sided(corner[1], e12, r, p) + _four_sided(corner[1], p, e01, corner[1])
    second = np.minimum(five, left)
    other = np.stack([first, second, third, left - second], axis=1)
    return np.where((at[2] > at[0])[:, None], across, other)
