"""The message server beside a real Redis: the same answers to the same commands."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
from redis.exceptions import AuthenticationError, ResponseError, WatchError
from redis.lock import Lock

from swathmill.stack import message_server as message_server_module
from swathmill.stack.message_data import CommandError, MessageData
from swathmill.stack.message_server import LARGEST_FROM_STRANGER, listen, take_command
from swathmill.stack.redis_server import RedisServer
from tasks.messages import host_limits, wanted_slots
from tests.own_loop import served_on_own_loop

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def message_server() -> Iterator[str]:
    """The URL of a message server in a thread."""
    with served_on_own_loop(lambda: listen(0, "secret")) as port:
        yield f"redis://:secret@127.0.0.1:{port}/0"


def test_it_stands_in_where_no_redis_is_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    asked = RedisServer.on_free_port(folder=tmp_path, log=tmp_path / "log").spec()
    assert asked.argv[-1] == message_server_module.__name__
    program = tmp_path / "valkey-server"
    program.touch(mode=0o700)
    asked = RedisServer.on_free_port(folder=tmp_path, log=tmp_path / "log").spec()
    assert asked.argv[0] == str(program)


SCRIPTS = {
    text: redis.Redis().register_script(text).sha
    for text in (
        *(host_limits.TAKE, host_limits.RENEW),
        *(wanted_slots.RESIZE, Lock.LUA_RELEASE_SCRIPT),
    )
}
TAKE, RENEW, RESIZE, RELEASE = SCRIPTS.values()
COMMANDS: tuple[tuple[str | int | float, ...], ...] = (
    ("LPUSH", "list", "b", "a"),
    ("RPUSH", "list", "c", "d", "e"),
    *(
        ("LRANGE", "list", first, last)
        for first, last in ((0, -1), (1, 2), (-9, 9), (4, 1), (9, 9))
    ),
    *(("RPOP", "list"), ("LPOP", "list"), ("LLEN", "list")),
    *(("LTRIM", "list", -9, -1), ("LTRIM", "list", -2, -1), ("LRANGE", "list", 0, -1)),
    *(("BRPOP", "none", "list", 1), ("BLPOP", "list", 0), ("BRPOP", "list", 0.01)),
    *(("EXISTS", "list", "none"), ("LTRIM", "none", 0, 3), ("RPOP", "none"), ("LLEN", "none")),
    *(("SADD", "set", "x", "y"), ("SADD", "set", "y", "z"), ("SREM", "set", "x", "y", "w")),
    *(("SMEMBERS", "set"), ("SCARD", "set"), ("SMEMBERS", "none")),
    *(("HSET", "hash", "f", "1", "g", "2"), ("HSET", "hash", "f", "3"), ("HGET", "hash", "f")),
    *(("HGET", "hash", "none"), ("HDEL", "hash", "f", "none"), ("HDEL", "hash", "g")),
    ("EXISTS", "hash"),
    *(("ZADD", "scores", 1.5, "m", 3, "o", 2, "n"), ("ZADD", "scores", 2.5, "m")),
    *(("ZREVRANGEBYSCORE", "scores", 2.5, 0), ("ZCARD", "scores"), ("ZREM", "scores", "n", "q")),
    ("ZREVRANGEBYSCORE", "scores", 9, 0, "LIMIT", 1, 5, "WITHSCORES"),
    ("ZRANGE", "scores", 9, 0, "BYSCORE", "REV", "WITHSCORES"),
    *(("SET", "word", "one"), ("SET", "word", "two", "NX"), ("GET", "word"), ("GET", "none")),
    *(("SET", "lock", "mine", "NX", "PX", 60000), ("SET", "lock", "yours", "NX", "PX", 60000)),
    *(("EVALSHA", RELEASE, 1, "lock", one) for one in ("yours", "mine", "mine")),
    *(("EXPIRE", "word", 60), ("EXPIRE", "none", 60), ("EXPIRE", "word", -1), ("GET", "word")),
    *(("EVALSHA", RESIZE, 1, "wanted", size) for size in (3, 1)),
    *(("LRANGE", "wanted", 0, -1), ("EVALSHA", RESIZE, 1, "wanted", 0), ("EXISTS", "wanted")),
    *(("EVALSHA", TAKE, 2, "at", "next", 2, 1e-9, 30, who) for who in ("p", "q", "r")),
    *(("EVALSHA", RENEW, 1, "at", 30, who) for who in ("p", "unknown")),
    *(("ZCARD", "at"), ("DEL", "at", "next", "none"), ("PING",), ("SELECT", 0)),
    *(("EVALSHA", TAKE, 2, "at", "next", 1, 1e-9, -1, who) for who in ("gone", "comes")),
    *(("LPUSH", "set", "1"), ("LPUSH",), ("EVALSHA", "0" * 40, 0), ("LRANGE", "list", "x", 0)),
)
"""What is asked of both, in this order."""


def answers(url: str, version: int) -> list[object]:
    """Return what each command is answered, of an error its kind."""
    found: list[object] = []
    with redis.Redis.from_url(url, protocol=version) as client:
        client.delete(*{str(word) for command in COMMANDS for word in command[1:2]}, "next")
        for text, digest in SCRIPTS.items():
            assert client.script_load(text) == digest
        for command in COMMANDS:
            try:
                answer = client.execute_command(*command)
            except ResponseError as error:
                answer = type(error)
            found.append(sorted(answer) if command[0] == "SMEMBERS" else answer)
    return found


def test_it_answers_as_redis_does(redis_server: str, message_server: str) -> None:
    for version in (2, 3):  # of the protocol: newer clients begin with the second one
        ours, theirs = (answers(url, version) for url in (message_server, redis_server))
        differ = [one for one in zip(COMMANDS, ours, theirs, strict=True) if one[1] != one[2]]
        assert differ == []


def test_the_pause_between_requests_and_the_end_of_a_key() -> None:
    now = [100.0]
    data = MessageData(lambda: now[0])
    take = ("EVALSHA", TAKE, "2", "at", "next", "9", "0.5", "30")
    assert run(data, *take, "p") == b"0"
    assert float(run(data, *take, "q")) == pytest.approx(0.5)  # type: ignore[arg-type]
    now[0] += 0.6
    assert run(data, *take, "q") == b"0"
    now[0] += 32
    assert run(data, "EXISTS", "at", "next") == 0
    with pytest.raises(CommandError, match="unknown command 'FLUSHALL'"):
        run(data, "FLUSHALL")


def run(data: MessageData, *words: str) -> object:
    return data.run([word.encode() for word in words])


def test_transactions_hold_unless_what_they_watch_has_changed(message_server: str) -> None:
    with redis.Redis.from_url(message_server) as client, client.pipeline() as pipe:
        assert pipe.rpush("t", "1").llen("t").delete("t").execute() == [1, 1, 1]
        for changes in (False, True):
            pipe.watch("watched")
            if changes:
                client.hset("watched", "f", "1")
            pipe.multi()
            pipe.hset("watched", "g", "2")
            if changes:
                with pytest.raises(WatchError):
                    pipe.execute()
            else:
                assert pipe.execute() == [1]
        assert client.hget("watched", "f") == b"1"


def spoken(url: str, *commands: Sequence[bytes]) -> socket.socket:
    """Connect, and send commands."""
    connection = socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), timeout=10)
    for words in commands:
        strings = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
        connection.sendall(b"*%d\r\n%b" % (len(words), strings))
    return connection


def test_a_message_comes_to_who_waits_and_lives(message_server: str) -> None:
    password = (urlsplit(message_server).password or "").encode()
    wait = ((b"AUTH", password), (b"BRPOP", b"queue", b"0"), (b"PING",))
    with redis.Redis.from_url(message_server) as client:
        spoken(message_server, *wait).close()
        got: list[object] = []
        waiter = threading.Thread(target=lambda: got.append(client.brpop(["queue"], 10)))
        waiter.start()
        with redis.Redis.from_url(message_server) as sender:
            sender.rpush("queue", "m")
        waiter.join()
        assert got == [(b"queue", b"m")]
        # What was sent meanwhile is answered after it.
        with spoken(message_server, *wait) as connection:
            client.rpush("queue", "n")
            heard = bytearray()
            while not heard.endswith(b"PONG\r\n"):
                heard += connection.recv(99)
        assert heard == b"+OK\r\n*2\r\n$5\r\nqueue\r\n$1\r\nn\r\n$4\r\nPONG\r\n"


def test_a_stranger_gets_nothing(message_server: str) -> None:
    wrong = message_server.replace("//:", "//:wrong")
    without = f"redis://{message_server.rpartition('@')[2]}"
    for version, url in product((2, 3), (wrong, without)):
        client = redis.Redis.from_url(url, protocol=version)
        with pytest.raises(AuthenticationError):
            client.ping()
        client.close()
    for said in (
        b"*1\r\n$%d\r\n" % 10**9 + b"x" * LARGEST_FROM_STRANGER,
        b"GET / HTTP/1.1\r\n\r\n",
    ):
        with spoken(message_server) as connection:
            connection.sendall(said)
            with suppress(ConnectionResetError):
                assert connection.recv(9) == b""
    with spoken(message_server, (b"GET", b"word")) as connection:
        assert connection.recv(99).startswith(b"-NOAUTH")


def test_a_command_is_taken_when_it_is_whole() -> None:
    whole = b"*2\r\n$3\r\nGET\r\n$0\r\n\r\n"
    for cut in range(len(whole)):
        read = bytearray(whole[:cut])
        assert take_command(read) is None
        assert read == whole[:cut]
    read = bytearray(whole + b"*1")
    assert take_command(read) == [b"GET", b""]
    assert read == b"*1"
    for wrong in (b"*0\r\n", b"*-1\r\n", b"+OK\r\n", b"*1\r\n$-1\r\n", b"*1\r\n:1\r\n", b"*x\r\n"):
        with pytest.raises(ValueError, match=r"[*+:$x]"):
            take_command(bytearray(wrong))
