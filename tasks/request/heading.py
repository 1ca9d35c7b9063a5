"""What a request is called on pages and in mails: its title, else what it asks for."""

from tasks.request.document import Request
from tasks.request.region.kinds import region_words
from tasks.shown_text import in_one_line

_LONGEST = 200


def heading(request: Request) -> str:
    """Return the title as one line, else products, place and days.

    Such as "MCD15A2 at 4 sites, 2012-04-13".
    """
    if any(character.isprintable() and character != " " for character in request.title):
        return in_one_line(request.title)[:_LONGEST]
    products = ", ".join(dict.fromkeys(choice.asked for choice in request.products))
    start, end = request.time.start, request.time.end
    days = f"{start}" if start == end else f"{start} to {end}"
    return f"{products} {region_words(request.region)}, {days}"[:_LONGEST]
