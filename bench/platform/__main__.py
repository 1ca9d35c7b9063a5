"""`make bench ONLY=platform`: measure storage, queues, network and machines below the service."""

import datetime as dt
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated

import typer
from redis import Redis

from bench.platform.clients import Clients, Crowd
from bench.platform.engines import ENGINES, LOCAL, opened
from bench.platform.fleet import Fleet, gathered
from bench.platform.instances import SIZES, Kind, Nodes, ScaleSet
from bench.platform.merge import merged
from bench.platform.rates import Point, Rate
from bench.platform.report import Report
from bench.platform.study import CLIENTS, Plan, Study
from bench.platform.tcp import AnswerServer
from swathmill.commands.fleet.engine import Engine
from swathmill.commands.shared.options import JsonOption, print_json
from swathmill.console import PlainConsole
from swathmill.deployment.az import Az
from swathmill.errors import ArgumentError, StackError
from swathmill.stack import interruption
from swathmill.stack.azurite import Account, AzuriteServer
from swathmill.stack.redis_server import RedisServer
from tasks.errors import SwathmillError
from tasks.secret_settings import EMBEDDED
from tasks.settings import Settings


class Experiment(StrEnum):
    """What is measured."""

    BLOBS = "blobs"
    TABLES = "tables"
    QUEUE = "queue"
    PARTITION = "partition"
    LENGTHS = "lengths"
    TRANSFERS = "transfers"
    SIZES = "sizes"
    NODES = "nodes"
    FILES = "files"
    REDIS = "redis"
    TCP = "tcp"
    SQL = "sql"
    INSTANCES = "instances"


_OF_STORAGE = (
    *(Experiment.BLOBS, Experiment.TABLES, Experiment.PARTITION, Experiment.QUEUE),
    *(Experiment.LENGTHS, Experiment.TRANSFERS, Experiment.SIZES, Experiment.NODES),
)


_IN_FILES = (Experiment.BLOBS, Experiment.TABLES, Experiment.PARTITION, Experiment.NODES)
"""What embedded storage has, too."""
IN_FILES = "embedded"


def _in_files(storage: str) -> bool:
    return storage == IN_FILES or storage.startswith(EMBEDDED)


APP = typer.Typer(
    help="Measure the platform below the service.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@APP.command()
def measure(
    out: Annotated[Path, typer.Option(help="Folder for CSV files and plots.")],
    storage: Annotated[
        str,
        typer.Option(
            help="Storage account as SWATHMILL_STORAGE names one, which is the default; `azurite` "
            "starts one here, `embedded` makes files here.",
            show_default=False,
        ),
    ] = "",
    files: Annotated[
        str, typer.Option(help="Folder of a store that fsspec reaches: s3://bucket/folder.")
    ] = "",
    redis: Annotated[
        str,
        typer.Option(
            help="Redis as SWATHMILL_REDIS_URL names it, which is the default; `local` starts one "
            "here.",
            show_default=False,
        ),
    ] = "",
    tcp: Annotated[
        str,
        typer.Option(
            help="HOST:PORT of a machine that runs `python -m bench.platform answer`, or `local`."
        ),
    ] = "",
    sql: Annotated[
        list[str] | None,
        typer.Option(help="Database, as an URL of SQLAlchemy. May be repeated."),
    ] = None,
    group: Annotated[
        str,
        typer.Option(help="Resource group in which virtual machines are made. They cost money."),
    ] = "",
    machines: Annotated[
        str, typer.Option(help="Sizes of these machines, separated by commas.")
    ] = ",".join(SIZES),
    starts: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Nodes whose starts are measured, as NAME=ENGINE, such as small=local:runner. "
            f"Engines: {', '.join(ENGINES)}. May be repeated."
        ),
    ] = None,
    instances: Annotated[int, typer.Option(min=1, help="Number of machines or nodes.")] = 4,
    only: Annotated[
        list[Experiment] | None, typer.Option(help="Leave out the others. May be repeated.")
    ] = None,
    clients: Annotated[
        str, typer.Option(help="Numbers of clients at once, separated by commas.")
    ] = ",".join(map(str, CLIENTS)),
    seconds: Annotated[
        float, typer.Option(min=0.1, help="How long the clients of one measurement work.")
    ] = Plan.seconds,
    scale: Annotated[
        float,
        typer.Option(
            min=1e-6,
            max=1,
            help="Of the source's amounts: calls a client, rows, messages, bytes, files. 1: all.",
        ),
    ] = Plan.scale,
    seed: Annotated[int, typer.Option(help="Decides the order of all measurements.")] = Plan.seed,
    fleet: Annotated[
        int,
        typer.Option(
            min=0,
            max=192,
            help="Nodes on which the clients run, in place of threads of this machine.",
        ),
    ] = 0,
    meet: Annotated[
        str,
        typer.Option(
            help="Redis at which nodes on other machines meet, one of the study's own; without it "
            "nodes are processes here.",
            envvar="SWATHMILL_STUDY_REDIS",
        ),
    ] = "",
    engine: Annotated[
        str,
        typer.Option(
            help="Engine that starts the nodes of --fleet, as `swathmill fleet` names one; without "
            "it they are started by hand, with --meet, or here.",
            show_default=False,
        ),
    ] = "",
    name: Annotated[str, typer.Option("--study", help="Name by which nodes meet.")] = "study",
    as_json: JsonOption = False,
) -> None:
    """Measure what the platform can do, by the experiments of the ModisAzure team's study.

    Whatever is named is measured: blobs, tables, queue and transfers of a storage account; another
    store; Redis; the network between two machines; a database; virtual machines. Everything is made
    under names of its own and deleted at the end. The same seed gives the same order.
    """
    plan = Plan(
        clients=tuple(int(number) for number in _numbers("clients", clients, whole=True)),
        seconds=seconds,
        scale=scale,
        seed=seed,
    )
    settings = Settings()
    storage = storage or settings.storage.get_secret_value()
    redis = redis or settings.redis_url.get_secret_value()
    host, port = _address(tcp)
    console = PlainConsole(stderr=as_json)
    named = {
        **dict.fromkeys(_IN_FILES if _in_files(storage) else _OF_STORAGE, storage),
        Experiment.FILES: files,
        Experiment.REDIS: redis,
        Experiment.TCP: tcp,
        Experiment.SQL: sql,
        Experiment.INSTANCES: group or starts,
    }
    wanted = [one for one in Experiment if one in (only or Experiment) and named.get(one)]
    _check(wanted, only or ())
    rates: list[Rate] = []

    def done(point: Point) -> None:
        rates.append(report.add(point))
        console.print(_line(rates[-1]), markup=False)

    with ExitStack() as stack:
        nodes = _Nodes(stack, meet, name, lambda said: console.print(said, markup=False))
        kinds: list[Kind] = [
            ScaleSet(az=Az(Path.cwd()), group=group, machine=one)
            for one in machines.split(",")
            if group
        ]
        kinds += [nodes.kind(*_named_engine(one)) for one in starts or ()]
        crowd = nodes.crowd(fleet, engine)
        report = Report(out, _about(plan, wanted, fleet))
        study = Study(clients=crowd, plan=plan, done=done, timed=report.add_trials)
        account = stack.enter_context(_azurite()) if storage == "azurite" else storage
        server = stack.enter_context(_redis()) if redis == "local" else redis
        runs: dict[Experiment, Callable[[], None]] = {
            Experiment.BLOBS: lambda: study.blobs(account),
            Experiment.TABLES: lambda: study.tables(account),
            Experiment.QUEUE: lambda: study.queue(account),
            Experiment.PARTITION: lambda: study.partition(account),
            Experiment.LENGTHS: lambda: study.lengths(account),
            Experiment.TRANSFERS: lambda: study.transfers(account),
            Experiment.SIZES: lambda: study.sizes(account, files),
            Experiment.NODES: lambda: study.nodes(account),
            Experiment.FILES: lambda: study.files(files),
            Experiment.REDIS: lambda: study.redis(server),
            Experiment.TCP: lambda: study.tcp(host, port),
            Experiment.SQL: lambda: study.sql(sql or ()),
            Experiment.INSTANCES: lambda: study.instances(kinds, instances),
        }
        if _in_files(storage) and (some := [one for one in wanted if one in _IN_FILES]):
            wanted = [one for one in wanted if one not in some]
            with _named_errors(some[0]), _folder(storage) as folder:
                study.embedded(folder, some)
        for one in wanted:
            with _named_errors(one):
                runs[one]()
    written = report.finish()
    if as_json:
        print_json(rates)
    else:
        console.print("Written: " + ", ".join(map(str, written)), markup=False)


@APP.command()
def merge(
    out: Annotated[Path, typer.Option(help="Folder for the merged study.")],
    runs: Annotated[list[Path], typer.Argument(help="Folders of its runs.")],
    as_json: JsonOption = False,
) -> None:
    """Merge the runs of several days into one study: means, deviations, figures, course in time."""
    written = merged(out, runs)
    if as_json:
        print_json(written)
        return
    PlainConsole().print("Written: " + ", ".join(map(str, written)), markup=False)


@APP.command()
def answer(
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen at.")] = 7007,
    as_json: JsonOption = False,
) -> None:
    """Answer the questions of `measure --tcp HOST:PORT` until Ctrl-C."""
    with AnswerServer(host, port) as server:
        try:
            if as_json:
                print_json({"host": host, "port": port})
            typer.echo(f"Answers at {host}:{port}. Ctrl-C ends it.", err=as_json)
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("Ended.", err=as_json)


def _about(plan: Plan, wanted: list[Experiment], fleet: int) -> dict[str, object]:
    """Say how a study is made."""
    return {
        "began": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "experiments": [str(one) for one in wanted],
        "fleet": fleet,
        "machine": platform.platform(),
        "processors": os.cpu_count(),
        **asdict(plan),
    }


@dataclass
class _Nodes:
    """Opens engines of nodes as they are needed; they end with `stack`."""

    stack: ExitStack
    meet: str
    study: str
    say: Callable[[str], None]
    _url: str = ""

    def crowd(self, nodes: int, engine: str) -> Crowd:
        """Let clients run on nodes, or as threads of this machine's processes."""
        if not nodes:
            return self.stack.enter_context(Clients())
        where = engine or ("" if self.meet else LOCAL)
        return self.stack.enter_context(
            gathered(self._redis, self.study, nodes, self._open(where, self.study))
        )

    def kind(self, name: str, engine: str) -> Kind:
        """Return nodes whose starts are measured. Their study bears the kind's name, too."""
        study = f"{self.study}-{name}"
        where = self._open(engine, study)
        return Nodes(name=name, new=lambda: Fleet(redis=self._redis, study=study, engine=where))

    def _open(self, engine: str, study: str) -> Engine:
        redis = self._redis  # before: it ends after the nodes
        del redis
        return self.stack.enter_context(opened(engine, self._url, study, self.say))

    @cached_property
    def _redis(self) -> Redis:
        self._url = self.meet or self.stack.enter_context(_redis())
        redis: Redis = self.stack.enter_context(Redis.from_url(self._url))
        return redis


def _named_engine(text: str) -> tuple[str, str]:
    name, _, engine = text.partition("=")
    if not name or not engine:
        raise ArgumentError(
            f"--starts {text!r} is not NAME=ENGINE.", f"Engines: {', '.join(ENGINES)}."
        )
    return name, engine


def _check(wanted: list[Experiment], only: list[Experiment] | tuple[()]) -> None:
    if unnamed := [one for one in only if one not in wanted]:
        raise ArgumentError(
            f"--only {unnamed[0]}: nothing is named to measure.",
            f"Name it by {_option(unnamed[0])}.",
        )
    if not wanted:
        raise ArgumentError(
            "Nothing is named to measure.",
            "Name a storage account by --storage (azurite starts one here), or see --help.",
        )


def _option(experiment: Experiment) -> str:
    if experiment in _OF_STORAGE:
        return "--storage"
    return "--group or --starts" if experiment is Experiment.INSTANCES else f"--{experiment}"


@contextmanager
def _named_errors(experiment: Experiment) -> Iterator[None]:
    """Say which experiment failed, in one line."""
    try:
        yield
    except SwathmillError:
        raise
    except Exception as error:  # each library has errors of its own
        said = next(iter(str(error).splitlines()), "")
        raise StackError(
            f"The experiment {experiment} failed: {type(error).__name__}: {said}",
            f"Look whether {_option(experiment)} names the right place, and whether it answers.",
        ) from error


def _numbers(option: str, words: str, *, whole: bool = False) -> list[float]:
    try:
        found = [float(int(word) if whole else float(word)) for word in words.split(",")]
    except ValueError:
        found = []
    if not found or min(found) <= 0:
        raise ArgumentError(
            f"--{option} {words!r} is not a list of numbers above 0.", "Write it such as 1,8,64."
        )
    return found


def _address(tcp: str) -> tuple[str, int]:
    if tcp in ("", "local"):
        return "", 0
    host, _, port = tcp.rpartition(":")
    if not host or not port.isdigit():
        raise ArgumentError(f"--tcp {tcp!r} is not an address.", "Write HOST:PORT, or `local`.")
    return host, int(port)


def _line(found: Rate) -> str:
    size = f"{found.size:,} bytes" if found.size else ""
    failed = f"  {found.failed} failed" if found.failed else ""
    return (
        f"{found.experiment:9} {found.operation:20} {size:>17} {found.clients:4} clients "
        f"{found.per_second:10,.1f}/s {found.mb_per_second:9,.1f} MB/s  p50 "
        f"{1000 * found.p50:8,.2f} ms  p99 {1000 * found.p99:8,.2f} ms{failed}"
    )


@contextmanager
def _folder(storage: str) -> Iterator[Path]:
    """Yield the folder of embedded storage."""
    if storage != IN_FILES:
        yield Path(storage.removeprefix(EMBEDDED))
        return
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@contextmanager
def _azurite() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = AzuriteServer.on_free_ports(
            folder=folder / "data", log=folder / "azurite.log", account=Account.new()
        )
        child = server.start()
        try:
            yield server.connection_string
        finally:
            child.stop()


@contextmanager
def _redis() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = RedisServer.on_free_port(folder=folder, log=folder / "redis.log")
        child = server.start()
        try:
            yield server.url
        finally:
            child.stop()


def main() -> int:
    """Run a command; say what is wrong with it in a line. SIGTERM ends it as Ctrl-C does."""
    interruption.listen()
    try:
        APP()
    except (ArgumentError, StackError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
