"""The mix of transactions runs on SQLite and PostgreSQL, and is written for SQL Server."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
from sqlalchemy import Connection, Executable, make_url
from sqlalchemy.schema import CreateTable
from sqlalchemy.sql import ClauseElement

from bench.platform import sql_mix
from bench.platform.clients import Clients
from bench.platform.figures import committed
from bench.platform.rates import Point, rate
from bench.platform.sql_mix import METADATA, MIX, kind_of
from bench.platform.study import Plan, Study
from tests.bench.postgres import postgres_server, program

DRIVERS = Path(sql_mix._FOLDER)
DIALECT = make_url("mssql+pymssql://host/database").get_dialect()()


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    if program("initdb") is None:
        pytest.skip("PostgreSQL is not installed")
    if not DRIVERS.is_dir():
        pytest.skip("build/drivers is not there: `make test` fills it")
    with postgres_server() as url:
        yield url


@pytest.mark.proof
@pytest.mark.integration
@pytest.mark.slow
def test_the_mix_runs_on_postgresql_beside_sqlite(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have all clients' transactions, and one figure with a line for each."""
    monkeypatch.setattr("bench.platform.sql_mix.TRADES", 500)
    points: list[Point] = []
    plan = Plan(clients=(1, 4), seconds=0.5)
    urls = [postgres, f"sqlite:///{tmp_path / 'database'}"]
    with Clients() as clients:
        Study(clients=clients, plan=plan, done=points.append).sql(urls)
    made = {(one.operation, one.clients): one for one in points}
    assert set(made) == {(kind, n) for kind in ("postgresql", "sqlite") for n in (1, 4)}
    of_postgres = [one for one in points if one.operation == "postgresql"]
    assert not any(call.failure for one in of_postgres for call in one.calls)
    figure = committed(tmp_path / "committed.svg", [rate(one) for one in points])
    text = figure.read_text()
    assert "<!-- postgresql, mean -->" in text
    assert "<!-- sqlite, mean -->" in text


@pytest.mark.proof
@pytest.mark.integration
def test_a_database_that_refuses_is_an_error_and_not_a_result(postgres: str) -> None:
    with Clients() as clients, pytest.raises(Exception, match="password authentication failed"):
        Study(clients=clients, plan=Plan(), done=lambda _: None).sql(
            [postgres.replace("study:", "study:not-")]
        )


@dataclass
class Row:
    id: int = 1
    account: int = 1
    quantity: int = 100
    price: float = 10.0


@dataclass
class Answer:
    def scalar_one(self) -> float:
        return 10.0

    def first(self) -> Row:
        return Row()

    def all(self) -> list[Row]:
        return [Row()]


@dataclass
class Written:
    """Writes each statement as SQL Server would be sent it."""

    statements: list[str] = field(default_factory=list)

    def execute(self, statement: Executable, _values: object = None) -> Answer:
        compiled = cast("ClauseElement", statement).compile(dialect=DIALECT)
        self.statements.append(str(compiled))
        return Answer()


def test_the_mix_is_written_for_sql_server() -> None:
    """No server of it runs here: each statement compiles, and says TOP where others have LIMIT."""
    written = Written()
    for transaction in MIX:
        transaction(cast("Connection", written), random.Random(1))
    assert len(written.statements) >= len(MIX)
    assert not [one for one in written.statements if "LIMIT" in one]
    assert sum("TOP " in one for one in written.statements) == 3
    tables = [str(CreateTable(one).compile(dialect=DIALECT)) for one in METADATA.tables.values()]
    # Keys of trades are the database's, all others are ours.
    assert sum("IDENTITY" in one for one in tables) == 1


def test_a_server_of_sql_server_is_not_asked_what_it_does_not_need_to_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Babelfish answers a question for comments with an error, and the transaction is over."""
    monkeypatch.setattr("bench.platform.sql_mix.create_engine", lambda _url, **words: words)
    assert (
        cast("dict[str, object]", sql_mix._engine("mssql://host/database"))["supports_comments"]
        is False
    )
    assert "supports_comments" not in cast("dict[str, object]", sql_mix._engine("sqlite://"))


def test_a_kind_of_database_has_its_driver() -> None:
    urls = ("postgresql://h/d", "postgresql+psycopg://h/d", "mssql://h/d", "sqlite://")
    assert [kind_of(one) for one in urls] == ["postgresql", "postgresql", "mssql", "sqlite"]
