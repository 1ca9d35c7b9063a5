"""What the studies of 2010 and 2011 published of Windows Azure, to be drawn beside our figures."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Published:
    """One published figure.

    `clients` is the number of clients it was measured with; `value` is what all of them had
    together: MB a second of blobs, calls a second of queues.
    """

    experiment: str
    operation: str
    clients: int
    value: float


RATES = (
    Published(experiment="blobs", operation="download", clients=1, value=13.0),
    Published(experiment="blobs", operation="download", clients=32, value=208.0),
    Published(experiment="blobs", operation="download", clients=128, value=393.0),
    Published(experiment="blobs", operation="upload", clients=192, value=124.0),
    Published(experiment="queue", operation="add", clients=64, value=569.0),
    Published(experiment="queue", operation="receive", clients=64, value=424.0),
    Published(experiment="queue", operation="peek", clients=192, value=3878.0),
)
"""Hill et al. 2011. At 32 clients each had half of what one alone has."""

PEAKS = {("tables", "update shared"): 8, ("tables", "delete"): 128}
"""Hill et al. 2011: clients at which an operation was fastest, where no rate is published."""

CURVES = {"round trip": ((1.0, 0.5),), "transfer": ((30.0, 0.15), (90.0, 0.5))}
"""Hill et al. 2011, Figures 4 and 5: the share of round trips of so many ms, of transfers of so
many MB/s, or less."""

TIMED_OUT = (32, 0.5)
"""Hill et al. 2011: of so many clients that look for a property, more than this share timed out."""

ATTENUATION = (20, 0.55, 0.82)
"""Gillen 2010: so many nodes had between these shares of as many times what one node has."""

LENGTHS = (200_000, 2_000_000)
"""Hill et al. 2011: messages in a queue, between which their number made no difference."""

UPLOADS = (("x", 10**9, 1000 / (46 * 60)), ("*", 10**9, 1000 / (1.9 * 60)))
UPLOADED = {"x": "whole, from outside", "*": "in blocks side by side, from outside"}
"""Gillen 2010: 1 GB went up in 46 minutes whole, in 1.9 in blocks: mark, bytes, MB/s; what it
is."""

INSTANCES = {"run": 600.0, "add": 1020.0}
"""Hill et al. 2011: seconds until workers ran (about 10 minutes), and as many more (up to 17)."""

SHAPES = {
    "tables": "updates of one row were fastest with 8 clients, deletions with 128; insertions and "
    "queries scaled to 192",
    "partition": "over half of 32 clients timed out on a property filter over 220,000 rows of one "
    "partition",
    "queue": "add was fastest with 64 clients, and so was receive; peek scaled to 192",
    "lengths": "the length of the queue (200,000 to 2 million) did not matter",
    "tcp": "half of the round trips took 1 ms; half of the transfers had 90 MB/s or more, 15% had "
    "30 MB/s or less",
    "transfers": "uploads in blocks side by side were 10 to 24 times as fast; downloads were "
    "fastest as whole files, several at a time",
    "sizes": "50 files of each of 15 sizes from 2 kB to 1 GB were moved in random order",
    "nodes": "20 nodes moved 500 GB in about 10 minutes, 18 to 45% below linear",
    "instances": "a worker took about 10 minutes to start, and 2.6% of the starts failed",
}
"""What was published in words."""
