"""The whole stack of one machine, over one data folder."""

import datetime as dt
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from processes import handed_over
from processes.one_thread import use_one_thread
from swathmill.errors import StackError
from swathmill.stack import forked, interruption, ports, storage
from swathmill.stack.azurite import Account, AzuriteServer
from swathmill.stack.children import ChildSpec
from swathmill.stack.folder import DataFolder, DiskUse, FolderLock, Secrets, StackState
from swathmill.stack.redis_server import RedisServer
from swathmill.stack.storage import Storage
from swathmill.stack.supervisor import LONGEST_PAUSE_SECONDS, Supervisor
from tasks.secret_settings import is_secret
from tasks.settings import Settings

READY_SECONDS = 60.0
DISK_CHECK_SECONDS = 30.0
MAIL_CATCHER = "swathmill.stack.mail_catcher"
_FORKED = {
    "portal": "portal.__main__",
    "service_manager": "service_manager.__main__",
    MAIL_CATCHER: MAIL_CATCHER,
}
"""The modules that have `main()`, of what can be forked."""
SERVERS = ("mail", "redis", "azurite")
"""What the other processes use until their end."""


@dataclass(frozen=True, kw_only=True)
class StackOptions:
    """The options of a stack.

    `archive` is the folder or URL of the granules, or empty. `storage` None takes what the folder
    holds; a new folder gets embedded storage. Of several `managers` one acts and the
    others stand by. `portal_port` 0 uses any free port. `grace_seconds` is the time that running
    attempts have when the stack stops. `give_up_after` is how many times in a row a child may end
    soon after its start; 0 means no limit. `longest_pause` limits the seconds before such a child
    is started again. With `fork`, the portal, the managers and the mail catcher are first started
    as forks of this process, which must have one thread then. `via` maps a port of Azurite or Redis
    to the port that the processes use: a test may put something between them.
    """

    folder: DataFolder
    archive: str
    storage: Storage | None = None
    workers: int = 1
    managers: int = 1
    slots: int = 0
    portal_port: int = 0
    catch_mail: bool = True
    grace_seconds: float = 30.0
    give_up_after: int = 0
    longest_pause: float = LONGEST_PAUSE_SECONDS
    fork: bool = False
    via: Callable[[int], int] = lambda port: port
    settings: Settings


class Stack:
    """Starts, looks after and stops all processes of one machine's stack.

    They are Redis, the mail catcher, the service managers, the workers and the portal, and Azurite
    where it keeps the data. Use it from the main thread: `start`, `tick` often, `stop`.
    """

    def __init__(
        self,
        options: StackOptions,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._say = say
        self._clock = clock
        self._supervisor = Supervisor(clock=clock, longest_pause=options.longest_pause)
        self._lock = FolderLock(options.folder)
        self._locked = False
        self._state = StackState()
        self._env: Mapping[str, str] = {}  # of all services, without secrets
        self._azurite: AzuriteServer | None = None  # where it keeps the data
        self._next_disk_check = 0.0
        self._out_of_disk = False
        self._awaited: list[Callable[[], None]] = []

    @property
    def portal_url(self) -> str:
        """The portal's address."""
        return self._state.portal_url

    @property
    def supervisor(self) -> Supervisor:
        """The children and their records."""
        return self._supervisor

    @property
    def worker_names(self) -> list[str]:
        """The names of the worker children."""
        return [f"worker-{number}" for number in range(1, self._options.workers + 1)]

    @property
    def manager_names(self) -> list[str]:
        """The names of the service managers; they decide among themselves which of them acts."""
        return ["manager", *(f"manager-{n}" for n in range(2, self._options.managers + 1))]

    def start(self) -> None:
        """Start everything, and wait until it answers; a failure leaves nothing.

        Raises:
            StackError: names the part, its output, and what to do.
        """
        self.launch()
        self.await_ready()

    def begin(self) -> None:
        """Start the workers, which take longest; `launch` or `kill` has to follow.

        Raises:
            StackError: as `start`.
        """
        use_one_thread()  # of what is imported from here on
        folder = self._options.folder
        if any(is_secret(name, value) for name, value in os.environ.items()):
            handed_over.know()
        folder.prepare()
        kind = storage.choose(folder, self._options.storage)
        self._refuse_full_disk(folder.disk_use(self._options.settings.disk_quota_gb))
        self._lock.__enter__()
        self._locked = True
        with self._nothing_left():
            self._begin(folder, kind)

    def launch(self) -> None:
        """Start all processes, side by side; `await_ready` has to follow.

        Raises:
            StackError: as `start`.
        """
        if not self._locked:
            self.begin()
        with self._nothing_left():
            self._start_services()

    def await_ready(self) -> None:
        """Wait until what was launched answers.

        Raises:
            StackError: as `start`.
        """
        with self._nothing_left():
            for wait in self._awaited:
                wait()
            self._supervisor.tick()
            self._refuse_settings()
            self._options.folder.write_state(self._state)

    @contextmanager
    def _nothing_left(self) -> Iterator[None]:
        """End everything where the start fails."""
        try:
            yield
        except BaseException:
            self.kill()
            raise

    def tick(self) -> None:
        """Look after the children, their logs and the disk; call it several times a second.

        Raises:
            StackError: a child cannot work with its settings, or ended too often and the options
                say to give up.
            KeyboardInterrupt: the order to stop was given, and its exception was lost.
        """
        interruption.check()
        for sentence in self._supervisor.tick():
            self._tell(sentence)
        self._refuse_settings()
        self._give_up_on_hopeless()
        now = self._clock()
        if now >= self._next_disk_check:
            self._next_disk_check = now + DISK_CHECK_SECONDS
            self._options.folder.bound_logs()
            self._check_disk()

    def release_workers(self) -> None:
        """Ask the workers to stop, and return at once: nothing is left for them to do."""
        self._supervisor.release(self.worker_names)

    def begin_stop(self) -> None:
        """Ask the services to stop, and return at once; `stop` waits for them."""
        self._supervisor.ask_to_stop(self._services())

    def stop(self) -> None:
        """Stop the services, all at once, then the servers that they use; the data stay."""
        try:
            self._supervisor.stop((self._services(), SERVERS))
        finally:
            self._release()

    def _services(self) -> list[str]:
        return ["portal", *self.worker_names, *self.manager_names]

    def kill(self) -> None:
        """End everything at once; interrupted work is repeated after the next start."""
        self._supervisor.kill()
        self._release()

    def _begin(self, folder: DataFolder, kind: Storage) -> None:
        """Start Azurite, if it keeps the data, and the workers, which wait for their secrets."""
        before = folder.state()
        portal_port = self._choose_portal_port(before)
        redis = RedisServer.on_free_port(
            folder=folder.redis,
            log=folder.log("redis"),
            preferred=[before.redis_port] if before.redis_port else [],
        )
        if kind is Storage.AZURITE:
            self._azurite = self._start_azurite(folder, self._secrets().account, before)
        smtp_port = ports.choose(1, preferred=[before.smtp_port] if before.smtp_port else [])[0]
        self._redis = redis
        self._state = StackState(
            pid=os.getpid(),
            azurite_ports=self._azurite.ports if self._azurite else (),
            redis_port=redis.port,
            smtp_port=smtp_port,
            portal_port=portal_port,
            portal_url=f"http://{ports.LOOPBACK}:{portal_port}",
            archive=self._options.archive,
        )
        self._env = self._environment()
        for name in self.worker_names:
            self._service(
                name,
                "worker",
                {**self._env, "SWATHMILL_WORKER_NAME": name},
                takes=True,
                grace_seconds=self._options.grace_seconds + 10.0,
            )

    def _start_services(self) -> None:
        """Start managers, Redis, portal and mail catcher, each with the secrets that it uses.

        The managers come first: what reads granules for them is forked before this process has any
        secret.
        """
        self._load("service_manager")
        for name in self.manager_names:
            self._service(name, "service_manager", self._env, takes=True)
        env = self._hand_over()
        self._load("portal")
        self._service("portal", "portal", {**self._env, **env}, says_ready=True)
        if self._options.catch_mail:
            self._load(MAIL_CATCHER)
            self._start_mail_catcher(self._options.folder, self._state.smtp_port)

    def _hand_over(self) -> Mapping[str, str]:
        """Start Redis, give workers and managers their secrets; return those of the portal."""
        secrets, given = self._secrets(), self._options.settings
        if self._azurite:  # the services end where storage does not answer
            self._supervisor.child("azurite").wait_until(
                self._azurite.is_ready, limit_seconds=self._azurite.ready_seconds
            )
        redis = replace(self._redis, password=secrets.redis_password)
        self._supervisor.start(redis.spec(), fork=self._options.fork)
        answers = self._supervisor.child("redis").wait_until
        self._awaited.append(partial(answers, redis.is_ready, limit_seconds=READY_SECONDS))
        env = self._secret_environment(redis)
        for name in self.worker_names:
            self._supervisor.child(name).hand_over(env)
        signs = {**env, "SWATHMILL_SECRET": given.secret.get_secret_value() or secrets.signing_key}
        sends = {**signs, "SWATHMILL_SMTP_PASSWORD": given.smtp_password.get_secret_value()}
        for name in self.manager_names:
            self._supervisor.child(name).hand_over(sends)
        return signs

    def _secrets(self) -> Secrets:
        """Read the folder's secrets: from here on, no fork of this process is without them."""
        handed_over.know()
        return self._options.folder.secrets()

    def _load(self, module: str) -> None:
        """Import what a service is forked from, while others start."""
        if self._options.fork:
            forked.load(_FORKED[module])

    def _start_azurite(
        self, folder: DataFolder, account: Account, before: StackState
    ) -> AzuriteServer:
        server = AzuriteServer.on_free_ports(
            folder=folder.azurite,
            log=folder.log("azurite"),
            account=account,
            preferred=before.azurite_ports,
        )
        folder.azurite.mkdir(exist_ok=True)
        self._supervisor.start(server.spec())
        return server

    def _start_mail_catcher(self, folder: DataFolder, port: int) -> None:
        self._service(
            "mail",
            MAIL_CATCHER,
            {},
            arguments=("--port", str(port), "--folder", str(folder.mail)),
            says_ready=True,
        )

    def _choose_portal_port(self, before: StackState) -> int:
        wanted = self._options.portal_port
        preferred = wanted or before.portal_port
        (port,) = ports.choose(1, preferred=[preferred] if preferred else [])
        if wanted and port != wanted:
            raise StackError(
                f"Port {wanted} is taken, so the portal cannot listen there.",
                "Name another with --port, or leave it out to take a free one.",
            )
        return port

    def _environment(self) -> Mapping[str, str]:
        """Return what all services are told that is no secret."""
        state = self._state
        env = {
            "SWATHMILL_DATA_DIR": str(self._options.folder.path.resolve()),
            "SWATHMILL_ARCHIVE": state.archive,
            "SWATHMILL_PORTAL_URL": state.portal_url,
            "SWATHMILL_PORTAL_ADDRESS": f"{ports.LOOPBACK}:{state.portal_port}",
            "SWATHMILL_SLOTS": str(self._options.slots or _cores()),
            "SWATHMILL_GRACE_SECONDS": str(self._options.grace_seconds),
        }
        if self._options.catch_mail:
            env["SWATHMILL_SMTP_URL"] = f"smtp://{ports.LOOPBACK}:{state.smtp_port}"
        if not self._azurite:
            env["SWATHMILL_STORAGE"] = storage.embedded(self._options.folder)
        return env

    def _secret_environment(self, redis: RedisServer) -> Mapping[str, str]:
        """Return the secrets that all services are told, and where Azurite's data are."""
        via, azurite = self._options.via, self._azurite
        env = {
            "SWATHMILL_REDIS_URL": replace(redis, port=via(redis.port)).url,
            "SWATHMILL_EARTHDATA_TOKEN": self._options.settings.earthdata_token.get_secret_value(),
        }
        if azurite:
            reached = replace(azurite, ports=tuple(map(via, azurite.ports)))
            env["SWATHMILL_STORAGE"] = reached.connection_string
        return env

    def _probe_address(self, name: str) -> Mapping[str, str]:
        """Give each process a port of its own, from the one of the settings on."""
        address = self._options.settings.probe_address
        probed = ("portal", *self.manager_names, *self.worker_names)
        if not address or name not in probed:
            return {}
        host, _, first = address.rpartition(":")
        return {"SWATHMILL_PROBE_ADDRESS": f"{host}:{int(first) + probed.index(name)}"}

    def _service(
        self,
        name: str,
        module: str,
        env: Mapping[str, str],
        *,
        arguments: tuple[str, ...] = (),
        says_ready: bool = False,
        takes: bool = False,
        grace_seconds: float = 10.0,
    ) -> None:
        child = self._supervisor.start(
            ChildSpec(
                name=name,
                argv=(sys.executable, "-P", "-m", module, *arguments),
                env={**env, **self._probe_address(name), "PYTHONUNBUFFERED": "1"},
                log=self._options.folder.log(name),
                says_ready=says_ready,
                takes=takes,
                forks=(_FORKED[module], *arguments) if module in _FORKED else (),
                grace_seconds=grace_seconds,
            ),
            fork=self._options.fork,
        )
        if says_ready:
            self._awaited.append(partial(child.wait_ready, limit_seconds=READY_SECONDS))

    def _check_disk(self) -> None:
        use = self._options.folder.disk_use(self._options.settings.disk_quota_gb)
        if use.problem and not self._out_of_disk:
            self._out_of_disk = True
            self._tell(
                f"Work is paused: {use.problem}. Make room: work continues with {use.lacking}. "
                "A larger SWATHMILL_DISK_QUOTA_GB holds from the next start."
            )
            self._supervisor.pause(self.worker_names)
        elif self._out_of_disk and not use.lacking:
            self._out_of_disk = False
            self._tell("There is room again: work continues.")
            self._supervisor.resume(self.worker_names)

    def _refuse_settings(self) -> None:
        for name in self._supervisor.misconfigured():
            child = self._supervisor.child(name)
            raise StackError(
                f"{name} cannot work with these settings, so the stack stops. {child.last_line()}",
                "Correct the setting and start again; everything is kept.",
            )

    def _give_up_on_hopeless(self) -> None:
        limit = self._options.give_up_after
        for name in self._supervisor.names() if limit else ():
            if self._supervisor.falls(name) >= limit:
                child = self._supervisor.child(name)
                raise StackError(
                    f"{name} ended {limit} times in a row soon after its start.",
                    f"Its last words ({child.spec.log}):\n{child.log_tail()}",
                )

    def _tell(self, sentence: str) -> None:
        """Report a sentence to whoever watches, and write it to the stack's own log."""
        self._say(sentence)
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        with self._options.folder.log("stack").open("a") as log:
            log.write(f"{now} {sentence}\n")

    def _refuse_full_disk(self, use: DiskUse) -> None:
        if use.problem:
            raise StackError(
                f"The stack does not start: {use.problem} ({self._options.folder.path}).",
                "Make room, name another folder with --data, or set SWATHMILL_DISK_QUOTA_GB.",
            )

    def _release(self) -> None:
        if self._locked:
            self._lock.__exit__(None, None, None)
            self._locked = False


def _cores() -> int:
    """Count the processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
