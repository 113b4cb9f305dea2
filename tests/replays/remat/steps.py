"""Random steps of a training shape, and a trace told again by rules of its own."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

from hypothesis import strategies as st

from tensortide.graph import TENSOR, Call, Graph, Op, Phase, Role, Storage
from tensortide.plans.remat.schedule import Recording, Schedule, recorded
from tensortide.replays.remat import Simulation
from tensortide.timelines.events import Kind
from tests.graphs import Builder
from tests.importers.dtrlog.logs import Log


def random_graph(
    chance: random.Random,
    ops: int,
    in_place: float = 0.2,
    normalisations: float = 0.1,
    devices: Sequence[str] = ("cpu",),
    kept: float = 0.1,
) -> Graph:
    """Ops on what was made lately, then a backward pass that takes it up again from the end; ops that write one or
    many of their inputs, views, and normalisations whose statistics are the step's own, or lie anywhere."""
    made = _Steps(chance, devices)
    for index in range(ops):
        if index > ops // 2 and made.saved:
            gradient = made.new(index, Role.TEMPORARY)
            made.builder.op([made.live[-1], made.saved.pop()], [gradient], phase=Phase.BACKWARD)
            made.live.append(gradient)
            continue
        made.forward(index, in_place, normalisations)
    return _dying(made.builder.graph(), chance, kept)


class _Steps:
    """Ops one after the other; ``live`` are the tensors to choose from."""

    def __init__(self, chance: random.Random, devices: Sequence[str]) -> None:
        self.chance, self.devices, self.builder = chance, devices, Builder()
        roles = (Role.PARAMETER, Role.BUFFER, Role.INPUT, Role.GRADIENT)
        self.live = [self.new(None, chance.choice(roles)) for _ in range(chance.randint(1, 4))]
        self.statistics = [self.builder.storage(8, Role.BUFFER, device=devices[0]) for _ in range(2)]
        self.saved: list[int] = []

    def new(self, birth: int | None, role: Role = Role.ACTIVATION) -> int:
        chance = self.chance
        nbytes = chance.choice((0, chance.randint(1, 99), chance.randint(1, 99), chance.randint(100, 999)))
        return self.builder.storage(nbytes, role, birth, device=chance.choice(self.devices))

    def some(self, count: int) -> list[int]:
        late = self.chance.random() < 0.7
        return [self.chance.choice(self.live[-5:] if late else self.live) for _ in range(count)]

    def forward(self, index: int, in_place: float, normalisations: float) -> None:
        chance, drawn = self.chance, self.chance.random()
        if drawn < normalisations:
            outputs = self.normalise(index)
        elif drawn < normalisations + in_place:
            outputs = self.write(index)
        elif drawn < normalisations + in_place + 0.1:
            (whole,) = self.some(1)
            outputs = [self.builder.view(whole, chance.randint(0, 5))]
            self.builder.op([whole], outputs)
        else:
            outputs = [self.new(index) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
            self.builder.op(self.some(chance.randint(0, 3)), outputs)
            self.saved += outputs
        self.live += outputs
        if chance.random() < 0.3 and len(self.live) > 4:
            self.live.pop(chance.randrange(len(self.live)))

    def write(self, index: int) -> list[int]:
        chance = self.chance
        inputs = list(dict.fromkeys(self.some(chance.randint(1, 5))))
        mutated = sorted(chance.sample(range(len(inputs)), chance.choice((1, 1, len(inputs)))))
        outputs = [self.new(index)] if chance.random() < 0.15 else []
        returned = [inputs[mutated[0]]] if chance.random() < 0.4 else []
        self.builder.op(inputs, outputs + returned, mutated=mutated)
        return outputs

    def normalise(self, index: int) -> list[int]:
        chance, builder = self.chance, self.builder
        (x,) = self.some(1)
        statistics = self.some(2) if chance.random() < 0.5 else self.statistics
        if len({x, *statistics}) < 3:
            statistics = self.statistics
        training = chance.random() < 0.85
        slots = (("input", TENSOR), ("running_mean", TENSOR), ("running_var", TENSOR), ("training", training))
        mutated = (1, 2) if training else ()
        call = Call("aten.native_batch_norm.default", slots, 4, mutated, (TENSOR,) * 3, ())
        outputs = [self.new(index) for _ in range(3)]
        number = builder.calls.setdefault(call, len(builder.calls))
        builder.ops.append(Op(number, (x, *statistics), tuple(outputs), Phase.FORWARD, -1))
        self.saved += outputs
        return outputs


def _dying(graph: Graph, chance: random.Random, kept: float) -> Graph:
    last = [-1 if s.birth is None else s.birth for s in graph.storages]
    for index, op in enumerate(graph.ops):
        for tensor in (*op.inputs, *op.outputs):
            last[graph.tensors[tensor].storage] = index
    storages = []
    for storage, used in zip(graph.storages, last, strict=True):
        stays = chance.random() < (kept if storage.birth is not None else 0.6)
        death = None if stays else chance.choice((used + 1, chance.randint(used + 1, len(graph))))
        storages.append(Storage(storage.nbytes, storage.device, storage.role, storage.birth, death, storage.name))
    return Graph(graph.ops, graph.calls, graph.tensors, tuple(storages), graph.modules)


def random_recording(chance: random.Random, ops: int, **settings: object) -> Recording:
    """A random graph and random durations, nothing among them."""
    graph = random_graph(chance, ops, **settings)  # type: ignore[arg-type]
    return recorded(graph, [chance.randint(0, 50) for _ in graph.ops])


@st.composite
def recordings(draw: st.DrawFn, most: int = 60, devices: Sequence[str] = ("cpu",)) -> Recording:
    """Random recordings of graphs."""
    chance = draw(st.randoms(use_true_random=False))
    settings = {
        "in_place": draw(st.sampled_from((0.0, 0.1, 0.4))),
        "normalisations": draw(st.sampled_from((0.0, 0.2))),
        "kept": draw(st.sampled_from((0.02, 0.1, 0.3))),
    }
    return random_recording(chance, draw(st.integers(1, most)), devices=devices, **settings)


def training_log(chance: random.Random, ops: int, in_place: float = 0.2, kept: float = 0.1, free: float = 0.0) -> str:
    """A log of a training shape, with every instruction; names are used after their release now and then. ``free`` is
    the share of ops that take no time, beside those that draw none by chance."""
    made = _Lines(chance, free)
    for _ in range(ops // 2):
        made.forward(in_place)
    gradients = made.call(made.some(made.log.live, 1))
    for saved in reversed(made.saved):
        if saved in made.log.live:
            before, gradients = gradients, made.call([saved, *(g for g in gradients[:1] if g in made.log.live)])
            for name in (*before, saved):
                if chance.random() > kept:
                    made.drop(name)
        if chance.random() < in_place / 2:
            made.write([*made.some(made.log.live, 2), *gradients[:1]])
        if chance.random() < 0.05 and made.log.live:
            made.log.add("COPY_FROM", DST=chance.choice(made.log.live), SRC=chance.choice(made.log.names))
    for name in list(made.log.live):
        if chance.random() > kept:
            made.drop(name)
    return made.log.text()


class _Lines:
    """Instructions one after the other."""

    def __init__(self, chance: random.Random, free: float) -> None:
        self.chance, self.free, self.log = chance, free, Log(chance)
        for _ in range(chance.randint(1, 3)):
            self.log.constant()
        self.saved: list[str] = []

    def some(self, names: Sequence[str], count: int) -> list[str]:
        return [self.chance.choice(names) for _ in range(count)] if names else []

    def time(self) -> int:
        return 0 if self.free and self.chance.random() < self.free else self.chance.randint(0, 50)

    def drop(self, name: str) -> None:
        if name in self.log.live:
            self.log.live.remove(name)
            self.log.add("RELEASE", NAME=name)

    def call(self, args: list[str]) -> list[str]:
        chance, log = self.chance, self.log
        results = [log.name() for _ in range(chance.choice((1, 1, 1, 2, 3)))]
        log.add("CALL", NAME="f", ARGS=args, RESULT=results, TIME=self.time())
        for name in results:
            log.add("MEMORY", NAME=name, MEMORY=chance.choice((0, chance.randint(1, 99), chance.randint(100, 999))))
            log.add("ALIAS", NAME=name, ALIAS=chance.choice((-1, -1, -1, chance.randint(-1, len(args) - 1))))
        return results

    def write(self, args: list[str]) -> None:
        mutated = self.chance.sample(range(len(args)), self.chance.choice((min(1, len(args)), len(args))))
        self.log.add("MUTATE", NAME="g_", ARGS=args, MUTATE=mutated, TIME=self.time())

    def forward(self, in_place: float) -> None:
        chance, log = self.chance, self.log
        if chance.random() < in_place:
            self.write(list(dict.fromkeys([*log.live[-4:], *self.some(log.live, 1)])))
        elif chance.random() < 0.1:
            log.add("COPY", SRC=chance.choice(log.names), DST=log.name())
        else:
            self.saved += self.call(self.some(log.live[-4:] or log.names, 2))
            if chance.random() < 0.3:
                self.drop(chance.choice(log.live))


class Told:
    """A trace played on the values that are there, knowing nothing of references, locks and pools.

    An op finds all it reads, and room; what it makes again beside what was asked for is dropped, or kept if it was
    gone. Raises AssertionError for a trace that does not hold together.
    """

    def __init__(self, run: Simulation) -> None:
        made: Schedule = run.schedule
        self.clock = 0 if run.rules.collect else 1
        self.memory = self.peak = self.ran = self.again = 0
        self.there: set[int] = set()
        self.dead: set[int] = set()
        self.made = made
        self.storage, self.root = made.storage.tolist(), set(made.root.tolist())
        ends = made.output_ends.tolist()
        self.outputs = [range(a, b) for a, b in itertools.pairwise(ends)]
        ends = made.input_ends.tolist()
        self.inputs = [made.inputs[a:b].tolist() for a, b in itertools.pairwise(ends)]
        op_of = [op for op, outputs in enumerate(self.outputs) for _ in outputs]
        for kind, index in run.trace():
            if kind in (Kind.RUN, Kind.RECOMPUTE):
                self.run(index if kind == Kind.RUN else op_of[index], run.budget_bytes)
                assert kind == Kind.RUN or index in self.there
                self.ran += kind == Kind.RUN
                self.again += kind == Kind.RECOMPUTE
            else:
                self.drop(index, there=kind != Kind.DEAD)
                if kind > Kind.EVICT and run.rules.collect:
                    self.dead.add(index)

    def run(self, op: int, budget: int | None) -> None:
        assert self.there.issuperset(self.inputs[op])
        sizes, replaces = self.made.nbytes, self.made.replaces
        resident = {self.storage[value] for value in self.there}
        needed = sum(int(sizes[v]) for v in self.outputs[op]) + int(self.made.extra_bytes[op])
        assert budget is None or self.memory + needed <= budget
        self.peak = max(self.peak, self.memory + needed)
        self.clock += int(self.made.cost_ns[op])
        for value in self.outputs[op]:
            home = self.storage[value]
            if home in self.dead or value in self.there or (value in self.root and home in resident):
                continue
            self.memory += int(sizes[value])
            self.there.discard(int(replaces[value]))
            self.there.add(value)

    def drop(self, storage: int, there: bool) -> None:
        inside = {value for value in self.there if self.storage[value] == storage}
        assert bool(inside) == there
        self.there -= inside
        self.memory -= int(self.made.storage_bytes[storage]) * there
