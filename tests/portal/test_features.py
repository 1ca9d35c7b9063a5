"""The portal is made of features: each is listed once, and what it keeps is made once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import portal as package
from portal.app import create_app
from portal.features import FEATURES
from portal.serving.portal import Portal
from tests.portal.scripted import live_runtime, settings

FOLDER = Path(package.__file__).parent
MOST_FILES = 20  # of one folder, so that it has one subject


def made() -> Portal:
    portal: Portal = create_app(settings(), live_runtime()).state.portal
    return portal


def test_each_folder_with_a_feature_is_listed_once() -> None:
    assert len({id(feature) for feature in FEATURES}) == len(FEATURES)
    assert len(FEATURES) == len(list(FOLDER.glob("*/feature.py")))


def test_no_folder_has_more_files_than_one_subject_needs() -> None:
    for folder in FOLDER.glob("*/__init__.py"):
        assert len(list(folder.parent.glob("*.py"))) <= MOST_FILES, folder.parent.name


def test_what_a_feature_keeps_is_made_once_whoever_asks() -> None:
    made_by: list[Portal] = []

    class Kept:
        def __init__(self, portal: Portal) -> None:
            made_by.append(portal)
            with ThreadPoolExecutor(1) as other:  # who asks meanwhile waits
                assert not other.submit(portal.making.acquire, blocking=False).result()
            portal.state(Other)

    class Other:
        def __init__(self, portal: Portal) -> None:
            made_by.append(portal)

    first, second = made(), made()
    assert first.state(Kept) is first.state(Kept)
    assert made_by == [first, first]
    assert second.state(Kept) is not first.state(Kept)
