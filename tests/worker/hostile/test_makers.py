"""Hostile decoders: what a file that has taken over a maker can do, in the tier that is named."""

import ctypes
import importlib
import importlib.util
import os
import pickle
import resource
import signal
import socket
import stat
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

import pyproj
import pytest
from pydantic import SecretStr

from processes import confine
from processes.reading_rights import shut_in
from reprojection.read.completeness import WHOLE
from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile
from tasks.bag.spec import Input, ReprojectSpec
from tasks.service.classify import AttemptError
from tasks.settings import Settings
from tasks.storage.blobs import ARTIFACTS, CONTAINERS, split_blob
from tasks.storage.file_blobs import FileBlobs
from tests.waiting import until
from tests.worker.hostile.harness import SECRET, Neighbours
from tests.worker.mill import grid_spec
from worker.phases.context import Context
from worker.sandbox import makers as makers_module
from worker.sandbox import sandbox
from worker.sandbox.makers import (
    INPUTS,
    OUT,
    WORK,
    MakerEndedError,
    Makers,
    is_being_written,
    start_server,
)
from worker.sandbox.messages import ChildSettings, Failed, Job, Postponed, SelfTest, Succeeded
from worker.slots import maker_answers
from worker.slots.apart import Apart
from worker.slots.child import WarmChild, perform
from worker.slots.lent_blobs import MADE

pytestmark = pytest.mark.slow

_OWN = sandbox.own_user("limits") is not None
WAYS = {"limits": False, "limits, shared user id": True}
"""Tiers, with whether the maker keeps the worker's own user id."""
INPUT = "a granule's bytes"


@dataclass(frozen=True, kw_only=True)
class About:
    """What a hostile decoder knows of its surroundings."""

    process: int
    secret: Path
    data: Path
    other: Path
    datagrams: Path
    port: int
    worker: int
    home: Path


Attack = Callable[[About, Context], object]


def read_the_secret(about: About, _: Context) -> object:
    return about.secret.read_text()


def list_the_data_folder(about: About, _: Context) -> object:
    return [*about.data.iterdir()]


def read_what_another_attempt_was_given(about: About, _: Context) -> object:
    return about.other.read_text()


def read_what_the_child_took(about: About, _: Context) -> object:
    return [*(about.home / "out").iterdir()]


def read_the_environment_of_the_worker(about: About, _: Context) -> object:
    return Path(f"/proc/{about.worker}/environ").read_bytes()


def read_the_memory_of_the_worker(about: About, _: Context) -> object:
    return os.open(f"/proc/{about.worker}/mem", os.O_RDONLY)


def read_the_password_file_by_root(_: About, __: Context) -> object:
    return Path("/etc/shadow").read_text()


def connect(about: About, _: Context) -> object:
    return socket.create_connection(("127.0.0.1", about.port), 1)


def send_a_datagram(about: About, _: Context) -> object:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        return one.sendto(b"x", str(about.datagrams))


def send_a_datagram_by_a_pair(about: About, _: Context) -> object:
    one, _other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return one.sendto(b"x", str(about.datagrams))


def listen(_: About, __: Context) -> object:
    return socket.create_server(("127.0.0.1", 0))


def signal_its_child(about: About, _: Context) -> object:
    os.kill(about.worker, signal.SIGCONT)
    return None


def signal_its_server(_: About, __: Context) -> object:
    os.kill(os.getppid(), signal.SIGTERM)
    return None


def signal_another(about: About, _: Context) -> object:
    os.kill(about.process, signal.SIGTERM)
    return None


def limit_another(about: About, _: Context) -> object:
    return resource.prlimit(about.process, resource.RLIMIT_NOFILE, (1, 1))


def change_its_input(_: About, context: Context) -> object:
    ((file,),) = context.inputs.values()
    return context.place(0, file).write_text("changed")


def open_its_input_to_all(_: About, context: Context) -> object:
    ((file,),) = context.inputs.values()
    context.place(0, file).chmod(0o777)
    return None


def link_its_input_to_where_it_writes(_: About, context: Context) -> object:
    ((file,),) = context.inputs.values()
    to = context.scratch / "mine"
    os.link(context.place(0, file), to)
    return to.write_text("changed")


def write_beside_its_input(_: About, context: Context) -> object:
    assert context.given is not None
    return (context.given / "more").write_text("x")


def write_where_the_child_takes(about: About, _: Context) -> object:
    return (about.home / "out" / "more").write_text("x")


def write_to_another_attempt(about: About, _: Context) -> object:
    return (about.other.parent / "mine").write_text("x")


def write_to_the_temporary_folder(_: About, __: Context) -> object:
    return Path("/tmp/swathmill-hostile").write_text("x")


def change_our_code(_: About, __: Context) -> object:
    return Path(maker_answers.__file__).open("a")


def make_a_namespace(_: About, __: Context) -> object:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x10000000) < 0:
        raise OSError(ctypes.get_errno(), "unshare")
    return 0


ATTACKS: tuple[Attack, ...] = (
    read_the_secret,
    list_the_data_folder,
    read_what_another_attempt_was_given,
    read_what_the_child_took,
    read_the_environment_of_the_worker,
    read_the_memory_of_the_worker,
    read_the_password_file_by_root,
    connect,
    send_a_datagram,
    send_a_datagram_by_a_pair,
    listen,
    signal_its_child,
    signal_its_server,
    signal_another,
    limit_another,
    change_its_input,
    open_its_input_to_all,
    link_its_input_to_where_it_writes,
    write_beside_its_input,
    write_where_the_child_takes,
    write_to_another_attempt,
    write_to_the_temporary_folder,
    change_our_code,
    make_a_namespace,
)
_SIGNALS = (signal_its_child, signal_its_server, signal_another)


@pytest.fixture(scope="module")
def neighbours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbours]:
    found = Neighbours(tmp_path_factory.mktemp("neighbours"))
    yield found
    found.close()


@dataclass(kw_only=True)
class Bench:
    """A child whose makers run `hostile` in place of a decoder."""

    apart: Apart
    makers: Makers
    blobs: FileBlobs
    settings: Settings
    file: ArtifactFile
    server: int
    count: int = 0
    told: list[tuple[float, str]] = field(default_factory=list)
    last: tuple[Job, Context] = field(init=False)

    @property
    def maker(self) -> int:
        """The process of the maker."""
        return self.makers._pid

    def attempt(self, request: str = "r") -> Succeeded | Failed | Postponed:
        """Do an attempt; one that does not end fails."""
        with ended_by_an_alarm():
            return self._attempt(request)

    def _attempt(self, request: str) -> Succeeded | Failed | Postponed:
        self.count += 1
        scratch = self.settings.data_dir / "scratch" / str(self.count)
        scratch.mkdir(parents=True)
        spec = ReprojectSpec(
            inputs=(Input(key="0" * 64, name=self.file.name),),
            product="MCD15A2",
            collection="5",
            layer="Lai_1km",
            day=date(2012, 1, 1),
            grid=grid_spec(),
            resampling="nearest",
        )
        job = Job(
            request=request,
            key=spec.key,
            claim=f"c{self.count}",
            spec=spec,
            inputs={0: (self.file,)},
            scratch=scratch,
        )
        given = ChildSettings(settings=self.settings, cache=scratch, sandbox=None, reading="limits")
        self.last = (
            job,
            Context(
                key=job.key,
                claim=job.claim,
                inputs=job.inputs,
                scratch=scratch,
                settings=self.settings,
                blobs=self.blobs,
                cache=None,
                tell=lambda *_: None,
                sandbox=None,
            ),
        )
        return perform(
            job, given, lambda *said: self.told.append(said), lambda: self.blobs, apart=self.apart
        )

    def left(self) -> list[str]:
        """What is in the folders of the maker, but for its folder for what it made."""
        home = self.makers.home
        return [
            one.name
            for name in (INPUTS, WORK, OUT)
            for one in (home / name).iterdir()
            if one.name != MADE
        ]


@contextmanager
def ended_by_an_alarm() -> Iterator[None]:
    def late(_number: int, _frame: object) -> None:
        raise TimeoutError("this does not end")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(40)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def bench(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    hostile: Callable[[Context], object],
    *,
    shared: bool = not _OWN,
    memory_gb: float = 4.0,
) -> Iterator[Bench]:
    def make(_job: Job, context: Context) -> None:
        hostile(context)

    monkeypatch.setattr(maker_answers, "make", make)
    if shared:
        monkeypatch.setattr(makers_module, "own_user", lambda _tier: None)
    folder.chmod(0o700)  # the data folder
    settings = Settings(data_dir=folder / "data", attempt_memory_gb=memory_gb)
    blobs = FileBlobs(folder / "blobs")
    blobs.create(CONTAINERS)
    granule = folder / "a.hdf"
    granule.write_text(INPUT)
    stored = blobs.put_file(ARTIFACTS, "a.hdf", granule)
    file = ArtifactFile(
        name="a.hdf", blob=f"{ARTIFACTS}/a.hdf", size=stored.size, sha256=stored.sha256
    )
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
    home = folder / "data" / "home"
    home.mkdir(parents=True)
    (folder / "data" / "elsewhere").mkdir()
    (folder / "data" / "elsewhere" / "theirs").write_text("of another")
    server, orders = start_server(log, ())
    os.close(log)
    made = Makers(orders, home)
    apart = Apart(made, settings, "limits")
    try:
        yield Bench(
            apart=apart, makers=made, blobs=blobs, settings=settings, file=file, server=server
        )
    finally:
        with suppress(ProcessLookupError):
            os.kill(made._pid or server, signal.SIGKILL)  # whatever the test is about
        made.end()
        orders.close()
        os.waitpid(server, 0)


@pytest.mark.parametrize("way", WAYS)
def test_a_hostile_decoder_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, neighbours: Neighbours, way: str
) -> None:
    if absent := makers_module.reading_tier() != "limits":
        pytest.skip(f"no tier limits here: {absent}")
    if not WAYS[way] and not _OWN:
        pytest.skip("makers have no user id of their own here")
    told = neighbours.about()
    about = About(
        process=neighbours.process.pid,
        secret=neighbours.secret,
        data=neighbours.data,
        other=neighbours.others[0] / "theirs.py",
        datagrams=neighbours.folder / "datagrams",
        port=int(str(told["port"])),
        worker=os.getpid(),
        home=tmp_path / "data" / "home",
    )
    held = ATTACKS
    if confine.landlock_abi() < 6 and WAYS[way]:
        held = tuple(one for one in ATTACKS if one not in _SIGNALS)

    def attack(context: Context) -> None:
        said = [f"user {os.getuid()}"]
        for one in held:
            try:
                found = one(about, context)
            except OSError as error:
                said.append(f"{one.__name__}: refused, {error.strerror}")
            else:
                said.append(f"{one.__name__}: {found!r}"[:200])
        path = context.scratch / "said.txt"
        path.write_text("\n".join(said))
        context.upload(path)

    with bench(tmp_path, monkeypatch, attack, shared=WAYS[way]) as made:
        found = made.attempt()
        assert isinstance(found, Succeeded), found
        said = made.blobs.get_bytes(*split_blob(found.files[0].blob)).decode().splitlines()
        kept = made.blobs.get_bytes(ARTIFACTS, "a.hdf").decode()
    assert (said[0] == f"user {os.getuid()}") is WAYS[way], "the user id of the way"
    assert [line for line in said[1:] if ": refused, " not in line] == []
    assert len(said) == 1 + len(held)
    assert SECRET not in "\n".join(said)
    assert kept == INPUT
    neighbours.unharmed()


def _open_files() -> set[int]:
    """Return the inodes of the open files of this process."""
    there = [one for one in Path("/proc/self/fd").iterdir() if one.exists()]
    return {one.stat().st_ino for one in there if one.exists()}


def test_a_maker_holds_no_descriptor_of_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(context: Context) -> None:
        null = Path(os.devnull).stat()
        found = []
        for number in range(3, 1024):
            try:
                there = os.fstat(number)
            except OSError:
                continue
            if not os.path.samestat(there, null):
                found.append(f"{stat.filemode(there.st_mode)} {there.st_ino}")
        path = context.scratch / "found.txt"
        path.write_text("\n".join(found))
        context.upload(path)

    with socket.create_server(("127.0.0.1", 0)), bench(tmp_path, monkeypatch, look) as made:
        ours = _open_files()
        found = made.attempt()
        assert isinstance(found, Succeeded), found
        said = made.blobs.get_bytes(*split_blob(found.files[0].blob)).decode().splitlines()
    held = [one.split() for one in said if not one.startswith("-")]
    assert [mode[0] for mode, _ in held if mode[0] != "p"] == ["s"], "its connection"
    pipes = Counter(int(number) for mode, number in held if mode[0] == "p")
    # Arrow makes a pipe of its own in each fork: both of its ends are here, and none elsewhere.
    assert set(pipes.values()) <= {2}
    assert not pipes.keys() & ours


def test_what_a_maker_said_last_is_heard_though_its_end_is_told_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, server = socket.socketpair()
    heard, said = Pipe()
    with ours, server, heard, said:
        made = Makers(ours, tmp_path)
        made._asking = heard
        said.send_bytes(b"made")
        server.send(b"0")
        monkeypatch.setattr(makers_module, "wait", lambda _ends: [ours])
        assert made.hear() == b"made"


def test_a_library_that_closes_what_it_had_opened_closes_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PROJ closes its database in a fork, and closed the file that had got its number."""

    def use(context: Context) -> None:
        ((file,),) = context.inputs.values()
        opened = [context.place(0, file).open() for _ in range(64)]
        pyproj.Transformer.from_crs("EPSG:32631", "EPSG:3857").transform(5, 50)
        path = context.scratch / "read.txt"
        path.write_text("".join({one.read() for one in opened}))
        context.upload(path)

    pyproj.Transformer.from_crs("EPSG:4326", "EPSG:3857").transform(5, 50)
    with bench(tmp_path, monkeypatch, use) as made:
        found = made.attempt()
        assert isinstance(found, Succeeded), found
        assert made.blobs.get_bytes(*split_blob(found.files[0].blob)).decode() == INPUT


def _in_made(context: Context, name: str, make: Callable[[Path], object]) -> None:
    """Say that a file was made, and put something else in its place."""
    path = context.scratch / name
    path.write_text("x")
    context.upload(path)
    there = context.scratch / MADE / name
    there.unlink()
    make(there)


def link_to_a_secret(context: Context) -> None:
    # Nothing of the machine's: without the guard its owner or its place changes.
    secret = context.scratch.parent.parent / "elsewhere" / "theirs"
    _in_made(context, "a.tif", lambda path: path.symlink_to(secret))


def folder_that_is_a_link(context: Context) -> None:
    path = context.scratch / "theirs"
    path.write_text("x")
    context.upload(path)
    (context.scratch / MADE).rename(context.scratch / "away")
    # Nothing of the machine's: without the guard it is moved away.
    (context.scratch / MADE).symlink_to(context.scratch.parent.parent / "elsewhere")


def pipe(context: Context) -> None:
    _in_made(context, "a.tif", os.mkfifo)


def folder(context: Context) -> None:
    _in_made(context, "a.tif", Path.mkdir)


def second_name(context: Context) -> None:
    _in_made(context, "a.tif", lambda path: path.write_text("x"))
    os.link(context.scratch / MADE / "a.tif", context.scratch / "b.tif")


def still_written(context: Context) -> None:
    path = context.scratch / "a.tif"
    _KEPT.append(path.open("w"))
    context.upload(path)


def nothing_there(context: Context) -> None:
    _in_made(context, "a.tif", lambda _path: None)


def _under_the_name(context: Context, name: str) -> None:
    """Say that a file was made, and make it."""
    assert isinstance(context, maker_answers.MakerContext)
    (context.scratch / MADE / name).write_text("x")
    context.made.append(maker_answers.MadeFile(name=name, keep=True, completeness=WHOLE))


def name_that_climbs(context: Context) -> None:
    _under_the_name(context, "../a.tif")


def name_with_an_order_to_a_terminal(context: Context) -> None:
    _under_the_name(context, "a\x9b2J.tif")


def name_that_is_hidden(context: Context) -> None:
    _under_the_name(context, ".a.tif")


_KEPT: list[object] = []


@pytest.mark.parametrize(
    "make",
    [
        link_to_a_secret,
        folder_that_is_a_link,
        pipe,
        folder,
        second_name,
        still_written,
        nothing_there,
        name_that_climbs,
        name_with_an_order_to_a_terminal,
        name_that_is_hidden,
    ],
)
def test_what_a_maker_says_it_made_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Context], object]
) -> None:
    with bench(tmp_path, monkeypatch, make) as made:
        found = made.attempt()
        assert isinstance(found, Failed), found
        assert found.category is Category.UNKNOWN
        assert [*made.blobs.names(ARTIFACTS)] == ["a.hdf"]
    assert (tmp_path / "data" / "elsewhere" / "theirs").read_text() == "of another"


def test_what_a_maker_says_of_its_failure_is_believed_as_far_as_it_can_know_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lie(_context: Context) -> None:
        raise AttemptError(Category.WORKER_LOST, "costs no try", healing=0b1011)

    with bench(tmp_path, monkeypatch, lie) as made:
        found = made.attempt()
        assert isinstance(found, Failed)
        assert (found.category, found.healing) == (Category.UNKNOWN, 0)

    def damaged(_context: Context) -> None:
        raise AttemptError(Category.UNREADABLE_INPUT_FILE, "damaged", healing=0b1011)

    other = tmp_path / "other"
    other.mkdir()
    with bench(other, monkeypatch, damaged) as made:
        found = made.attempt()
        assert isinstance(found, Failed)
        assert (found.category, found.healing) == (Category.UNREADABLE_INPUT_FILE, 1)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_a_crash_is_the_makers_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def crash(context: Context) -> None:
        if context.claim == "c1":
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        path = context.scratch / "a.tif"
        path.write_text("x")
        context.upload(path)

    with bench(tmp_path, monkeypatch, crash) as made:
        with pytest.raises(MakerEndedError) as ended:
            made.attempt()
        assert ended.value.code == -number
        assert isinstance(made.attempt(), Succeeded), "of another maker"


def test_a_maker_that_leaves_a_process_behind_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(_context: Context) -> None:
        if os.fork() == 0:
            time.sleep(600)
        os._exit(7)

    with bench(tmp_path, monkeypatch, leave) as made:
        with pytest.raises(MakerEndedError) as ended:
            made.attempt()
        assert ended.value.code == 7


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def swallow(_context: Context) -> None:
        bytearray(2**32)

    with bench(tmp_path, monkeypatch, swallow, memory_gb=1.0) as made:
        found = made.attempt()
        assert isinstance(found, Failed)
        assert found.category is Category.OUT_OF_MEMORY


def test_each_request_has_a_maker_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tell(context: Context) -> None:
        left = [path.name for path in context.scratch.iterdir() if path.name != MADE]
        path = context.scratch / "who.txt"
        path.write_text(f"{os.getpid()} {left}")
        context.upload(path)

    with bench(tmp_path, monkeypatch, tell) as made:
        said = []
        for request, next_one in zip("aaba", "abab", strict=True):
            found = made.attempt(request)
            assert isinstance(found, Succeeded), found
            assert made.left() == []
            if next_one != request:  # a maker may write after its attempt
                (made.makers.home / WORK / "late").write_text(request)
            said.append(made.blobs.get_bytes(*split_blob(found.files[0].blob)).decode())
    who = [one.split()[0] for one in said]
    assert who[0] == who[1]
    assert len({*who}) == 3
    assert all(one.endswith(" []") for one in said)


def test_a_maker_reads_packages_that_lie_outside_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `pip install --user` puts them: PROJ reads its database when it is first asked."""
    database = tmp_path / "lib" / "site-packages" / "proj.db"
    database.parent.mkdir(parents=True)
    database.write_text("of a library")
    monkeypatch.syspath_prepend(str(database.parent))

    def read(context: Context) -> None:
        path = context.scratch / "read.txt"
        path.write_text(database.read_text())
        context.upload(path)

    with bench(tmp_path, monkeypatch, read) as made:
        found = made.attempt("a")
        assert isinstance(found, Succeeded), found
        assert made.blobs.get_bytes(*split_blob(found.files[0].blob)) == b"of a library"


def test_makers_do_without_pandas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow looks for it with its first array, which takes a second where it is installed."""
    assert importlib.util.find_spec("pandas") is not None

    def look(context: Context) -> None:
        sys.modules.pop("pandas", None)  # another test may have left it
        try:
            importlib.import_module("pandas")
        except ModuleNotFoundError as error:
            path = context.scratch / "said.txt"
            path.write_text(str(error))
            context.upload(path)

    with bench(tmp_path, monkeypatch, look) as made:
        found = made.attempt("a")
        assert isinstance(found, Succeeded), found
        said = made.blobs.get_bytes(*split_blob(found.files[0].blob))
        assert said == b"makers do without pandas"


def test_a_file_that_is_being_written_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("w"):
        assert is_being_written(path)
    assert not is_being_written(path)


def say_nothing(context: Context) -> None:
    path = context.scratch / "a.txt"
    path.write_text(tempfile.gettempdir())
    context.upload(path)


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _limits(pid: int) -> dict[str, str]:
    """The soft limits of a process, as the kernel names them."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()[1:]
    return {line[:26].strip(): line[26:].split()[0] for line in lines}


@contextmanager
def an_input() -> Iterator[None]:
    """Give this process a standard input that is not /dev/null, as pytest's is."""
    kept, (reading, writing) = os.dup(0), os.pipe()
    os.dup2(reading, 0)
    try:
        yield
    finally:
        os.dup2(kept, 0)
        for one in (kept, reading, writing):
            os.close(one)


@pytest.mark.parametrize("way", WAYS)
def test_a_maker_has_limits_and_no_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if makers_module.reading_tier() != "limits":
        pytest.skip("no tier limits here")
    if not WAYS[way] and not _OWN:
        pytest.skip("makers have no user id of their own here")
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    tempfile.gettempdir()  # found out before the fork, as by what is used once
    with an_input(), bench(tmp_path, monkeypatch, say_nothing, shared=WAYS[way]) as made:
        resource.setrlimit(resource.RLIMIT_CORE, before)
        found = made.attempt()
        assert isinstance(found, Succeeded), found
        folder = made.blobs.get_bytes(*split_blob(found.files[0].blob)).decode()
        assert folder == str(made.makers.home / WORK)
        maker = made.maker
        status, limits = _status(maker), _limits(maker)
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            # With a user id of its own: to pass closed folders, which Landlock judges.
            assert int(status[name], 16) in ({0} if WAYS[way] else {0, 1 << 2}), name
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        assert status["Groups"] == "" or WAYS[way]
        assert limits["Max core file size"] == "0"
        assert limits["Max data size"] == str(2 * 4 * 10**9)
        assert limits["Max file size"] == str(int(made.settings.attempt_disk_gb * 10**9))
        own = confine.own_tasks() if WAYS[way] else 0
        assert int(limits["Max processes"]) <= own + 64
        assert Path(f"/proc/{maker}/oom_score_adj").read_text().strip() == "700"
        assert os.getsid(maker) == maker
        assert Path(f"/proc/{maker}/fd/0").readlink() == Path(os.devnull)


def test_a_library_that_keeps_a_file_open_keeps_it_in_makers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that it writes, which may be storage's, it does not."""
    kept = tmp_path / "kept"
    kept.write_text("of a library")
    reading, writing = os.open(kept, os.O_RDONLY), os.open(kept, os.O_RDWR)

    def use(context: Context) -> None:
        path = context.scratch / "read.txt"
        path.write_text(f"{os.pread(reading, 100, 0)!r} {os.pread(writing, 100, 0)!r}")
        context.upload(path)

    try:
        with bench(tmp_path, monkeypatch, use) as made:
            found = made.attempt()
            assert isinstance(found, Succeeded), found
            said = made.blobs.get_bytes(*split_blob(found.files[0].blob)).decode()
    finally:
        os.close(reading)
        os.close(writing)
    assert said == "b'of a library' b''"


def _gone(pid: int) -> bool:
    try:
        return _status(pid)["State"].startswith("Z")
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_makers_end_with_their_server_and_it_with_its_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the middle of an attempt, when none of them listens."""

    def stay(context: Context) -> None:
        told = context.scratch / "told"
        told.write_text(f"{os.getpid()} {os.getppid()}")
        told.rename(context.scratch / "pids")
        while True:
            signal.pause()

    child = os.fork()
    if child == 0:
        with suppress(BaseException), bench(tmp_path, monkeypatch, stay) as made:
            made.attempt()
        os._exit(0)
    pids = tmp_path / "data" / "home" / WORK / "pids"
    until(pids.exists)
    maker, server = map(int, pids.read_text().split())
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        until(lambda: _gone(server), 20)
        until(lambda: _gone(maker), 20)
    finally:
        for one in (maker, server):
            if not _gone(one):
                os.kill(one, signal.SIGKILL)


def test_what_a_maker_closes_to_all_is_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is not root cannot move a folder that is closed to it."""

    def close(context: Context) -> None:
        (context.scratch / "closed").mkdir(mode=0)
        say_nothing(context)

    rename = Path.rename

    def closed(path: Path, to: Path) -> Path:
        if path.name == "closed":
            raise PermissionError(13, "Permission denied")
        return rename(path, to)

    with bench(tmp_path, monkeypatch, close) as made:
        monkeypatch.setattr(Path, "rename", closed)
        assert isinstance(made.attempt(), Succeeded)
        assert made.left() == []
        assert _gone(made.maker)
        assert isinstance(made.attempt(), Succeeded)


def _say(said: bytes) -> None:
    """Say something to the child in place of an answer."""
    for number in range(3, 1024):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                connection = Connection(os.dup(number))
                connection.send_bytes(said)
                return


def too_long(_context: Context) -> None:
    _say(b"x" * (2**24 + 1))
    signal.pause()


def without_sense(_context: Context) -> None:
    _say(b'{"kind": "made", "files": [], "more": 1}')
    signal.pause()


def too_many(context: Context) -> None:
    assert isinstance(context, maker_answers.MakerContext)
    one = maker_answers.MadeFile(name="a", keep=True, completeness=WHOLE)
    context.made.extend([one] * 1001)


@pytest.mark.parametrize(
    ("say", "message", "goes_on"),
    [
        (too_long, "what was said is too long, or broke off", False),
        (without_sense, "what was said makes no sense", False),
        (too_many, "it made too much, or something else", True),
    ],
)
def test_what_a_maker_says_is_bounded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    say: Callable[[Context], None],
    message: str,
    goes_on: bool,
) -> None:
    with bench(tmp_path, monkeypatch, say) as made:
        found = made.attempt()
        assert isinstance(found, Failed)
        assert found.message == f"BadAnswerError: {message}"
        assert _gone(made.maker) is not goes_on


def test_the_words_of_a_maker_are_short_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def talk(context: Context) -> None:
        context.tell(0.5, "\x9b" + "x" * 500)
        failed = Failed(category=Category.CHOICE_REFUSED, message="y" * 5000)
        _say(failed.model_dump_json().encode())
        signal.pause()

    with bench(tmp_path, monkeypatch, talk) as made:
        found = made.attempt()
        assert isinstance(found, Failed)
        assert found.message == "y" * 4000
        assert (0.5, "\\x9b" + "x" * 196) in made.told


def test_what_a_maker_says_of_a_granule_is_short_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        maker_answers, "checked", lambda *_, **__: "\x1b[2J" + "\u202e" + "x" * 5000
    )
    granule = tmp_path / "b.hdf"
    granule.write_text(INPUT)
    with bench(tmp_path, monkeypatch, say_nothing) as made:
        assert isinstance(made.attempt(), Succeeded)
        job, context = made.last
        made.apart.begin(job)
        said = made.apart._check(job, context, granule, False)
    assert said == ("\\x1b[2J\\u202e" + "x" * 5000)[:4000]


def test_a_maker_that_goes_on_by_itself_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def go_on(_context: Context) -> None:
        _say(b'{"kind": "made", "files": []}')
        while True:
            signal.pause()

    with bench(tmp_path, monkeypatch, go_on) as made:
        assert isinstance(made.attempt("a"), Succeeded)
        first = made.maker
        assert isinstance(made.attempt("b"), Succeeded)
        assert _gone(first)


def test_a_maker_that_failed_makes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(context: Context) -> None:
        if context.claim == "c1":
            raise AttemptError(Category.CHOICE_REFUSED, "so")
        say_nothing(context)

    with bench(tmp_path, monkeypatch, fail) as made:
        assert isinstance(made.attempt(), Failed)
        first = made.maker
        assert _gone(first)
        assert isinstance(made.attempt(), Succeeded)
        assert made.maker != first


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_file_of_a_maker_becomes_its_childs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(tmp_path, monkeypatch, say_nothing) as made:
        assert isinstance(made.attempt(), Succeeded)
        folder = made.makers.home / WORK / MADE
        folder.mkdir(exist_ok=True)
        (folder / "a.tif").write_text("x")
        os.chown(folder / "a.tif", 54321, 54321)
        taken = made.makers.take("a.tif", MADE).stat()
    assert (taken.st_uid, taken.st_gid) == (0, 0)


@pytest.mark.parametrize("tier", ["limits", "none"])
def test_a_maker_that_begins_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tier: makers_module.ReadingTier
) -> None:
    """And the next request has one of its own."""
    with bench(tmp_path, monkeypatch, say_nothing) as made:
        apart = Apart(made.makers, made.settings, tier)
        assert apart.fault() == ""
        assert made.left() == []
        tried = made.maker
        assert _gone(tried)
        assert isinstance(made.attempt(), Succeeded)
        assert made.maker != tried


def _refuse(*_: object, **__: object) -> None:
    raise OSError(38, "Function not implemented")


def _everything(read: list[str], write: list[str], *, shared: bool) -> None:
    del read, write, shared


@pytest.mark.parametrize(
    ("instead", "fault"),
    [
        (_refuse, "it ended with 70"),
        (_everything, "it can open what is not its own"),
        (
            lambda read, _write, **more: shut_in(read, [], **more),
            "what is its own is closed to it: [Errno 13]",
        ),
    ],
)
def test_a_maker_that_cannot_begin_or_is_not_confined_is_a_fault(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    instead: Callable[..., None],
    fault: str,
) -> None:
    if makers_module.reading_tier() != "limits":
        pytest.skip("no tier limits here")
    monkeypatch.setattr(makers_module, "shut_in", instead)
    # Else the user id of its own closes the folders, too.
    with bench(tmp_path, monkeypatch, say_nothing, shared=True) as made:
        assert made.apart.fault().startswith(fault)
        assert made.left() == []


def test_a_server_of_makers_that_is_gone_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(tmp_path, monkeypatch, say_nothing) as made:
        os.kill(made.server, signal.SIGKILL)
        until(lambda: _gone(made.server), 20)
        assert made.apart.fault()


@pytest.mark.parametrize(
    ("instead", "code", "words"),
    [
        (shut_in, 0, "succeeded"),
        (_refuse, 1, "granules cannot be read, no maker begins: it ended with 70"),
    ],
)
def test_a_child_whose_makers_cannot_begin_says_so_in_its_self_test(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    instead: Callable[..., None],
    code: int,
    words: str,
) -> None:
    monkeypatch.setattr(makers_module, "shut_in", instead)
    settings = Settings(
        data_dir=tmp_path / "data",
        storage=SecretStr(f"file:{tmp_path}/store"),
        redis_url=SecretStr("redis://127.0.0.1:1"),  # nothing here calls it
    )
    FileBlobs(tmp_path / "store" / "blobs").create(CONTAINERS)
    tier = makers_module.reading_tier()
    given = ChildSettings(settings=settings, cache=tmp_path / "c", sandbox=None, reading=tier)
    heard, reports = Pipe(duplex=False)
    with bench(tmp_path, monkeypatch, say_nothing, shared=True) as made:
        pid = os.fork()
        if pid == 0:  # a child changes its own limits
            code = 70
            try:
                test = SelfTest(scratch=made.settings.data_dir)
                code = WarmChild(given, made.makers)(pickle.dumps(test), reports)
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        said = heard.recv_bytes().decode()
    if makers_module.reading_tier() == "limits":
        assert (os.waitstatus_to_exitcode(status), words in said) == (code, True), said
