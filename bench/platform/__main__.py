"""`make bench ONLY=platform`: measure storage, queues, network and machines below the service."""

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bench.platform.clients import Clients
from bench.platform.rates import Point, Rate
from bench.platform.report import Report
from bench.platform.study import CLIENTS, Plan, Study
from bench.platform.tcp import AnswerServer
from swathmill.commands.shared.options import JsonOption, print_json
from swathmill.console import PlainConsole
from swathmill.deployment.az import Az
from swathmill.errors import ArgumentError, StackError
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
    TRANSFERS = "transfers"
    FILES = "files"
    REDIS = "redis"
    TCP = "tcp"
    SQL = "sql"
    INSTANCES = "instances"


_OF_STORAGE = (Experiment.BLOBS, Experiment.TABLES, Experiment.QUEUE, Experiment.TRANSFERS)


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
            "starts one here.",
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
    sql: Annotated[str, typer.Option(help="Database, as an URL of SQLAlchemy.")] = "",
    group: Annotated[
        str,
        typer.Option(help="Resource group in which virtual machines are made. They cost money."),
    ] = "",
    instances: Annotated[int, typer.Option(min=1, help="Number of these machines.")] = 4,
    only: Annotated[
        list[Experiment] | None, typer.Option(help="Leave out the others. May be repeated.")
    ] = None,
    clients: Annotated[
        str, typer.Option(help="Numbers of clients at once, separated by commas.")
    ] = ",".join(map(str, CLIENTS)),
    seconds: Annotated[
        float, typer.Option(min=0.1, help="How long the clients of one measurement work.")
    ] = Plan.seconds,
    blob_mb: Annotated[float, typer.Option(min=0.001, help="MB of the blob.")] = 8.0,
    transfer_mb: Annotated[
        str, typer.Option(help="MB of the files whose transfers are swept, separated by commas.")
    ] = "2,20,64",
    as_json: JsonOption = False,
) -> None:
    """Measure what the platform can do, by the experiments of the ModisAzure team's study.

    Whatever is named is measured: blobs, tables, queue and transfers of a storage account; another
    store; Redis; the network between two machines; a database; virtual machines. Everything is made
    under names of its own and deleted at the end.
    """
    plan = Plan(
        clients=tuple(int(number) for number in _numbers("clients", clients, whole=True)),
        seconds=seconds,
        blob=int(blob_mb * 1e6),
        transfers=tuple(int(mb * 1e6) for mb in _numbers("transfer-mb", transfer_mb)),
    )
    settings = Settings()
    storage = storage or settings.storage.get_secret_value()
    redis = redis or settings.redis_url.get_secret_value()
    if storage.startswith(EMBEDDED):
        storage = ""  # files of one machine: there is no platform to measure
    host, port = _address(tcp)
    console = PlainConsole(stderr=as_json)
    named = {
        **dict.fromkeys(_OF_STORAGE, storage),
        Experiment.FILES: files,
        Experiment.REDIS: redis,
        Experiment.TCP: tcp,
        Experiment.SQL: sql,
        Experiment.INSTANCES: group,
    }
    wanted = [one for one in Experiment if one in (only or Experiment) and named[one]]
    _check(wanted, only or ())
    report = Report(out)
    rates: list[Rate] = []

    def done(point: Point) -> None:
        rates.append(report.add(point))
        console.print(_line(rates[-1]), markup=False)

    with ExitStack() as stack:
        study = Study(clients=stack.enter_context(Clients()), plan=plan, done=done)
        account = stack.enter_context(_azurite()) if storage == "azurite" else storage
        server = stack.enter_context(_redis()) if redis == "local" else redis
        runs: dict[Experiment, Callable[[], None]] = {
            Experiment.BLOBS: lambda: study.blobs(account),
            Experiment.TABLES: lambda: study.tables(account),
            Experiment.QUEUE: lambda: study.queue(account),
            Experiment.TRANSFERS: lambda: study.transfers(account),
            Experiment.FILES: lambda: study.files(files),
            Experiment.REDIS: lambda: study.redis(server),
            Experiment.TCP: lambda: study.tcp(host, port),
            Experiment.SQL: lambda: study.sql(sql),
            Experiment.INSTANCES: lambda: study.instances(Az(Path.cwd()), group, instances),
        }
        for one in wanted:
            with _named_errors(one):
                runs[one]()
    written = report.finish()
    if as_json:
        print_json(rates)
    else:
        console.print("Written: " + ", ".join(map(str, written)), markup=False)


@APP.command()
def answer(
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen at.")] = 7007,
    as_json: JsonOption = False,
) -> None:
    """Answer the questions of `measure --tcp HOST:PORT` until Ctrl-C."""
    with AnswerServer(host, port) as server:
        if as_json:
            print_json({"host": host, "port": port})
        typer.echo(f"Answers at {host}:{port}. Ctrl-C ends it.", err=as_json)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("Ended.", err=as_json)


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
    return "--group" if experiment is Experiment.INSTANCES else f"--{experiment}"


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
    """Run a command; say what is wrong with it in a line."""
    try:
        APP()
    except (ArgumentError, StackError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
