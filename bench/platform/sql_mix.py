"""A mix of transactions like TPC-E's, on any database that SQLAlchemy reaches.

A brokerage house: customers have accounts, accounts trade securities. Seven of TPC-E's transactions
run in its proportions, over small tables and without its rules of pacing and scaling. So the
figures compare databases with one another, and not with published results of TPC-E.
"""

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    func,
    insert,
    make_url,
    select,
    update,
)
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from bench.platform.clients import OneCall
from tasks.bag.categories import Category
from tasks.service.classify import AttemptError

CUSTOMERS, ACCOUNTS, SECURITIES, TRADES = 1000, 5000, 685, 50_000
_PREFIX = "swathmill_study_"
_SOME = 20

METADATA = MetaData()
CUSTOMER = Table(
    f"{_PREFIX}customer",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("name", String(40)),
)
ACCOUNT = Table(
    f"{_PREFIX}account",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("customer", Integer, index=True),
    Column("balance", Float),
)
SECURITY = Table(
    f"{_PREFIX}security",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("price", Float),
)
TRADE = Table(
    f"{_PREFIX}trade",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("account", Integer, index=True),
    Column("security", Integer, index=True),
    Column("quantity", Integer),
    Column("price", Float),
    Column("state", String(10), index=True),
)


@contextmanager
def filled(url: str) -> Iterator[None]:
    """Make the tables and their first rows; drop them at the end."""
    chance = random.Random(1)
    engine = _engine(url)
    METADATA.drop_all(engine)
    METADATA.create_all(engine)
    try:
        with engine.begin() as connection:
            connection.execute(
                insert(CUSTOMER), [{"id": n, "name": f"customer {n}"} for n in range(CUSTOMERS)]
            )
            connection.execute(
                insert(ACCOUNT),
                [{"id": n, "customer": n % CUSTOMERS, "balance": 1e6} for n in range(ACCOUNTS)],
            )
            connection.execute(
                insert(SECURITY), [{"id": n, "price": 10.0 + n} for n in range(SECURITIES)]
            )
            connection.execute(insert(TRADE), [_trade(chance, "done") for _ in range(TRADES)])
        yield
    finally:
        METADATA.drop_all(engine)
        engine.dispose()


@dataclass(frozen=True, kw_only=True)
class SqlCalls:
    """Each client runs one transaction after another, drawn from the mix."""

    url: str

    @contextmanager
    def open(self, client: int) -> Iterator[Iterator[OneCall]]:
        """Connect one client."""
        chance = random.Random(client)
        engine = _engine(self.url)
        with engine.connect() as connection:
            yield _draw(connection, chance)
        engine.dispose()


def _draw(connection: Connection, chance: random.Random) -> Iterator[OneCall]:
    kinds = list(MIX)
    while True:
        (kind,) = chance.choices(kinds, [MIX[one] for one in kinds])

        def run(kind: Transaction = kind) -> int:
            try:
                with connection.begin():
                    kind(connection, chance)
            except OperationalError as error:
                category = Category.OPERATION_TIMEOUT
                if error.connection_invalidated:
                    category = Category.CONNECTION_FAILURE
                raise AttemptError(category, str(error)) from error
            return 0

        yield run


def kind_of(url: str) -> str:
    """Return the kind of database that an URL names, such as postgresql."""
    return make_url(url).get_backend_name()


DRIVERS = {"postgresql": "postgresql+psycopg", "mssql": "mssql+pymssql"}
"""The drivers of requirements-drivers.lock, for URLs that name none."""
_FOLDER = str(
    Path(__file__).parents[2] / "build" / "drivers"
)  # apart from .venv, as the Makefile has it


def _engine(url: str) -> Engine:
    named = make_url(url)
    if named.drivername in DRIVERS:
        named = named.set(drivername=DRIVERS[named.drivername])
    if _FOLDER not in sys.path:
        sys.path.append(_FOLDER)
    # Whether it knows comments is nothing to us, and Babelfish ends the connection that asks.
    own = {"supports_comments": False} if named.get_backend_name() == "mssql" else {}
    return create_engine(named, poolclass=NullPool, **own)


def _trade(chance: random.Random, state: str) -> dict[str, int | float | str]:
    return {
        "account": chance.randrange(ACCOUNTS),
        "security": chance.randrange(SECURITIES),
        "quantity": chance.choice((100, 200, 400, 800)),
        "price": chance.uniform(10.0, 700.0),
        "state": state,
    }


Transaction = Callable[[Connection, random.Random], object]


def trade_order(connection: Connection, chance: random.Random) -> None:
    """Order a trade, at the security's price."""
    trade = _trade(chance, "ordered")
    price = select(SECURITY.c.price).where(SECURITY.c.id == trade["security"])
    trade["price"] = connection.execute(price).scalar_one()
    connection.execute(insert(TRADE), trade)


def trade_result(connection: Connection, chance: random.Random) -> None:
    """Complete an order: the trade is done, and the account pays."""
    del chance
    order = connection.execute(select(TRADE).where(TRADE.c.state == "ordered").limit(1)).first()
    if order is None:
        return
    connection.execute(update(TRADE).where(TRADE.c.id == order.id).values(state="done"))
    paid = ACCOUNT.c.balance - order.quantity * order.price
    connection.execute(update(ACCOUNT).where(ACCOUNT.c.id == order.account).values(balance=paid))


def trade_status(connection: Connection, chance: random.Random) -> None:
    """Read the latest trades of an account."""
    account = TRADE.c.account == chance.randrange(ACCOUNTS)
    connection.execute(select(TRADE).where(account).order_by(TRADE.c.id.desc()).limit(50)).all()


def customer_position(connection: Connection, chance: random.Random) -> None:
    """Read a customer's accounts, and what each is worth."""
    worth = func.sum(TRADE.c.quantity * SECURITY.c.price)
    found = (
        select(ACCOUNT.c.id, ACCOUNT.c.balance, worth)
        .join(TRADE, TRADE.c.account == ACCOUNT.c.id)
        .join(SECURITY, SECURITY.c.id == TRADE.c.security)
        .where(ACCOUNT.c.customer == chance.randrange(CUSTOMERS))
        .group_by(ACCOUNT.c.id, ACCOUNT.c.balance)
    )
    connection.execute(found).all()


def market_watch(connection: Connection, chance: random.Random) -> None:
    """Read the prices of some securities."""
    some = chance.sample(range(SECURITIES), _SOME)
    connection.execute(select(SECURITY).where(SECURITY.c.id.in_(some))).all()


def trade_lookup(connection: Connection, chance: random.Random) -> None:
    """Read the trades of a security."""
    security = TRADE.c.security == chance.randrange(SECURITIES)
    connection.execute(select(TRADE).where(security).limit(_SOME)).all()


def market_feed(connection: Connection, chance: random.Random) -> None:
    """Write new prices of some securities, in one order: clients never wait in a circle."""
    for security in sorted(chance.sample(range(SECURITIES), _SOME)):
        change = SECURITY.c.price * chance.uniform(0.99, 1.01)
        connection.execute(update(SECURITY).where(SECURITY.c.id == security).values(price=change))


MIX: dict[Transaction, float] = {
    trade_order: 10.1,
    trade_result: 10.0,
    trade_status: 19.0,
    customer_position: 13.0,
    market_watch: 18.0,
    trade_lookup: 8.0,
    market_feed: 1.0,
}
"""The share of each transaction, in TPC-E's proportions."""
