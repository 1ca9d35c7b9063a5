"""Python packages that a reduction package depends on: as it declares them, and as it has them.

They are declared in the script that its command runs, by inline metadata (PEP 723), or in a file
`requirements.txt`. The file may be a lock: exact versions with their hashes. Names of a registry
alone may be declared; paths, addresses and options of pip are refused.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import Field

from tasks.errors import SwathmillError
from tasks.strict_model import StrictModel

REQUIREMENTS = "requirements.txt"
ENVIRONMENT = "environment.json"
"""The file of an archive that describes its environment; one in an upload is left out."""
MOST_DEPENDENCIES = 200
_LONGEST = 2**20  # bytes of a file that declares some
# The reference implementation of PEP 723.
_BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
_HASH = re.compile(r"\s--hash=(sha256:[0-9a-f]{64})(?=\s|$)")


class DeclarationError(SwathmillError):
    """A package does not declare its dependencies as it should."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a package declares: requirements by name, and which Python it takes.

    With `locked` each requirement is exact and has its hashes, as pip and uv write them.
    """

    requirements: tuple[str, ...]
    locked: bool = False
    python: str = ""
    said_in: str = REQUIREMENTS


class Environment(StrictModel):
    """What an archive says of its environment, whose own archive is stored beside it.

    `sha256` is that of the environment's archive, `packages` names what is in it, `lock` is the
    whole list with hashes. It fits one Python and one kind of machine.
    """

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    python: str
    platform: str
    packages: tuple[str, ...]
    lock: str


def environment_blob(digest: str) -> str:
    """Return the name of the blob with the environment of a package's archive."""
    return f"{digest}.environment.tar"


def read_environment(folder: Path) -> Environment | None:
    """Return what an unpacked package says of its environment; None if it has none."""
    try:
        return Environment.model_validate_json((folder / ENVIRONMENT).read_bytes())
    except FileNotFoundError:
        return None


def declared(command: Sequence[str], files: Mapping[PurePosixPath, Path]) -> Needs | None:
    """Return what a package with this command and these files declares; None: nothing.

    Raises:
        DeclarationError: it cannot be read, is declared twice, or names more than a registry has.
    """
    found = [*_inline(command, files), *_file(files)]
    if len(found) > 1:
        raise DeclarationError(
            f"it declares Python dependencies in {found[0].said_in} and in {found[1].said_in}; "
            "keep one of the two"
        )
    return found[0] if found and found[0].requirements else None


def _inline(command: Sequence[str], files: Mapping[PurePosixPath, Path]) -> Iterator[Needs]:
    """Yield what the script that the command runs declares."""
    for word in command:
        script = files.get(PurePosixPath(word)) if word.endswith(".py") else None
        if script is None:
            continue
        blocks = [
            match["content"]
            for match in _BLOCK.finditer(_text(script, word))
            if match["type"] == "script"
        ]
        if len(blocks) > 1:
            raise DeclarationError(f"{word} has {len(blocks)} blocks of metadata; keep one")
        if blocks:
            yield _needs(word, _toml(blocks[0], word))
        return


def _toml(block: str, word: str) -> dict[str, object]:
    lines = (line[2:] if line.startswith("# ") else line[1:] for line in block.splitlines())
    try:
        return tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError as error:
        raise DeclarationError(f"the metadata in {word} is not TOML: {error}") from None


def _needs(word: str, said: Mapping[str, object]) -> Needs:
    listed, python = said.get("dependencies", []), said.get("requires-python", "")
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise DeclarationError(f"`dependencies` in {word} is not a list of texts")
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        SpecifierSet(python if isinstance(python, str) else "?")
    except InvalidSpecifier:
        raise DeclarationError(
            f"`requires-python` in {word} is {python!r}; write '>=3.11'"
        ) from None
    return Needs(
        requirements=tuple(_checked(one, word) for one in _bounded(listed, word)),
        python=str(python),
        said_in=word,
    )


def _file(files: Mapping[PurePosixPath, Path]) -> Iterator[Needs]:
    """Yield what `requirements.txt` declares."""
    path = files.get(PurePosixPath(REQUIREMENTS))
    if path is None:
        return
    found, hashed = [], 0
    text = _text(path, REQUIREMENTS).replace("\\\n", " ")
    for line in text.splitlines():
        plain = re.sub(r"(^|\s)#.*", "", line).strip()
        if not plain:
            continue
        hashes = _HASH.findall(plain)
        requirement = _checked(_HASH.sub("", plain).strip(), REQUIREMENTS, exact=bool(hashes))
        hashed += bool(hashes)
        found.append(" ".join([requirement, *(f"--hash={one}" for one in hashes)]))
    if hashed not in (0, len(found)):
        raise DeclarationError(
            f"{REQUIREMENTS} has hashes for {hashed} of {len(found)} packages; give all or none"
        )
    yield Needs(requirements=tuple(_bounded(found, REQUIREMENTS)), locked=hashed > 0)


def _checked(text: str, where: str, *, exact: bool = False) -> str:
    """Return one requirement as it is written down for the resolver."""
    if text.startswith("-"):
        raise DeclarationError(
            f"{where} has the option {text!r}; only names and versions may be there"
        )
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        raise DeclarationError(f"{where}: {text!r} is not a requirement; write 'x>=1.2'") from None
    if requirement.url:
        raise DeclarationError(
            f"{where}: {requirement.name} is given by an address; name it as the registry does"
        )
    versions = [*requirement.specifier]
    if exact and (len(versions) != 1 or versions[0].operator != "=="):
        raise DeclarationError(f"{where}: {text!r} has hashes; give its exact version: name==1.2")
    return str(requirement)


def _bounded(found: list[str], where: str) -> list[str]:
    if len(found) > MOST_DEPENDENCIES:
        raise DeclarationError(
            f"{where} names {len(found)} packages; {MOST_DEPENDENCIES} may be named"
        )
    return found


def _text(path: Path, name: str) -> str:
    if path.stat().st_size > _LONGEST:
        raise DeclarationError(f"{name} is larger than {_LONGEST >> 20} MiB")
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise DeclarationError(f"{name} is not text in UTF-8") from None
