"""What the portal keeps of tables of sites."""

from portal.results.result_files import ResultFile, ResultReader
from portal.serving.caches import Kept
from portal.serving.portal import Portal
from portal.sites.site_table import SiteIndex, index_of


class Sites:
    """Where the sites are in the tables that were looked at last."""

    def __init__(self, _portal: Portal) -> None:
        self._indexes: Kept[SiteIndex] = Kept(32)

    def index(self, reader: ResultReader, table: ResultFile) -> SiteIndex:
        """Return where the sites with a value are in a table."""
        return self._indexes.get(table.file.sha256, lambda: index_of(reader, table))
