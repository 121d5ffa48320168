"""Random clusters, cascade problems and legal plans, seeded and as hypothesis strategies.

The seeded builders and the strategies share one generator: a strategy only hands it hypothesis'
own random source, so that a failing example shrinks.
"""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import strategies as st

from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import Cascade, CascadeProblem, Option, Task
from arachne_opt.cluster import Cluster, DeviceType, Link, Node, TopologyPenalty, ZoneLink
from arachne_opt.units import scale_up

GIB = 2**30
FAST = DeviceType(
    name="Fast-80",
    memory_bytes=80 * GIB,
    peak_flops_per_s=10**15,
    memory_bandwidth_bytes_per_s=3 * 10**12,
)
SLOW = DeviceType(
    name="Slow-40",
    memory_bytes=40 * GIB,
    peak_flops_per_s=3 * 10**14,
    memory_bandwidth_bytes_per_s=15 * 10**11,
)
INTRA = Link(bandwidth_bytes_per_s=450 * 10**9, latency_us=5)
INTER = Link(bandwidth_bytes_per_s=50 * 10**9, latency_us=20)
FAR = Link(bandwidth_bytes_per_s=2 * 10**9, latency_us=900)
STAGES = (("denoise",), ("encode", "denoise"), ("text", "encode", "denoise"))


# ------------------------------------------------------------------------------ fixed, by hand


def even_cluster(
    nodes: int = 1, devices: int = 4, *, nic_size: int = 2, kind: DeviceType = FAST
) -> Cluster:
    """Equal nodes in one zone, with NIC groups of ``nic_size`` devices."""
    nics = tuple(d // nic_size for d in range(devices))
    rows = tuple(
        Node(
            name=f"n{i}",
            device_type=kind,
            nic_of_device=nics,
            numa_of_nic=tuple(n % 2 for n in range(nics[-1] + 1)),
            intra_link=INTRA,
        )
        for i in range(nodes)
    )
    return Cluster(name=f"even{nodes}x{devices}", nodes=rows, inter_link=INTER)


def simple_task(
    name: str,
    durations_us: dict[int, int],
    *,
    after: tuple[int, ...] = (),
    input_bytes: int = 0,
    memory_bytes: int = GIB,
) -> Task:
    """A task with one option per degree, for every device type."""
    options = tuple(
        Option(degree=k, duration_us=d, memory_bytes=memory_bytes) for k, d in durations_us.items()
    )
    return Task(name=name, options=options, predecessors=after, input_bytes=input_bytes)


def two_stage(
    name: str, encode_us: dict[int, int], denoise_us: dict[int, int], *, input_bytes: int = 0
) -> Cascade:
    """The usual cascade: encode, then denoise."""
    denoise = simple_task("denoise", denoise_us, after=(0,), input_bytes=input_bytes)
    return Cascade(id=name, tasks=(simple_task("encode", encode_us), denoise), label=name)


# ------------------------------------------------------------------------------ seeded, random


def random_cluster(rng: random.Random, *, max_nodes: int = 4, max_devices: int = 8) -> Cluster:
    """1 to ``max_nodes`` nodes of one or two device types, equal or unequal, in 1 to 3 zones."""
    kinds = rng.choice(((FAST,), (SLOW,), (FAST, FAST), (FAST, SLOW), (FAST, SLOW)))
    models = [_random_node(rng, kind, max_devices) for kind in kinds]
    zones = ("a", "b", "c")[: rng.choice((1, 1, 2, 3))]
    nodes = tuple(
        replace(rng.choice(models), name=f"n{i}", zone=rng.choice(zones))
        for i in range(rng.randint(1, max_nodes))
    )
    used = sorted({node.zone for node in nodes})
    links = [
        ZoneLink(zones=(a, b), link=replace(FAR, latency_us=rng.randint(100, 2000)))
        for a in used
        for b in used
        if a < b and rng.random() < 0.7
    ]
    penalty = rng.choice((TopologyPenalty(), TopologyPenalty(scale=0.5, decay=3.0)))
    return Cluster(
        name=f"random{rng.randint(0, 999)}",
        nodes=nodes,
        inter_link=INTER,
        zone_links=tuple(links),
        penalty=penalty,
    )


def random_problem(
    seed: int,
    *,
    max_nodes: int = 4,
    max_devices: int = 8,
    max_cascades: int = 6,
    feasible: bool = True,
    restricted: bool = True,
) -> CascadeProblem:
    """A problem that a seed decides; every task has a usable option unless asked otherwise.

    ``max_devices`` counts per node; ``feasible=False`` gives one task an appetite that no device
    can satisfy; ``restricted=False`` leaves out forbidden devices and pins, which a few have.
    """
    rng = random.Random(seed)
    problem = build_problem(
        rng,
        max_nodes=max_nodes,
        max_devices=max_devices,
        max_cascades=max_cascades,
        restricted=restricted,
    )
    problem = replace(problem, name=f"random_{seed}")
    return problem if feasible else _starve(problem, rng)


def build_problem(
    rng: random.Random,
    *,
    max_nodes: int = 4,
    max_devices: int = 8,
    max_cascades: int = 6,
    restricted: bool = True,
) -> CascadeProblem:
    """A feasible problem from a random source."""
    cluster = random_cluster(rng, max_nodes=max_nodes, max_devices=max_devices)
    shapes = [_random_tasks(rng, cluster) for _ in range(rng.randint(1, max_cascades))]
    count = rng.randint(1, max_cascades)
    cascades = []
    for i in range(count):
        shape = rng.randrange(len(shapes))
        cascades.append(Cascade(id=f"c{i}", tasks=shapes[shape], label=f"shape{shape}"))
    problem = CascadeProblem(
        name="random",
        cluster=cluster,
        cascades=tuple(cascades),
        cost_version="random",
        tail_us=rng.choice((0, 0, 0, rng.randint(1, 10**6))),
    )
    if restricted and rng.random() < 0.2:
        problem = _count_residents(rng, problem)
    if restricted and rng.random() < 0.2:
        problem = _forbid(rng, problem)
    if restricted and rng.random() < 0.2:
        problem = _pin(rng, problem)
    if restricted and rng.random() < 0.2:
        problem = _offer_recomputation(rng, problem)
    return problem


def seeded_plan(problem: CascadeProblem, seed: int = 0) -> CascadePlan:
    """A legal plan: tasks in random order on random groups, each as early as its devices allow.

    Left-shifted, but far from good. Needs a feasible problem; uses no solver.
    """
    rng = random.Random(seed)
    cluster = problem.cluster
    free_us = dict.fromkeys(range(cluster.device_count), 0)
    done: dict[tuple[int, int], Placement] = {}
    todo = [(c, t) for c, t, _ in problem.tasks()]
    while todo:
        ready = [(c, t) for c, t in todo if all((c, p) in done for p in _before(problem, c, t))]
        c, t = rng.choice(ready)
        todo.remove((c, t))
        task = problem.cascades[c].tasks[t]
        option, group = _random_group(rng, problem, task)
        start_us = max(free_us[d] for d in group)
        for p in task.predecessors:
            moved_us = cluster.handoff_us(task.input_bytes, done[c, p].devices, group)
            start_us = max(start_us, done[c, p].end_us + moved_us)
        end_us = start_us + scale_up(option.duration_us, cluster.penalty_ppm(group))
        done[c, t] = Placement(
            cascade=c,
            task=t,
            devices=group,
            start_us=start_us,
            end_us=end_us,
            recompute=option.recompute,
        )
        free_us.update(dict.fromkeys(group, end_us))
    return CascadePlan(problem_name=problem.name, placements=tuple(done.values()))


def renumber(problem: CascadeProblem, seed: int) -> CascadeProblem:
    """The same problem with nodes and cascades in another order and under other names."""
    rng = random.Random(seed)
    nodes = [replace(n, name=f"host-{i}") for i, n in enumerate(problem.cluster.nodes)]
    cascades = [
        replace(c, id=f"other-{i}", label=f"label {i}") for i, c in enumerate(problem.cascades)
    ]
    rng.shuffle(nodes)
    rng.shuffle(cascades)
    links = list(problem.cluster.zone_links)
    rng.shuffle(links)
    turned = tuple(ZoneLink(zones=(z.zones[1], z.zones[0]), link=z.link) for z in links)
    cluster = replace(
        problem.cluster, name=f"renumbered{seed}", nodes=tuple(nodes), zone_links=turned
    )
    return _move_devices(problem, cluster, tuple(cascades), f"renumbered{seed}")


def _move_devices(
    problem: CascadeProblem, cluster: Cluster, cascades: tuple[Cascade, ...], name: str
) -> CascadeProblem:
    """A problem on a cluster whose node ``host-i`` was node i, with the devices' new numbers."""
    number = {
        old: new
        for n, node in enumerate(cluster.nodes)
        for old, new in zip(
            problem.cluster.devices_of_node(int(node.name.removeprefix("host-"))),
            cluster.devices_of_node(n),
            strict=True,
        )
    }

    def moved(task: Task) -> Task:
        pin = task.allowed_devices
        return replace(task, allowed_devices=pin and tuple(number[d] for d in pin))

    return replace(
        problem,
        name=name,
        cluster=cluster,
        cascades=tuple(replace(c, tasks=tuple(map(moved, c.tasks))) for c in cascades),
        forbidden_devices=tuple(number[d] for d in problem.forbidden_devices),
    )


# --------------------------------------------------------------------------------- strategies


def clusters(*, max_nodes: int = 4, max_devices: int = 8) -> st.SearchStrategy[Cluster]:
    """Random clusters."""
    return st.randoms(use_true_random=False).map(
        lambda rng: random_cluster(rng, max_nodes=max_nodes, max_devices=max_devices)
    )


def problems(
    *, max_nodes: int = 4, max_devices: int = 8, max_cascades: int = 6
) -> st.SearchStrategy[CascadeProblem]:
    """Random feasible problems."""
    return st.randoms(use_true_random=False).map(
        lambda rng: build_problem(
            rng, max_nodes=max_nodes, max_devices=max_devices, max_cascades=max_cascades
        )
    )


@st.composite
def problems_with_plans(
    draw: st.DrawFn, *, max_nodes: int = 4, max_devices: int = 8, max_cascades: int = 6
) -> tuple[CascadeProblem, CascadePlan]:
    """Random feasible problems, each with a legal left-shifted plan."""
    problem = draw(
        problems(max_nodes=max_nodes, max_devices=max_devices, max_cascades=max_cascades)
    )
    return problem, seeded_plan(problem, draw(st.integers(0, 2**16)))


# ------------------------------------------------------------------------------------ details


def _random_node(rng: random.Random, kind: DeviceType, max_devices: int) -> Node:
    devices = rng.choice([d for d in (1, 2, 3, 4, 6, 8) if d <= max_devices])
    size = rng.choice((1, 2, 4))
    nics = tuple(d // size for d in range(devices))
    numa = tuple(n * 2 // (nics[-1] + 1) for n in range(nics[-1] + 1))
    return Node(name="", device_type=kind, nic_of_device=nics, numa_of_nic=numa, intra_link=INTRA)


def _random_tasks(rng: random.Random, cluster: Cluster) -> tuple[Task, ...]:
    """The tasks of one cascade: a chain, or two first tasks that a third one joins."""
    names = rng.choice(STAGES)
    joined = len(names) == 3 and rng.random() < 0.5
    tasks = []
    for index, name in enumerate(names):
        after = (index - 1,) if index else ()
        if joined:
            after = (0, 1) if index == 2 else ()
        size = rng.choice((0, rng.randint(1, 4 * 10**9))) if after else 0
        options = _random_options(rng, cluster)
        tasks.append(Task(name=name, options=options, predecessors=after, input_bytes=size))
    return tuple(tasks)


def _random_options(rng: random.Random, cluster: Cluster) -> tuple[Option, ...]:
    """Options per degree, and per type where there are two; durations need not fall with degree."""
    counts = cluster.count_of_type
    kinds = list(cluster.device_types.values())
    typed = len(kinds) > 1 and rng.random() < 0.8
    work_us = rng.randint(1_000, 40_000_000)
    gain = rng.uniform(0.4, 1.2)
    options = []
    for kind in kinds if typed else [min(kinds, key=lambda k: k.memory_bytes)]:
        degrees = [k for k in (1, 2, 3, 4, 8, 16) if k <= 2 * counts[kind.name]]
        slower = 1.0 if kind is kinds[0] else rng.uniform(0.5, 3.0)
        for degree in rng.sample(degrees, rng.randint(1, len(degrees))):
            noise = rng.uniform(0.8, 1.3)
            duration_us = max(1, round(work_us * slower * noise / degree**gain))
            memory = int(kind.memory_bytes * rng.uniform(0.05, 1.1))
            name = kind.name if typed else None
            options.append(
                Option(
                    degree=degree,
                    duration_us=duration_us,
                    memory_bytes=memory,
                    device_type=name,
                )
            )
    return _make_one_usable(tuple(options), cluster)


def _offer_recomputation(rng: random.Random, problem: CascadeProblem) -> CascadeProblem:
    """The problem with a longer and leaner way beside most options."""

    def lean(option: Option) -> Option:
        return replace(
            option,
            duration_us=round(option.duration_us * rng.uniform(1.0, 1.5)),
            memory_bytes=round(option.memory_bytes * rng.uniform(0.2, 0.9)),
            recompute=True,
        )

    def offered(task: Task) -> Task:
        more = tuple(lean(option) for option in task.options if rng.random() < 0.7)
        return replace(task, options=task.options + more)

    cascades = (replace(c, tasks=tuple(map(offered, c.tasks))) for c in problem.cascades)
    return replace(problem, cascades=tuple(cascades))


def _make_one_usable(options: tuple[Option, ...], cluster: Cluster) -> tuple[Option, ...]:
    """The options, the first one narrowed to one device with memory to spare if none is usable."""
    counts, kinds = cluster.count_of_type, cluster.device_types
    for o in options:
        names = [o.device_type] if o.device_type else list(kinds)
        if any(counts[n] >= o.degree and kinds[n].memory_bytes >= o.memory_bytes for n in names):
            return options
    first = replace(options[0], degree=1, memory_bytes=GIB)
    rest = [o for o in options[1:] if (o.degree, o.device_type) != (1, first.device_type)]
    return (first, *rest)


def _forbid(rng: random.Random, problem: CascadeProblem) -> CascadeProblem:
    """The problem with some devices forbidden, as it was where a task could then run nowhere."""
    count = problem.cluster.device_count
    barred = rng.sample(range(count), rng.randint(0, count // 3))
    return _if_usable(replace(problem, forbidden_devices=tuple(barred)), problem)


def _count_residents(rng: random.Random, problem: CascadeProblem) -> CascadeProblem:
    """The problem with memory over time; options keep room for all that can be parked at once."""
    parked = sum(task.input_bytes * len(set(task.predecessors)) for _, _, task in problem.tasks())
    kinds = problem.cluster.device_types
    room = min(kind.memory_bytes for kind in kinds.values()) - parked
    if room <= 0:
        return problem

    def slim(task: Task) -> Task:
        options = [replace(o, memory_bytes=min(o.memory_bytes, room)) for o in task.options]
        return replace(task, options=tuple(options))

    cascades = [replace(c, tasks=tuple(map(slim, c.tasks))) for c in problem.cascades]
    resident = tuple((name, rng.randint(0, room)) for name in kinds)
    return replace(problem, cascades=tuple(cascades), resident_bytes=resident)


def _pin(rng: random.Random, problem: CascadeProblem) -> CascadeProblem:
    """The problem with all tasks of one name pinned, as it was where one could run nowhere."""
    count = problem.cluster.device_count
    pin = tuple(rng.sample(range(count), rng.randint(1, count)))
    name = rng.choice([task.name for _, _, task in problem.tasks()])

    def pinned(task: Task) -> Task:
        return replace(task, allowed_devices=pin) if task.name == name else task

    cascades = [replace(c, tasks=tuple(map(pinned, c.tasks))) for c in problem.cascades]
    return _if_usable(replace(problem, cascades=tuple(cascades)), problem)


def _if_usable(changed: CascadeProblem, problem: CascadeProblem) -> CascadeProblem:
    usable = all(changed.usable_options(task) for _, _, task in changed.tasks())
    return changed if usable else problem


def _starve(problem: CascadeProblem, rng: random.Random) -> CascadeProblem:
    """The problem with one task whose options need more memory than any device has."""
    most = max(kind.memory_bytes for kind in problem.cluster.device_types.values())
    c = rng.randrange(len(problem.cascades))
    cascade = problem.cascades[c]
    hungry = tuple(
        replace(o, memory_bytes=most + rng.randint(1, GIB)) for o in cascade.tasks[0].options
    )
    tasks = (replace(cascade.tasks[0], options=hungry), *cascade.tasks[1:])
    cascades = list(problem.cascades)
    cascades[c] = replace(cascade, tasks=tasks)
    return replace(problem, cascades=tuple(cascades))


def _before(problem: CascadeProblem, cascade: int, task: int) -> tuple[int, ...]:
    return problem.cascades[cascade].tasks[task].predecessors


def _random_group(
    rng: random.Random, problem: CascadeProblem, task: Task
) -> tuple[Option, tuple[int, ...]]:
    """A random usable option with random devices of one type, in random rank order."""
    cluster, counts = problem.cluster, problem.count_of_type(task)
    choices = [
        (option, name)
        for option in task.options
        for name, kind in cluster.device_types.items()
        if option.device_type in (None, name)
        and counts[name] >= option.degree
        and kind.memory_bytes >= option.memory_bytes
    ]
    option, name = rng.choice(choices)
    devices = [d for d in problem.devices_of(task) if cluster.devices[d].device_type.name == name]
    return option, tuple(rng.sample(devices, option.degree))
