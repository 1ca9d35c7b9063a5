"""What became of requests of several steps in a history, to be counted over many."""

from collections import Counter
from itertools import combinations

from tasks.bag.model import RequestState, State
from tests.simulation.actors import Client
from tests.simulation.scenario import Scenario
from tests.simulation.watch import Watch


def steps_met(scenario: Scenario, client: Client | None, watch: Watch) -> Counter[str]:
    """Count requests of steps by what happened to them, and pairs that shared runs of step 1."""
    met: Counter[str] = Counter()
    if client is None:
        return met
    mine = {r: title for r, title in client.submitted.items() if title.startswith("steps")}
    done: dict[str, set[str]] = {}
    for request, title in mine.items():
        row = watch.ended.get(request)
        if row is None:
            continue
        met["requests"] += 1
        met["requests cancelled"] += request in client.cancelled
        met["requests retried"] += request in client.retried
        met[f"requests that ended {row.state.value}"] += 1
        own = {task.key for task in scenario.plans[title].tasks} & scenario.first
        states = {key: watch.tasks[key].state for key in own if key in watch.tasks}
        if State.FAILED in states.values():
            met[f"requests with a failed run of step 1, policy {scenario.policies[title]}"] += 1
        if row.state in (RequestState.COMPLETE, RequestState.GAPS):
            done[request] = {key for key, state in states.items() if state is State.DONE}
    pairs = combinations(sorted(done), 2)
    met["pairs that share a run of step 1"] += sum(bool(done[a] & done[b]) for a, b in pairs)
    met["histories with a request of steps"] += bool(met["requests"])
    return +met
