"""What the portal knows of a kind of uploads, and how one is listed and found for a person."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic
from urllib.parse import quote

from pydantic import BaseModel

from portal.serving.portal import Portal
from portal.serving.tokens import Person
from tasks.answers.uploads import Source, Visibility
from tasks.uploads import upload_operations
from tasks.uploads.upload_table import UploadKind, UploadRow, UploadTable, Version

Page = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class UploadView:
    """An upload as a person sees it.

    `reference` is what that person's request names. `link` is only its owner's to know.
    """

    id: str
    reference: str
    owner: str
    name: str
    description: str
    source: Source = "uploaded"
    visibility: Visibility
    newest: str
    mine: bool = False
    link: str = ""
    changed: float = 0.0

    @property
    def title(self) -> str:
        """Name, newest version and owner."""
        by = f" ({self.owner})" if "/" in self.reference else ""
        return f"{self.name} {self.newest}{by}".replace("  ", " ")


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[Version]):
    """A kind of uploads as the API and the pages need it.

    `use` is what a person does with one, `sharing` what others do with one that is shared.
    `answered` makes the API's answer, of the type `answer`. `meant` returns the id of the upload
    that a reference means to a person, and which of its versions. `form` and `facts` are what the
    page with the list and that of one upload say besides. `installed` and `find_installed` are of
    the uploads that come with the installation.
    """

    stored: UploadKind[Version]
    use: str
    sharing: str
    answer: type[BaseModel]
    answered: Callable[[UploadView, Sequence[Version]], BaseModel]
    meant: Callable[[Portal, Person, str], tuple[str, Callable[[Version], bool]]]
    prefix: str = ""  # before its name in a request
    form: Callable[[Portal], Page] = lambda _portal: {}
    facts: Callable[[Version], Page] = lambda _version: {}
    installed: Callable[[Portal], Sequence[UploadView]] = lambda _portal: ()
    find_installed: Callable[[Portal, str], tuple[UploadView, Sequence[Version]] | None] = (
        lambda _portal, _upload: None
    )

    @property
    def word(self) -> str:
        """The name of one."""
        return self.stored.word

    @property
    def place(self) -> str:
        """The folder of their pages, and of their part of the API."""
        return self.stored.name

    def table(self, portal: Portal) -> UploadTable[Version]:
        """Return their table."""
        return self.stored.table(portal.runtime)

    def view(self, portal: Portal, row: UploadRow, person: str) -> UploadView:
        """Show an upload to a person who may see it."""
        mine = row.owner == person
        link = ""
        if mine and row.visibility is Visibility.LINK:
            secret = quote(f"{row.id}.{row.secret}")
            link = f"{portal.settings.portal_url.rstrip('/')}/{self.place}/open?link={secret}"
        return UploadView(
            id=row.id,
            reference=self.prefix + (row.name if mine else f"{row.owner}/{row.name}"),
            owner=row.owner,
            name=row.name,
            description=row.description,
            visibility=row.visibility,
            newest=row.newest,
            mine=mine,
            link=link,
            changed=row.changed,
        )

    def offered(self, portal: Portal, person: str) -> list[UploadView]:
        """List those that a person may use: own ones, those of the installation, shared ones.

        One of the installation that one's own hides is not listed.
        """
        rows = upload_operations.visible(self.table(portal), person)
        stored = [self.view(portal, row, person) for row in rows]
        mine = {view.name for view in stored if view.mine}
        ours = [view for view in self.installed(portal) if view.name not in mine]
        usable = [view for view in stored if view.newest or view.mine]
        return sorted([*ours, *usable], key=lambda view: (not view.mine, view.name, view.owner))

    def look(
        self, portal: Portal, person: str, upload: str
    ) -> tuple[UploadView, Sequence[Version]]:
        """Find one that a person may see with its versions, by id; raise NoSuchUploadError."""
        found = self.find_installed(portal, upload)
        if found is not None:
            return found
        table = self.table(portal)
        row = upload_operations.load_for(table, person, upload)
        return self.view(portal, row, person), table.versions(row.id)

    def own(self, portal: Portal, person: str, upload: str) -> UploadRow:
        """Load a person's own, by its id, to change it; raise NoSuchUploadError."""
        return upload_operations.own(self.table(portal), person, upload)

    def open(self, portal: Portal, person: str, link: str) -> UploadRow:
        """Give a person what a link, or its last part, leads to; raise NoSuchUploadError."""
        upload, _, secret = link[:200].rpartition("link=")[2].partition(".")
        return upload_operations.open_link(self.table(portal), person, upload, secret)
