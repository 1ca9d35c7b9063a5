"""What makes the artifacts of the tasks of sites."""

from collections.abc import Mapping

from tasks.bag.site_specs import ExtractSpec, SampleSpec, SitesSpec, TableSpec
from tasks.bag.spec import BaseSpec
from worker.phases.context import Maker
from worker.phases.sites.extract import extract, sample, write_sites
from worker.phases.sites.table import table

MAKERS: Mapping[type[BaseSpec], Maker] = {
    SitesSpec: write_sites,
    ExtractSpec: extract,
    SampleSpec: sample,
    TableSpec: table,
}
