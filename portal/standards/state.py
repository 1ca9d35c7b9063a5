"""What the portal keeps of results as STAC items."""

from portal.results.state import Results
from portal.serving.portal import Portal
from portal.standards.stac_items import StacIndex


class Standards:
    """The items of the requests that were looked at last."""

    def __init__(self, portal: Portal) -> None:
        self.stac = StacIndex(portal.state(Results).index)
