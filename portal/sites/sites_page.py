"""The part of a request's page about its sites."""

from fastapi import Response

from portal.results.state import Results
from portal.serving.access import read_for
from portal.serving.identity import Reader
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal
from portal.sites.comparison import comparison
from portal.sites.site_series import AT_ONCE, TABLE, site_charts
from portal.sites.site_table import SiteIndex
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
    index = SiteIndex(columns=(), spans={})
    table = files.get(TABLE)
    if table is not None:
        table = reader.current(table)
        index = portal.state(Sites).index(reader, table)
    names = [*index.spans]
    found = [name for name in names if find.casefold() in name.casefold()]
    pages = max(1, -(-len(found) // AT_ONCE))
    page = min(max(1, page), pages)
    shown = found[(page - 1) * AT_ONCE : page * AT_ONCE]
    return portal.pages.part(
        "sites.html",
        "#sites",
        row=row,
        table=table,
        with_value=len(names),
        found=len(found),
        find=find,
        page=page,
        pages=pages,
        at_once=AT_ONCE,
        series=site_charts(reader, table, index, shown) if table is not None else (),
        compared=comparison(files, reader),
    )
