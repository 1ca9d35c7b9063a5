"""The part of a request's page about its sites."""

from fastapi import Response

from portal.results.state import Results
from portal.serving.access import read_for
from portal.serving.identity import Reader
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal
from portal.sites.comparison import comparison
from portal.sites.site_series import AT_ONCE, ROWS, TABLE, site_charts
from portal.sites.state import Sites

router = Router(include_in_schema=False)


@router.get("/requests/{request_id}/sites")
def sites_part(
    request_id: str, caller: Reader, portal: CurrentPortal, page: int = 1, find: str = ""
) -> Response:
    """Render series at some of the sites, and the comparison with measurements."""
    row = read_for(portal.runtime, caller, request_id)
    results = portal.state(Results)
    reader = results.index.reader(portal.runtime, row)
    files = results.index.files(portal.runtime, row)
    names: tuple[str, ...] = ()
    rows = files.get(ROWS)
    if rows is not None:
        rows = reader.current(rows)
        names = portal.state(Sites).with_a_value(reader, rows)
    found = [name for name in names if find.casefold() in name.casefold()]
    pages = max(1, -(-len(found) // AT_ONCE))
    page = min(max(1, page), pages)
    shown = found[(page - 1) * AT_ONCE : page * AT_ONCE]
    return portal.pages.part(
        "sites.html",
        "#sites",
        row=row,
        table=files.get(TABLE),
        with_value=len(names),
        found=len(found),
        find=find,
        page=page,
        pages=pages,
        at_once=AT_ONCE,
        series=site_charts(reader, rows, shown) if rows is not None and shown else (),
        compared=comparison(files, reader),
    )
