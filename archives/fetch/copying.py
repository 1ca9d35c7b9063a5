"""Copy one file of a place to this machine, verified against its record."""

from pathlib import Path

from archives.errors import UnlikeRecordError
from archives.fetch.files import Files
from archives.fetch.partial import check_room
from archives.formats.checksums import digest, same_checksum
from archives.formats.granule_file import check_granule_file
from archives.model import Fetched, GranuleRecord, Progress


def copy_granule(
    files: Files, file: str, record: GranuleRecord, to: Path, progress: Progress | None
) -> Fetched:
    """Copy a granule's file to `to`, whole and as its record says, or leave nothing there.

    Raises:
        ArchiveError: the file cannot be read, or is not what was listed.
        OSError: ENOSPC; also before any byte is written.
    """
    chunks = files.chunks(file)
    partial = to.with_name(to.name + ".partial")
    published = digest(record.checksum_type or "")
    size = 0
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        check_room(to.parent, record.size)
        with partial.open("wb") as copy:
            for chunk in chunks:
                if published is not None:
                    published.update(chunk)
                size += len(chunk)
                copy.write(chunk)
                if progress is not None:
                    progress(size, record.size)
        if record.size and size != record.size:
            raise UnlikeRecordError(
                f"{record.name} has {size} bytes, its record says {record.size}: it changed "
                "since it was listed; it is listed anew at the next try"
            )
        if published and not same_checksum(published.hexdigest(), record.checksum or ""):
            raise UnlikeRecordError(
                f"{record.name} has {record.checksum_type} {published.hexdigest()}, its record "
                f"says {record.checksum}: the file is damaged, fetch it again"
            )
        check_granule_file(partial, record.name, f"{files.place} holds")
        partial.replace(to)
    finally:
        partial.unlink(missing_ok=True)
    return Fetched(path=to, size=size)
