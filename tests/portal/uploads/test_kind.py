"""A third kind of uploads is a row, an answer and two values: it gets the calls of all kinds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from pydantic import BaseModel

from portal.app import create_app
from portal.serving import tokens
from portal.serving.portal import Portal
from portal.serving.tokens import Person
from portal.uploads.kind import Kind, UploadView
from portal.uploads.upload_api import upload_api
from tasks.packages.package_reference import PackageReference
from tasks.storage.codec import Codec
from tasks.uploads import upload_operations
from tasks.uploads.upload_operations import NoSuchUploadError, Push
from tasks.uploads.upload_table import UploadedVersion, UploadKind, upload_id
from tests.portal.scripted import SECRET, client_of, live_runtime, settings
from tests.serving import serving_app

ADA, BEN = "ada@example.org", "ben@example.org"


@dataclass(frozen=True, kw_only=True)
class NoteRow(UploadedVersion):
    text: str


class NoteAnswer(BaseModel):
    id: str
    reference: str
    link: str
    texts: tuple[str, ...]

    @classmethod
    def of(cls, view: UploadView, versions: Sequence[NoteRow] = ()) -> Self:
        texts = tuple(one.text for one in versions)
        return cls(id=view.id, reference=view.reference, link=view.link, texts=texts)


def meant(portal: Portal, person: Person, reference: str) -> tuple[str, Callable[[NoteRow], bool]]:
    asked = PackageReference.parse(reference)
    found = upload_operations.meant(NOTES.table(portal), person.owner, asked)
    if found is None:
        raise NoSuchUploadError(reference, "note")
    return found[0].id, lambda one: asked.version in ("", one.version)


STORED = UploadKind(
    word="note",
    name="notes",
    codec=Codec(NoteRow, "note version"),
    container="packages",
    blobs=lambda digest: (f"{digest}.txt",),
    used_by=lambda _row: (),
)
NOTES: Kind[NoteRow] = Kind(
    stored=STORED,
    use="read",
    sharing="read a note",
    answer=NoteAnswer,
    answered=NoteAnswer.of,
    meant=meant,
)


def test_a_third_kind_is_listed_found_shared_opened_and_deleted() -> None:
    runtime = live_runtime()
    digest, table = "d" * 64, STORED.table(runtime)

    def written(_versions: list[NoteRow]) -> NoteRow:
        return NoteRow(
            package=upload_id(ADA, "first"),
            version="1",
            digest=digest,
            size=2,
            pushed=runtime.clock.now(),
            text="hi",
        )

    def put() -> None:
        runtime.blobs.put_bytes("packages", f"{digest}.txt", b"hi")

    upload_operations.push(
        table,
        Push(owner=ADA, name="first", description="", digest=digest, put=put, choose=written),
    )
    app = create_app(settings(), runtime)
    app.include_router(upload_api(NOTES))
    with serving_app(app, None, "127.0.0.1") as url:
        ada, ben = (
            client_of(url, {"Authorization": f"Bearer {tokens.issue(SECRET, one, 'scientist')}"})
            for one in (ADA, BEN)
        )
        with ada, ben:
            (listed,) = ada.get("/api/notes").json()
            assert listed["reference"] == "first"
            assert ben.get("/api/notes").json() == []
            path = f"/api/notes/{listed['id']}"
            assert ben.get(path).status_code == 404
            shared = ada.post(f"{path}/share", params={"visibility": "link"}).json()
            assert "/notes/open?link=" in shared["link"]
            ben.post("/api/notes/open", params={"link": shared["link"]})
            found = ben.get("/api/notes/find", params={"reference": f"{ADA}/first@1"}).json()
            assert (found["texts"], found["link"]) == (["hi"], "")
            assert ben.delete(path).status_code == 404
            assert ada.delete(f"{path}/versions/1").status_code == 204
            assert ada.get(path).status_code == 404
    assert upload_operations.collect(runtime, STORED) == 1
    assert not runtime.blobs.exists("packages", f"{digest}.txt")
