"""Making of a file: choices in each form, captured as their files run, and the best of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from tensortide.errors import PlanError, TensortideError
from tensortide.graph.model import Graph, Phase
from tensortide.plans.events import play
from tensortide.plans.instance import Instance, instance
from tensortide.plans.model import Compute, Lane, Plan
from tensortide.plans.planned import Planned
from tensortide.recorder import capture
from tensortide.recorder.changes import Change, Written
from tensortide.studies.fit.subject import natural
from tensortide.studies.planning.planning import recording_of
from tensortide.studies.torch_file import offload
from tensortide.studies.torch_file.about import details, headline
from tensortide.studies.torch_file.choice import Checkpoint, Choice, pool_bytes, text
from tensortide.studies.torch_file.entries import starts
from tensortide.studies.torch_file.followed import Followed, Transfer, followed, steps
from tensortide.studies.torch_file.levels import Levels
from tensortide.studies.torch_file.regions import Modules, Refusal, Region
from tensortide.studies.torch_file.result import Asked, Form, TorchFile
from tensortide.studies.torch_file.search import Chosen, Search
from tensortide.timelines import timeline
from tensortide.timing.links import Link

ROUNDS = 4
"""Captures of a form, each of a choice for a smaller budget than the one before."""
SHARES = (0.75, 0.5, 0.25)
"""Between the budget and the peak: budgets for whose checkpoints the rest is moved."""


def make(asked: Asked) -> TorchFile:
    """The best file for a step and the budget of its plan.

    Raises PlanError for a step without a backward pass, or without modules.
    """
    return _Making(asked).run()


def torch_file(
    target: Any,
    planned: Planned,
    *,
    durations_ns: Sequence[int] | None = None,
    links: Iterable[Link] = (),
    recompute: bool = True,
    keep_random: bool = False,
    pinned: Container[int] = (),
    name: str = "plan_torch",
    **how: Any,
) -> TorchFile:
    """A file that runs ``target`` within the budget of ``planned`` with PyTorch alone: ``made.text``, if a form fits.

    Args:
        target: what ``capture`` takes; ``how`` are the other arguments of it with which the step was captured.
        planned: result of ``plan`` for that step.
        durations_ns: the time of each op (default: as ``plan`` predicts them).
        links: of those planned with; a file moves tensors over the one called ``host``.
        recompute: whether ops may run again; without, a file can only move tensors.
        keep_random: ops that draw random numbers run only once.
        pinned: storages that stay resident.
        name: by which the file is imported.

    Raises PlanError for a plan of another step, and for a step that no file can change: without a backward pass, or
    without modules, or with neither recomputation nor a link.
    """
    if not isinstance(planned, Planned):
        raise PlanError(f"torch_file takes what tensortide.plan returned, not a {type(planned).__name__}")
    recording = recording_of(capture(target, **how), durations_ns, "torch_file")
    if planned.plan is not None and planned.plan.graph != recording.graph.index.digest:
        raise PlanError("the plan is that of another step: capture the target as it was captured for the plan")
    host = tuple(link for link in links if link.name == "host")

    def again(changes: Sequence[Change]) -> Graph:
        return capture(target, **how, changes=changes)

    return make(Asked(recording, planned, again, host, keep_random, name, recompute, pinned=pinned))


class _Making:
    def __init__(self, asked: Asked) -> None:
        self.asked, self.graph, self.device = asked, asked.graph, asked.planned.device
        self.budget_bytes = asked.planned.budget_bytes
        self.durations_ns = asked.recording.durations_ns
        self.problem: Instance = instance(
            self.graph,
            self.device,
            self.durations_ns,
            links=asked.links,
            pinned=asked.pinned,
            keep_random=asked.keep_random,
        )
        once = {number for number, op in enumerate(self.problem.ops) if op.once}
        begun = starts(Modules(self.graph), asked.again) if asked.recompute else {}
        self.modules = Modules(self.graph, once, asked.pinned, begun)
        self.levels = Levels(self.graph, self.device, self.durations_ns)
        self.banned: set[str] = set()
        self.changing: dict[str, str] = {}
        """Modules whose recomputation is not what ran first, and the difference."""
        self.unmoved: dict[str, int] = {}

    def run(self) -> TorchFile:
        name = self.graph.meta.workload or "the step"
        if not any(op.phase is Phase.BACKWARD for op in self.graph.ops):
            raise PlanError(f"{name} has no backward pass, for which anything could be recomputed or moved")
        if not any(op.module >= 0 for op in self.graph.ops):
            raise PlanError(
                f"{name} runs no module: a file changes modules by their paths. Call torch.utils.checkpoint around "
                "its functions, or put them into modules"
            )
        as_it_is = timeline(self.graph, device=self.device).peak_bytes
        forms = () if as_it_is <= self.budget_bytes else tuple(self._forms())
        refused = tuple(each for each in self.modules.found if isinstance(each, Refusal))
        refused += tuple(Refusal(path, reason) for path, reason in self.changing.items())
        fitting = [form for form in forms if form.fits and form.step_ns is not None]
        best = min(fitting, key=lambda form: (form.step_ns or 0, form.peak_bytes or 0), default=None)
        made = TorchFile(self.asked.planned, forms, best, as_it_is, refused, self.asked.name, unmoved=self.unmoved)
        return made if best is None else msgspec.structs.replace(made, text=self._text(best))

    def _forms(self) -> Iterator[Form]:
        if self.asked.recompute:
            yield from self._checkpointing()
        elif not self.asked.links:
            raise PlanError(
                "a file recomputes modules or moves saved tensors to the host: without recomputation (--no-recompute) "
                "it needs a link to the host (--offload host)"
            )
        if self.asked.links:
            yield self._offloading()

    def _checkpointing(self) -> Iterator[Form]:
        planned = self._planned_start()
        found = self._searched("checkpoints", lambda search: search.best([planned]))
        yield found
        if self.graph.meta.compiled:
            reason = "torch.compile hides the ops whose results could be kept"
            yield Form("selective checkpoints", reason=reason)
            return
        whole = {path: frozenset[int]() for path in found.choice.checkpoints}
        yield self._searched("selective checkpoints", lambda search: search.with_kept([whole, planned]))

    # -- checkpoints ----------------------------------------------------------------------------

    def _search(self, budget_bytes: int) -> Search:
        regions = [region for region in self.modules.regions() if region.path not in self.banned]
        state = self._state_bytes()
        extra = {each.path: state * len(each.calls) for each in regions if each.random and state}
        return Search(self.levels, self.modules, regions, budget_bytes, extra)

    def _planned_start(self) -> Chosen:
        """Modules most of whose time the plan recomputes."""
        plan = self.asked.planned.plan
        if plan is None:
            return {}
        runs: dict[int, int] = {}
        for step in plan.lanes[0].steps:
            if isinstance(step, Compute):
                runs[step.op] = runs.get(step.op, 0) + 1
        found: Chosen = {}
        regions = {region.path: region for region in self.modules.regions() if region.path not in self.banned}
        for region in regions.values():
            inside = any(region.overlaps(regions[path]) for path in found)
            ops = [op for call in region.calls for op in self.levels.recomputed(call, region, frozenset())]
            total = sum(self.durations_ns[op] for op in ops)
            again = sum(self.durations_ns[op] for op in ops if runs.get(op, 0) > 1)
            if not inside and total and 2 * again > total and region.path:
                found[region.path] = frozenset()
        return found

    def _searched(self, name: str, find: Callable[[Search], Chosen]) -> Form:
        """The best file of this form: while the captured step takes too much, that of a choice for a smaller budget,
        at last that of all modules; where none fits, the one that takes least."""
        if not self.modules.regions():
            return Form(name, reason="no module keeps anything for the backward pass that could be recomputed")
        budget, less, tried = self.budget_bytes, 0, list[Chosen]()
        found = least = Form(name)
        while len(tried) < ROUNDS:
            search = self._search(budget)
            chosen = find(search)
            if not search.score(chosen).fits:
                chosen = search.least()
            if not chosen or (not budget and chosen in tried):  # the prediction sees no way on: capture tells
                chosen = search.everything()
            is_new = chosen not in tried
            if is_new:
                known = len(self.banned)
                found = self._captured(name, chosen, search)
                if len(self.banned) > known:  # each time fewer modules are left
                    continue
                tried.append(chosen)
                least = min(least, found, key=lambda form: (form.peak_bytes is None, form.peak_bytes or 0))
            if found.fits or found.peak_bytes is None or not budget:
                break
            less = max(found.peak_bytes - self.budget_bytes, 1) if is_new else 2 * less
            budget = 0 if len(tried) == ROUNDS - 1 else max(0, budget - less)
        return found if found.fits or least.peak_bytes is None else least

    def _choice(self, chosen: Chosen, search: Search) -> Choice:
        checkpoints = {}
        # Those inside others first: a row calls its modules as they are when it is made.
        for path in sorted(chosen, key=lambda path: (len(search.regions[path].ops), natural(path))):
            region = search.regions[path]
            keys = self.modules.keys(region)
            kept = tuple(sorted({keys[op] for op in chosen[path]}))
            row = region.members if len(region.members) > 1 else ()
            checkpoints[path] = Checkpoint(region.random, region.updated, kept, row)
        return Choice(checkpoints, roots=self.modules.roots)

    def _captured(self, name: str, chosen: Chosen, search: Search) -> Form:
        choice = self._choice(chosen, search)
        if not chosen:
            return Form(name, reason="no choice of modules was found that needs less than the step as it is")
        return self._played(name, choice, chosen)

    def _played(self, name: str, choice: Choice, chosen: Mapping[str, frozenset[int]]) -> Form:
        try:
            graph = self._again(choice, text(choice, ""))
            peak = self._peak(graph, choice)
            ops = followed(self.graph, graph, self._regions(chosen), chosen)
            self.banned |= self._without_effect(ops, chosen)
            if ops.changed:
                return self._refused(name, ops)
            transfers = self._transfers(graph, choice, ops)
            found = steps(self.problem, ops.sequence, transfers, self.asked.links[0].name if self.asked.links else "")
            played = play(self.problem, found)
        except TensortideError as error:  # Python may do more between the modules of a row than the ops of the step say
            self.banned |= {path for path, region in self._regions(chosen).items() if len(region.members) > 1}
            return Form(name, reason=str(error).partition("\n")[0])
        plan = Plan(self.graph.index.digest, (Lane(self.device, found),))
        fits, bound = peak <= self.budget_bytes, self.asked.planned.bound_ns
        gap = played.makespan_ns / bound - 1 if bound else None
        return Form(name, choice, peak, played.makespan_ns, plan, fits, gap_share=gap)

    def _refused(self, name: str, ops: Followed) -> Form:
        """Ban the modules whose recomputation is not what ran first, with all around them: gradients would be wrong."""
        for path, reason in ops.changed:
            self.changing.setdefault(path, reason)
            self.banned |= {region.path for region in self.modules.regions() if region.covers(path)}
        path, reason = ops.changed[0]
        return Form(name, reason=f"{path or 'the model'}: {reason}")

    def _without_effect(self, ops: Followed, chosen: Mapping[str, frozenset[int]]) -> set[str]:
        """Checkpointed modules of which nothing runs again: others run the modules inside them, not their forward."""
        runs = Counter(ops.sequence)
        return {path for path, one in self._regions(chosen).items() if not any(runs[op] > 1 for op in one.ops)}

    def _regions(self, chosen: Mapping[str, frozenset[int]]) -> dict[str, Region]:
        known = {region.path: region for region in self.modules.regions()}
        return {path: known[path] for path in chosen}

    def _again(self, choice: Choice, code: str) -> Graph:
        return self.asked.again([Written(code, choice.used_roots)])

    def _peak(self, graph: Graph, choice: Choice) -> int:
        """Bytes of the captured step without the pool, with states of generators."""
        nbytes = pool_bytes(choice)
        device = self.device
        if nbytes:
            storages = [
                msgspec.structs.replace(one, device="pool") if offload.is_pool(graph, number, nbytes) else one
                for number, one in enumerate(graph.storages)
            ]
            graph = msgspec.structs.replace(graph, storages=tuple(storages))
        calls = {region.path: len(region.calls) for region in self.modules.regions()}
        random = sum(calls[path] for path, each in choice.checkpoints.items() if each.random)
        states = random + bool(random)  # a recomputation also keeps the state that it finds
        return timeline(graph, device=device).peak_bytes + states * self._state_bytes()

    def _state_bytes(self) -> int:
        """Bytes of the state of the generator, which a checkpoint keeps if it draws random numbers."""
        from tensortide.run.generated.random_state import state_bytes

        return state_bytes(self.device)

    # -- offload --------------------------------------------------------------------------------

    def _offloading(self) -> Form:
        """The best file that moves saved tensors, with or without checkpoints."""
        name = "offload"
        if len(self.modules.roots) > 1:
            return Form(name, reason="the step has several models, which would share a pool")
        found = [self._offloaded(name, chosen) for chosen in self._starts()]
        made = [form for form in found if form.peak_bytes is not None]
        fitting = [form for form in made if form.fits]
        if fitting:
            return min(fitting, key=lambda form: form.step_ns or 0)
        return min(made, key=lambda form: form.peak_bytes or 0, default=found[0])

    def _starts(self) -> Iterator[Chosen]:
        """Checkpoints beside which saved tensors move: none, and those for larger budgets."""
        yield {}
        if not self.asked.recompute or not self.modules.regions():
            return
        excess = self.levels.level([]).max(initial=0) - self.budget_bytes
        seen: list[Chosen] = [{}]
        for share in SHARES:
            search = self._search(self.budget_bytes + int(share * excess))
            chosen = search.best()
            if chosen not in seen:
                seen.append(chosen)
                yield chosen

    def _offloaded(self, name: str, chosen: Chosen) -> Form:
        choice = self._choice(chosen, self._search(self.budget_bytes))
        try:
            marked = self._again(choice, offload.probe(choice))
            ops = followed(self.graph, marked, self._regions(chosen), chosen)
        except TensortideError as error:
            return Form(name, reason=str(error).partition("\n")[0])
        clock = self._clock(ops)
        every = [one for one in offload.candidates(marked, self.device) if not self._pinned(marked, ops, one)]
        if not every:
            return Form(name, reason="no saved tensor can move: the model runs several times in a step, or saves none")
        level = Levels(marked, self.device, [0] * len(marked)).level([])
        mine = {one.storage: self._storage(marked, ops, one.storage) for one in every}
        wanted = offload.moved_by(self.asked.planned.plan)
        if not chosen:
            self.unmoved = offload.unmoved(self.graph, wanted.difference(mine.values()))
        first = frozenset(storage for storage, one in mine.items() if one in wanted)
        budget, found = self.budget_bytes, Form(name)
        for _ in range(ROUNDS):
            moved, fits = offload.moves(level, every, first, clock, budget)
            found = self._played(name, msgspec.structs.replace(choice, moved=moved), chosen)
            if found.fits or found.peak_bytes is None or not fits:
                break
            budget -= max(found.peak_bytes - self.budget_bytes, 1)
        return found

    def _clock(self, ops: Followed) -> offload.Clock:
        times = [self.durations_ns[op] if op >= 0 else 0 for op in ops.base]
        return offload.Clock([*accumulate(times, initial=0)], self.asked.links[0])

    def _pinned(self, marked: Graph, ops: Followed, one: offload.Candidate) -> bool:
        storage = self._storage(marked, ops, one.storage)
        return storage is None or self.problem.storages[storage].pinned

    def _storage(self, captured: Graph, ops: Followed, storage: int) -> int | None:
        """The storage of the step that ``storage`` of a captured one is."""
        birth = captured.storages[storage].birth
        if birth is None or ops.base[birth] < 0:
            return None
        place = captured.index.allocated[birth].index(storage)
        mine = self.graph.index.allocated[ops.base[birth]]
        return mine[place] if place < len(mine) else None

    def _transfers(self, captured: Graph, choice: Choice, ops: Followed) -> list[Transfer]:
        """Return what moves in the captured step, in terms of the step and its sequence."""
        out, back = offload.transfers_of(captured, pool_bytes(choice))
        touches: dict[int, list[int]] = {}
        for place, op in enumerate(ops.sequence):
            for touched in self.problem.ops[op].touches:
                touches.setdefault(touched, []).append(place)
        found = []
        for start, number in out.items():
            source = captured.tensors[captured.ops[number].inputs[1]].storage
            storage = self._storage(captured, ops, source)
            if storage is None or start not in back:
                continue
            fetched = ops.places[back[start]]
            left = max(place for place in touches[storage] if place < fetched)
            found.append(Transfer(storage, left, fetched))
        return found

    # -- text -----------------------------------------------------------------------------------

    def _text(self, form: Form) -> str:
        return text(form.choice, headline(self.asked, form), self.asked.name, details(self.asked, form))
