"""Request documents as files, with the files of regions, sites and tables that they name."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import yaml
from pydantic import ValidationError

from modis.yaml_text import load_yaml
from reprojection.files import AnyPath, as_paths
from tasks.errors import RequestRefusedError, refusal_of
from tasks.plain_text import NotUtf8Error, decoded
from tasks.request.document import Compared, Request, Time, compared, parse_request
from tasks.request.measurements import MeasurementsError, needed_text, refused_table
from tasks.request.region.files import ReadRegion, RegionFileError, names_file, read_region

_LOOK = dt.timedelta(days=31)  # so long may a composite go on after the time asked for


def load_request(
    path: AnyPath, region: AnyPath | None = None, measurements: Sequence[AnyPath] = ()
) -> Request:
    """Read a request from a YAML or JSON file.

    Args:
        path: The file, in UTF-8.
        region: A file of polygons or sites that takes the place of the document's region.
        measurements: Tables that take the place of the document's `measurements.table`.

    Returns:
        The request, checked for itself; archives are not asked.

    Raises:
        RequestRefusedError: the file cannot be read, or names a field that is wrong: which, why and
            what to do; the other errors are in its `also`.
    """
    path = Path(path)
    try:
        document = load_yaml(decoded(path.read_bytes()))
    except FileNotFoundError:
        raise RequestRefusedError(
            str(path), "no such file.", "Give the path of a request document."
        ) from None
    except OSError as error:
        raise RequestRefusedError(
            str(path), f"cannot be read: {error.strerror}.", "Give the path of a request document."
        ) from None
    except NotUtf8Error as error:
        raise refusal_of(str(path), str(error)) from None
    except (yaml.YAMLError, ValueError) as error:
        raise RequestRefusedError(
            str(path),
            f"is not YAML: {' '.join(str(error).split())}.",
            "Mend the document; examples/ has some to copy.",
        ) from None
    document = _with_measurements(document, path.parent, as_paths(measurements))
    if region is not None:
        return parse_request(_with_region(document, Path(region)))
    return parse_request(_with_files(document, path.parent))


def _with_region(document: object, path: Path) -> object:
    """Put the region of a file in place of a document's own.

    Raises RequestRefusedError for a file that gives no region.
    """
    if not isinstance(document, dict):
        return document
    region = document.get("region")
    clip = {"clip": region["clip"]} if isinstance(region, dict) and "clip" in region else {}
    read = _read_file(path, "region")
    if read.geojson is None:
        return {**document, "region": {"sites": read.sites}}
    return {**document, "region": {"geojson": read.geojson, **clip}}


def file_refusal(error: RegionFileError, field: str, name: str) -> RequestRefusedError:
    """Turn the error of a file into the refusal of a field."""
    said = str(error)
    return refusal_of(field, said if said.startswith(name) else f"{name}: {said}")


def _read_file(path: Path, field: str) -> ReadRegion:
    """Read the region of a file; raise RequestRefusedError with the field if there is none."""
    try:
        return read_region(path.read_bytes(), path.name)
    except RegionFileError as error:
        raise file_refusal(error, field, path.name) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise RequestRefusedError(
            field,
            f"{path.name} cannot be read: {getattr(error, 'strerror', error)}.",
            "Correct the path; in a document it counts from the document's folder.",
        ) from None


def _with_files(document: object, folder: Path) -> object:
    """Put the content of a file in place of its name in `region.geojson` or `region.sites`.

    Raises RequestRefusedError for a file that cannot be read.
    """
    region = document.get("region") if isinstance(document, dict) else None
    if not isinstance(region, dict):
        return document
    for kind in ("geojson", "sites"):
        name = region.get(kind)
        if not isinstance(name, str) or not names_file(name):
            continue
        path = folder / name.strip()
        read = _read_file(path, f"region.{kind}")
        given: object = read.geojson if kind == "geojson" else read.sites
        if kind == "sites" and path.suffix.lower() in (".json", ".geojson"):
            given = decoded(path.read_bytes())  # with the names of its points and polygons
        if not given:
            has, other = ("points", "sites") if kind == "geojson" else ("polygons", "geojson")
            raise RequestRefusedError(
                f"region.{kind}", f"{path.name} holds {has}.", f"Give it as region.{other}."
            )
        return {**document, "region": {**region, kind: given}}  # type: ignore[dict-item]
    return document


def _with_measurements(document: object, folder: Path, tables: Sequence[Path]) -> object:
    """Put what is needed of files in place of their names in `measurements.table` and `.sites`.

    `tables` are files that take the place of those named. Raises RequestRefusedError for a file
    that cannot be read.
    """
    given = document.get("measurements") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(given, dict):
        if tables:
            raise RequestRefusedError(
                "measurements",
                "the document does not say what is compared with the tables.",
                "Write measurements: {compare: {Lai_1km: LAI}}.",
            )
        return document
    read = {**given}
    names, sites = given.get("table"), given.get("sites")
    if isinstance(names, str):
        names = [names] if names.strip() and "\n" not in names.strip() else []
    if isinstance(names, list) or tables:
        paths = tables or [folder / str(name).strip() for name in names or ()]
        if paths:
            read["table"] = _tables(paths, document.get("time"), given.get("compare"))
    if isinstance(sites, str) and names_file(sites):
        path = folder / sites.strip()
        found = _read_file(path, "measurements.sites").sites
        if path.suffix.lower() in (".json", ".geojson"):
            found = decoded(path.read_bytes())
        read["sites"] = found
    return {**document, "measurements": read}


def _tables(paths: Sequence[Path], time: object, compare: object) -> str:
    """Read what is needed of tables, files or all of a folder.

    Where the document is wrong in other fields it is all that they hold.
    """
    try:
        files = [
            (one.name, _table(one))
            for path in paths
            for one in (sorted(path.glob("*.csv")) if path.is_dir() else [path])
        ]
    except (OSError, ValueError) as error:
        raise RequestRefusedError(
            "measurements.table",
            f"{', '.join(path.name for path in paths)} cannot be read: "
            f"{getattr(error, 'strerror', error)}.",
            "Correct the path; in a document it counts from the document's folder.",
        ) from None
    try:
        span = Time.model_validate(time)
        asked = compare.values() if isinstance(compare, dict) else ()
        columns = [Compared.model_validate(compared(one)).column for one in asked]
    except ValidationError:
        return "\n".join(text for _, text in files)
    try:
        return needed_text(files, columns, span.start - _LOOK, span.end + _LOOK)
    except MeasurementsError as error:
        raise refused_table(error) from None


def _table(path: Path) -> str:
    try:
        return decoded(path.read_bytes())
    except NotUtf8Error as error:
        raise refusal_of("measurements.table", f"{path.name}: {error}") from None
