"""What a specification says of a comparison with measurements."""

from typing import Literal

from tasks.strict_model import StrictModel


class Pair(StrictModel):
    """A layer, and the column of measurements that it is compared with.

    `period` is how many days a composite of it covers; 1 also where the rows say so.
    """

    product: str
    collection: str
    layer: str
    period: int
    column: str
    scale: float
    offset: float
    statistic: Literal["mean", "sum"]


class Comparison(StrictModel):
    """Measurements, and how layers are compared with them; fields as those of a request."""

    table: str
    pairs: tuple[Pair, ...]
    time_zone: str
    join: Literal["auto", "overpass", "day"]
    tolerance: int
    least_share: float
