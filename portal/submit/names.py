"""What a person may name in a request: packages, and rasters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from portal.serving.tokens import Person
from tasks.packages.packages import Packages
from tasks.request.document import Request
from tasks.request.library import Library
from tasks.request.resolved import ResolvedRequest, resolve


class Offered(Protocol):
    """A package or raster as the form offers it; `reference` is what the request names."""

    @property
    def reference(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def description(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Installed:
    """A package of the installation."""

    reference: str
    title: str
    description: str


@dataclass(frozen=True, kw_only=True)
class Names:
    """The library, and what of it the form offers to an owner."""

    library: Library
    packages: Callable[[str], Sequence[Offered]]
    rasters: Callable[[str], Sequence[Offered]] = lambda _owner: ()

    @classmethod
    def of(cls, local: Packages) -> Self:
        """Return the names of the packages of the installation alone."""
        return cls(
            library=Library(local),
            packages=lambda _owner: [
                Installed(
                    reference=one.package.name,
                    title=f"{one.package.name} {one.package.version}",
                    description=one.package.description,
                )
                for one in local.every()
            ],
        )

    def resolved(self, person: Person, document: Request) -> ResolvedRequest:
        """Work out what a person's request comes to, with the rasters that its names mean to him.

        Raises RequestRefusedError.
        """
        return resolve(self.library.described(person.owner, document))
