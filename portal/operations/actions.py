"""What operators do: each action described before it happens, done once, and audited."""

from dataclasses import dataclass, replace
from enum import StrEnum

from portal.accounts import owners
from portal.serving.access import audited
from portal.serving.problems import BadCallError, NotFoundError, NotNowError
from tasks.accounts import session_table
from tasks.accounts.token_table import TokenTable
from tasks.bag import workers
from tasks.bag.model import Phase, RequestOrder, RequestState, State
from tasks.bag.runtime import Runtime
from tasks.bag.task_keys import is_key
from tasks.bag.workers import Ask, Hold, WorkerRow
from tasks.operators import audit, manager_rows, restrictions
from tasks.operators.restrictions import Kind, Restriction
from tasks.requests import request_operations
from tasks.requests.request_operations import NoSuchRequestError
from tasks.requests.request_table import RequestRow, RequestTable
from tasks.storage.schema import QUOTAS_OF_ALL, written

_LARGEST = 1_000_000  # of a limit, in attempts, and of a quota, in hours


class Action(StrEnum):
    """What an operator may do, besides retries."""

    DRAIN = "drain worker"
    RELEASE = "release worker"
    KILL = "kill attempt"
    CANCEL = "cancel request"
    PAUSE_PHASE = "pause phase"
    RESUME_PHASE = "resume phase"
    PAUSE_OWNER = "pause owner"
    RESUME_OWNER = "resume owner"
    LIMIT_PHASE = "limit phase"
    LIMIT_OWNER = "limit owner"
    QUOTA_OWNER = "set quota of owner"
    QUOTA_PACKAGE = "set quota of package"
    QUOTA_ALL = "set quota of all"
    END_SESSIONS = "end sessions of owner"
    END_OPERATOR = "end operator rights of owner"


_RESTRICTS = {
    Action.PAUSE_PHASE: Kind.PAUSE_PHASE,
    Action.PAUSE_OWNER: Kind.PAUSE_OWNER,
    Action.LIMIT_PHASE: Kind.LIMIT_PHASE,
    Action.LIMIT_OWNER: Kind.LIMIT_OWNER,
    Action.QUOTA_OWNER: Kind.QUOTA_OWNER,
    Action.QUOTA_PACKAGE: Kind.QUOTA_PACKAGE,
    Action.QUOTA_ALL: Kind.QUOTA_ALL,
}
_LIFTS = {Action.RESUME_PHASE: Kind.PAUSE_PHASE, Action.RESUME_OWNER: Kind.PAUSE_OWNER}
_OF_PHASES = (Action.PAUSE_PHASE, Action.RESUME_PHASE, Action.LIMIT_PHASE)
_QUOTAS = (Action.QUOTA_OWNER, Action.QUOTA_PACKAGE, Action.QUOTA_ALL)
_VALUED = (Action.LIMIT_PHASE, Action.LIMIT_OWNER, *_QUOTAS)


@dataclass(frozen=True, kw_only=True)
class Order:
    """An action on something, with a value for limits and quotas; an empty value lifts them."""

    action: Action
    subject: str
    value: str = ""

    @property
    def text(self) -> str:
        """The order in words."""
        return f"{self.action.value} {self.subject}" + (f": {self.value}" if self.value else "")

    @property
    def number(self) -> float | None:
        """Return the value as a number; None if it is empty.

        Raises BadCallError, which says what it may be.
        """
        if not self.value:
            return None
        whole = self.action not in _QUOTAS
        try:
            number = float(int(self.value)) if whole else float(self.value)
        except ValueError:
            number = -1.0
        if not (0 if not whole else 1) <= number <= _LARGEST:
            wanted = "a whole number from 1" if whole else "a number of hours from 0"
            raise BadCallError(
                f"The value is {self.value!r}.",
                f"Give {wanted} to {_LARGEST:,}, or nothing to lift it.",
                field="value",
            )
        return number


def describe(runtime: Runtime, order: Order) -> tuple[str, ...]:
    """Say what an order would do, in sentences, before it is given.

    Raises PortalError where it cannot be given; StoreError.
    """
    match order.action:
        case Action.DRAIN:
            return _drain_words(runtime, _worker(runtime, order.subject))
        case Action.RELEASE:
            worker = _worker(runtime, order.subject)
            why = "It is not held."
            if worker.needed:
                why = f"It was slow, and takes attempts while too few others do: {worker.hold_why}"
            elif worker.hold is not Hold.NONE:
                why = f"It is held ({worker.hold.value}): {worker.hold_why}"
            return (why, f"It takes new attempts again, in all its {worker.slots} slots.")
        case Action.KILL:
            worker, attempt = _attempt(runtime, order.subject)
            return (
                f"{attempt.task_class} has run on {worker.name} for {attempt.started_ago:.0f} s.",
                "One attempt is killed, and its task is tried again at once. This does not "
                "count as a try.",
            )
        case Action.CANCEL:
            row = _request(runtime, order.subject)
            counts = row.phases.values()
            left = sum(count.left for count in counts)
            return (
                f"{row.title or row.id} of {row.owner} is {row.state.value}.",
                f"{left:,} unfinished tasks are withdrawn, unless others want them. Finished "
                "results stay. It cannot be taken back.",
            )
        case Action.END_SESSIONS:
            number = len(TokenTable(runtime.store).of(order.subject))
            return (
                f"Whoever is signed in as {order.subject} is signed out in all browsers, and "
                "sign-in links made until now are refused.",
                f"{number} tokens for programs are revoked. Requests go on.",
            )
        case Action.END_OPERATOR:
            return (
                f"{order.subject} is no operator any more, in all browsers and programs, from the "
                "next call on.",
                "Sessions and tokens go on with a scientist's rights. An operator's come back by "
                f"`swathmill sign-in {order.subject} --role operator`, and by signing in at the "
                "OpenID provider as a member of the groups of operators.",
            )
    return _restriction_words(runtime, order)


def act(runtime: Runtime, who: str, order: Order, reason: str) -> audit.AuditRow:
    """Do what an order says, once, and write it into the audit, whose row it returns.

    Raises PortalError where it cannot be done; StoreError.
    """
    with audited(runtime, who, order.action.value, _named(order), reason) as record:
        record.result = _do(runtime, who, order, reason)
    return replace(record.entry, result=record.result)


def _named(order: Order) -> str:
    return f"{order.subject}: {order.value}" if order.value else order.subject


def _do(runtime: Runtime, who: str, order: Order, reason: str) -> str:
    store, clock = runtime.store, runtime.clock
    match order.action:
        case Action.DRAIN | Action.RELEASE:
            worker = _worker(runtime, order.subject)
            ask = Ask.DRAIN if order.action is Action.DRAIN else Ask.RELEASE
            why = f"Drained by {who}{': ' if reason else ''}{reason}."
            workers.ask(store, clock, worker.name, ask, why)
            return "the manager has been asked; its next look does it"
        case Action.KILL:
            worker, attempt = _attempt(runtime, order.subject)
            workers.order_move(store, clock, worker.name, attempt.claim, who)
            return f"{worker.name} has been ordered to kill it with its next heartbeat"
        case Action.CANCEL:
            row = _request(runtime, order.subject)
            request_operations.order(runtime, row.id, RequestOrder.CANCEL)
            return f"request {row.id} of {row.owner} is being cancelled"
        case Action.END_SESSIONS:
            session_table.end_all(store, clock, order.subject)
            number = TokenTable(store).revoke_all(order.subject)
            return f"signed out in all browsers; {number} tokens revoked"
        case Action.END_OPERATOR:
            session_table.end_operator(store, clock, order.subject)
            return "no operator any more"
    kind = _kind(order)
    lifts = order.action in _LIFTS or (order.action in _VALUED and order.number is None)
    _check_subject(runtime, order)
    if lifts:
        return "lifted" if restrictions.lift(store, clock, kind, order.subject) else "was not set"
    new = Restriction(
        kind=kind,
        subject=order.subject,
        value=order.number or 0.0,
        by=who,
        since=clock.now(),
        reason=reason,
    )
    restrictions.put(store, new)
    return "set"


def _kind(order: Order) -> Kind:
    return (_RESTRICTS | _LIFTS)[order.action]


def _check_subject(runtime: Runtime, order: Order) -> None:
    if order.action in _OF_PHASES and order.subject not in {phase.value for phase in Phase}:
        raise BadCallError(
            f"There is no phase {order.subject!r}.",
            f"Name one of {', '.join(Phase)}.",
            field="subject",
        )
    if order.action is Action.QUOTA_ALL and order.subject != restrictions.ALL:
        raise BadCallError(
            f"The subject is {order.subject!r}.",
            f"A quota of the whole service is one of {restrictions.ALL!r}.",
            field="subject",
        )
    if not order.subject:
        raise BadCallError("Nobody and nothing is named.", "Name one.", field="subject")
    if order.action in (Action.QUOTA_PACKAGE, Action.QUOTA_ALL):
        if written() < QUOTAS_OF_ALL:
            raise NotNowError(
                "Processes of the build before this one may run, which know no such quota.",
                "End the upgrade first: swathmill upgrade --finish.",
            )
        return
    if order.action in _OF_PHASES or order.action in _LIFTS:
        return
    others = owners.spellings(runtime, order.subject)
    if others and not owners.has_requests(runtime, order.subject):
        raise BadCallError(
            f"No request is {order.subject}'s.", f"Name {' or '.join(others)}.", field="subject"
        )


def _restriction_words(runtime: Runtime, order: Order) -> tuple[str, ...]:
    _check_subject(runtime, order)
    of_phase = order.action in _OF_PHASES
    if order.action in _QUOTAS:
        return _quota_words(runtime, order)
    what = f"phase {order.subject}" if of_phase else f"owner {order.subject}"
    waiting = (_waiting_in_phase if of_phase else _waiting_of_owner)(runtime, order.subject)
    if order.action in _LIFTS:
        return (f"New attempts of {what} are started again.", waiting)
    number = order.number
    if order.action in _VALUED and number is None:
        return (f"No number is given: the limit of {what} is removed.", waiting)
    going_on = f"Running attempts will finish: {_running(runtime, order)} now."
    if order.action in _VALUED:
        most = f"At most {number:,.0f} attempts of {what} are sent and running at once."
        return (most, going_on, waiting)
    return (
        f"No new attempt of {what} is started until it is resumed.",
        going_on,
        waiting,
        "Requests wait where they need this phase."
        if of_phase
        else "Tasks that other owners want, too, run on their account as they become ready.",
    )


def _quota_words(runtime: Runtime, order: Order) -> tuple[str, ...]:
    """Say what a quota would do: nothing that is over it is lost."""
    number, kind = order.number, _kind(order)
    what, whose = {
        Action.QUOTA_OWNER: (f"owner {order.subject}", "the owner's requests wait"),
        Action.QUOTA_PACKAGE: (
            f"package {order.subject}, whoever pushed it,",
            "requests that run the package wait",
        ),
    }.get(order.action, ("the whole service", "all requests wait"))
    of_owner = order.action is Action.QUOTA_OWNER
    waiting = (_waiting_of_owner(runtime, order.subject),) if of_owner else ()
    used = restrictions.spent_hours(runtime.store, (kind, order.subject), runtime.clock.now())
    spent = f"{used:,.2f} hours of one slot were used this month."
    if number is None:
        return (f"No number is given: the quota of {what} is removed.", spent, *waiting)
    waits = f" That is more: {whose} from now on." if used >= number else ""
    return (
        f"Attempts of {what} may take {number:,g} hours of one slot in a calendar month; what "
        "is over waits for the next one.",
        spent + waits,
        *waiting,
    )


def _waiting_in_phase(runtime: Runtime, phase: str) -> str:
    """Say how many tasks of a phase wait, as the acting manager knows."""
    rows = manager_rows.managers(runtime.store, runtime.clock.now())
    ready = sum(
        queue.ready
        for row in rows
        if row.acts
        for queue in row.queues
        if queue.phase.value == phase
    )
    return f"Tasks that are ready and wait: {ready:,}."


def _waiting_of_owner(runtime: Runtime, owner: str) -> str:
    """Say how many tasks of an owner's requests are unfinished."""
    rows = list(owners.unfinished(runtime, owner))
    left = sum(count.left for row in rows for count in row.phases.values())
    if rows:
        requests = "1 request has" if len(rows) == 1 else f"{len(rows):,} requests have"
        return f"{requests} not ended, with {left:,} unfinished tasks."
    known = owners.has_requests(runtime, owner)
    return "All requests of this owner have ended." if known else "This owner has no request yet."


def _running(runtime: Runtime, order: Order) -> int:
    """Count the running attempts of an order's phase or owner, as workers tell."""
    running = [one for worker in workers.list_workers(runtime.store) for one in worker.attempts]
    if order.action in _OF_PHASES:
        return sum(one.phase.value == order.subject for one in running)
    tasks = runtime.tasks.tasks_of_all(one.key for one in running)
    sponsors = {task.sponsor for task in tasks.values()}
    rows = (RequestTable(runtime.store).request(name) for name in sponsors)
    owned = {row.id for row in rows if row is not None and row.owner == order.subject}
    return sum(task.sponsor in owned for task in tasks.values())


def _drain_words(runtime: Runtime, worker: WorkerRow) -> tuple[str, ...]:
    others = [
        one
        for one in workers.list_workers(runtime.store)
        if one.name != worker.name and not one.hold.value and not one.draining
    ]
    words = (
        "It takes no new attempt until an operator releases it.",
        f"Running attempts will finish: {len(worker.attempts)} now.",
    )
    return words if others else (*words, "No other worker takes attempts: all work stops.")


def _worker(runtime: Runtime, name: str) -> WorkerRow:
    found = next((one for one in workers.list_workers(runtime.store) if one.name == name), None)
    if found is None:
        raise NotFoundError(f"There is no worker {name!r}.", "See the list of workers.")
    return found


def _attempt(runtime: Runtime, key: str) -> tuple[WorkerRow, workers.RunningAttempt]:
    task = runtime.tasks.task(key) if is_key(key) else None
    if task is None:
        raise NotFoundError(f"There is no task {key!r}.", "See the running attempts.")
    for worker in workers.list_workers(runtime.store):
        for attempt in worker.attempts:
            if task.state is State.RUNNING and attempt.claim == task.claim:
                return worker, attempt
    raise NotNowError("No worker runs this task now.", "See the running attempts.")


def _request(runtime: Runtime, name: str) -> RequestRow:
    try:
        row = request_operations.row_of(runtime, name)
    except NoSuchRequestError:
        raise NotFoundError(f"There is no request {name!r}.", "See the list of requests.") from None
    if row.state.ended or row.state is RequestState.CANCELLING:
        raise NotNowError(
            f"Request {row.id} is {row.state.value}.",
            "Only a request that has not ended can be cancelled.",
        )
    return row
