"""`swathmill view`, served as its command serves it."""

from collections.abc import Iterator
from contextlib import contextmanager

from portal.viewer.app import viewer_app
from portal.viewer.folder import read_folder
from tasks.settings import Settings
from tests.portal.scripted import live_runtime
from tests.serving import serving_app


@contextmanager
def viewed_folder(settings: Settings) -> Iterator[str]:
    """Serve the folder that `archive` names until the block ends, and yield its address."""
    runtime = live_runtime()
    read_folder(settings, runtime)
    with serving_app(viewer_app(settings, runtime)) as address:
        yield address
