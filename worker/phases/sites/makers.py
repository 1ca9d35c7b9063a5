"""What makes the artifacts of the tasks of sites."""

from collections.abc import Callable, Mapping
from typing import Any

from tasks.bag.site_specs import ExtractNearSpec, ExtractSpec, SampleSpec, SitesSpec, TableSpec
from tasks.bag.spec import BaseSpec
from worker.phases.context import Context, Maker
from worker.phases.sites.extract import extract, sample, write_sites
from worker.phases.sites.near import copy_near, extract_near
from worker.phases.sites.table import table

MAKERS: Mapping[type[BaseSpec], Maker] = {
    SitesSpec: write_sites,
    ExtractSpec: extract,
    ExtractNearSpec: extract_near,
    SampleSpec: sample,
    TableSpec: table,
}

COPIERS: Mapping[type[BaseSpec], Callable[[Any, Context], None]] = {ExtractNearSpec: copy_near}
"""What copies files of an archive to where a maker reads them, which has no archives."""
