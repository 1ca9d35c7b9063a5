"""What a seed makes of plans and requests."""

from dataclasses import dataclass
from random import Random

from tasks.bag.kinds import Spec
from tasks.bag.spec import CollectSpec, GridSpec, Input, MosaicSpec, ReduceSpec
from tasks.requests.plan import Plan, PlannedTask

CELL = "cell"
"""What the names of cells begin with."""

GRID = GridSpec(crs="EPSG:4326", transform=(1, 0, 0, 0, -1, 0), width=8, height=8)


@dataclass
class Scenario:
    """What a seed makes of plans and requests."""

    plans: dict[str, Plan]
    policies: dict[str, str]
    never: frozenset[str]
    crashes: dict[str, str]  # what runs of reductions say when they fail, by key
    first: frozenset[str] = frozenset()  # runs of the first step that requests of steps share

    @classmethod
    def of(
        cls, random: Random, *, steps: bool = False, host: str = "", large: bool = False
    ) -> "Scenario":
        """Plans over a common pool of granules and cells, so that requests share tasks.

        With `steps` all requests are for reductions of several steps. Granules come from `host`, if
        there is one. A `large` one has some 70 tasks.
        """
        size = random.choice([1, 1, 3])  # some have up to 50 tasks
        size = 5 if large else size
        days = random.choice([1, 1, 3])  # the tasks of a day are a family
        granules: list[Spec] = [
            _collect(granule, host)
            for i in range(random.randint(2, 7 * size))
            for granule in [f"g{i}.A200000{random.randint(1, days)}"]
        ]
        cells: list[Spec] = [
            _over(f"cell{i}", random.sample(granules, random.randint(1, min(3, len(granules)))))
            for i in range(random.randint(1, 6 * size))
        ]
        tops: list[Spec] = [
            _over(f"top{i}", random.sample(cells, random.randint(1, min(4, len(cells)))))
            for i in range(random.randint(1, 3 * size + 1))
        ]
        if random.random() < 0.3:
            tops.append(_over("peak", random.sample(tops, random.randint(1, len(tops)))))
        runs: list[Spec] = []
        if random.random() < 0.4:
            runs = [_run(n, random.choice(cells)) for n in range(random.randint(4, 20))]
            for i in range(random.randint(1, 2)):
                some = random.sample(runs, random.randint(1, len(runs)))
                tops.append(_over(f"reduced{i}", some))
        crashes = _crashes(random, runs)
        everything = {spec.key: spec for spec in [*granules, *cells, *runs, *tops]}
        plans: dict[str, Plan] = {}
        policies: dict[str, str] = {}
        for i in range(random.randint(1, 4)):
            wanted = random.sample(tops, random.randint(1, len(tops)))
            plans[f"plan{i}"] = _plan(wanted, everything)
            policies[f"plan{i}"] = "fail" if random.random() < 0.2 else "skip"
        # Apart, so that histories without steps stay as they are.
        apart = Random(f"steps {sorted(everything)}")
        first: frozenset[str] = frozenset()
        if steps or apart.random() < 0.25:
            if steps:
                plans, policies = {}, {}
            first, failing = _add_steps(apart, everything, cells, plans, policies)
            crashes |= failing
        never = [s.key for s in granules if random.random() < random.choice([0.0, 0.0, 0.25])]
        return cls(
            plans=plans, policies=policies, never=frozenset(never), crashes=crashes, first=first
        )


def one_of_many_rasters(random: Random) -> Scenario:
    """One request of many rasters, each of some cells; the rasters of a date share granules."""
    order: list[PlannedTask] = []
    layers = random.choice([1, 2, 4])
    cells = random.randint(3, 4)
    for day in range(1, 1 + random.randint(76, 88) // layers):
        granules: list[Spec] = [_collect(f"g{i}.A2000{day:03d}", "") for i in range(2)]
        order += [PlannedTask(spec=granule) for granule in granules]
        for layer in range(layers):
            some = [_over(f"{CELL}{day}.{layer}.{i}", granules) for i in range(cells)]
            order += [PlannedTask(spec=cell) for cell in some]
            name = f"top{day}.{layer}"
            order.append(PlannedTask(spec=_over(name, some), output=name))
    plans = {"plan0": Plan(tasks=tuple(order))}
    return Scenario(plans=plans, policies={"plan0": "skip"}, never=frozenset(), crashes={})


def _add_steps(
    random: Random,
    everything: dict[str, Spec],
    cells: list[Spec],
    plans: dict[str, Plan],
    policies: dict[str, str],
) -> tuple[frozenset[str], dict[str, str]]:
    """Add requests for reductions of several steps that share the first.

    Returns the keys of its runs, and what those say that fail.
    """
    first: list[Spec] = [_run(100 + n, random.choice(cells)) for n in range(random.randint(2, 8))]
    everything |= {spec.key: spec for spec in first}
    for request in range(random.choice([2, 2, 3])):
        given, wanted = first, random.sample(first, random.choice([0, 0, 1]))
        for step in range(random.choice([1, 1, 2])):
            groups = [
                _over(
                    f"group{request}.{step}.{n}",
                    random.sample(given, random.randint(1, len(given))),
                )
                for n in range(random.randint(1, 3))
            ]
            given = [_run(1000 * (request + 1) + 10 * step + n, g) for n, g in enumerate(groups)]
            everything |= {spec.key: spec for spec in [*groups, *given]}
        last = _over(f"last{request}", given)
        everything[last.key] = last
        plans[f"steps{request}"] = _plan([*wanted, last], everything)
        policies[f"steps{request}"] = random.choice(["skip", "skip", "fail"])
    failing = {run.key: "odd" for run in first if random.random() < 0.3}
    return frozenset(run.key for run in first), failing


def _collect(granule: str, host: str) -> CollectSpec:
    spec = CollectSpec(product="MOD13A2", collection="6", granule=granule, production="1")
    more = {"source": "pool", "url": f"https://{host}/{granule}"} if host else {}
    return spec.model_copy(update=more)


def _run(number: int, given: Spec) -> ReduceSpec:
    return ReduceSpec(
        inputs=(Input(key=given.key),),
        package="own",
        digest="own",
        outputs=("own.tif",),
        parameters={"number": str(number)},
    )


def _crashes(random: Random, runs: list[Spec]) -> dict[str, str]:
    """All runs fail alike, or some do, or each in its own words."""
    if random.random() < 0.5:
        return {run.key: "no module named scipy" for run in runs}
    some = [run for run in runs if random.random() < 0.6]
    alike = random.random() < 0.7
    return {run.key: "odd" if alike else f"odd {run.key[-4:]}" for run in some}


def _over(name: str, inputs: list[Spec]) -> Spec:
    ordered = sorted(inputs, key=lambda s: s.key)
    return MosaicSpec(name=name, grid=GRID, inputs=tuple(Input(key=i.key) for i in ordered))


def _plan(wanted: list[Spec], everything: dict[str, Spec]) -> Plan:
    order: dict[str, Spec] = {}

    def visit(spec: Spec) -> None:
        for given in spec.inputs:
            visit(everything[given.key])
        order[spec.key] = spec

    for spec in wanted:
        visit(spec)
    outputs = {spec.key for spec in wanted}
    return Plan(
        tasks=tuple(
            PlannedTask(spec=spec, output=f"out/{key[-6:]}" if key in outputs else "")
            for key, spec in order.items()
        )
    )
