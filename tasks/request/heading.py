"""What a request is called on pages and in mails: its title, else what it asks for."""

from tasks.request.document import Region, Request
from tasks.request.sites import parse_sites
from tasks.shown_text import in_one_line

_LONGEST = 200
_TILES = 4


def heading(request: Request) -> str:
    """Return the title as one line, else products, place and days.

    Such as "MCD15A2 at 4 sites, 2012-04-13".
    """
    if any(character.isprintable() and character != " " for character in request.title):
        return in_one_line(request.title)[:_LONGEST]
    products = ", ".join(dict.fromkeys(choice.asked for choice in request.products))
    start, end = request.time.start, request.time.end
    days = f"{start}" if start == end else f"{start} to {end}"
    return f"{products} {_place(request.region)}, {days}"[:_LONGEST]


def _place(region: Region) -> str:
    if region.sites is not None:
        count = len(parse_sites(region.sites))
        return f"at {count:,} site{'s' if count != 1 else ''}"
    if region.place is not None:
        return f"in {region.place}"
    if region.tiles is not None:
        more = len(region.tiles) - _TILES
        return f"in {', '.join(region.tiles[:_TILES])}" + (f" and {more} more" if more > 0 else "")
    if region.bbox is not None:
        return f"in {', '.join(f'{edge:g}' for edge in region.bbox)}"
    return "in a polygon"
