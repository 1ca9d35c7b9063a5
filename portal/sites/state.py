"""What the portal keeps of tables of sites."""

from portal.results.result_files import ResultFile, ResultReader
from portal.serving.caches import Kept
from portal.serving.portal import Portal
from portal.sites.site_series import sites_with_a_value


class Sites:
    """The names of sites in the tables that were looked at last."""

    def __init__(self, _portal: Portal) -> None:
        self._names: Kept[tuple[str, ...]] = Kept(32)

    def with_a_value(self, reader: ResultReader, table: ResultFile) -> tuple[str, ...]:
        """Return the sites of a table that have a value."""
        return self._names.get(table.file.sha256, lambda: sites_with_a_value(reader, table))
