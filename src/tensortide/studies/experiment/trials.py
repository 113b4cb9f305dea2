"""A trial of an experiment: its keys, and the digest that tells it apart from others."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from tensortide.errors import PlanError, TensortideError
from tensortide.importers.door import recognize
from tensortide.plans.remat.policies import POLICIES, policy
from tensortide.python_object import file_of, is_path, names_object, near
from tensortide.recorder.script_command import find_script
from tensortide.replays.remat.budgets import Budget
from tensortide.replays.remat.simulation import UNLIMITED, Deallocation
from tensortide.timing.durations import beside
from tensortide.units import format_bytes

Scalar: TypeAlias = bool | int | float | str
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
Seed: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Mode: TypeAlias = Literal["simulated", "live"]
NONE = "none"
"""The policy of ordinary steps: the baseline of all others."""


class Rival(NamedTuple):
    """A way to run a step that is no eviction policy: the budgets that it takes, and what it does."""

    takes: Literal["nothing", "a ratio", "a budget"]
    about: str


RIVALS = {
    NONE: Rival("nothing", "ordinary steps; every trial is compared with those of its workload"),
    "checkpoint": Rival("nothing", "`torch.utils.checkpoint` around each block: the outermost repeated modules"),
    "aot": Rival("a ratio", "PyTorch's partitioner, the ratio being its `activation_memory_budget`"),
    "checkmate": Rival("a budget", "Checkmate's optimum: planned on the step, then replayed or followed live"),
    "plan": Rival("a budget", "the plan of `tensortide plan`: planned on the step, then replayed or followed live"),
}
"""Ways to run a step beside the eviction policies, by name."""


class Trial(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """One thing to run: a workload at its settings, in one way, under one budget, several times."""

    workload: Annotated[
        str, Meta(min_length=1, description="A target: `gpt2`, `train.py:mlp`, `-- python train.py`, a saved graph.")
    ]
    set: Annotated[dict[str, Scalar], Meta(description="Hyperparameters of the workload by name.")] = {}
    mode: Annotated[
        Mode, Meta(description="`simulated` on the captured step, or `live`: run for real and measured.")
    ] = "simulated"
    policy: Annotated[
        str, Meta(min_length=1, description="An eviction policy, a plan's file, or one of the ways in the table below.")
    ] = NONE
    budget: Annotated[
        Budget | None,
        Meta(description="A ratio of the baseline's peak (`0.6`, `60%`), bytes (`8GiB`), or `unlimited`."),
    ] = None
    repeats: Annotated[int, Meta(ge=1, description="Live: repetitions, each of which builds the workload anew.")] = 1
    dropped: Annotated[int, Meta(ge=0, description="Live: repetitions before these that do not count.")] = 0
    steps: Annotated[int, Meta(ge=1, description="Live: steps that a repetition measures, after two to warm up.")] = 3
    seed: Annotated[
        Seed | None,
        Meta(description="Live: seed of PyTorch's generators before each build; a list makes several inputs."),
    ] = 0
    threads: Annotated[Positive | None, Meta(description="Live: threads per op (default: PyTorch's).")] = None
    device: Annotated[str | None, Meta(description="`cpu` or `cuda` (default: that of `run` and of captures).")] = None
    save_log: Annotated[bool, Meta(description="Live, under a budget: write DTR's log of one more step.")] = False
    deallocation: Annotated[
        Deallocation, Meta(description="Simulated: what happens when the program drops a tensor, as for `remat`.")
    ] = "eager"
    limit: Annotated[float, Meta(ge=1, description="Simulated: give up at this many times the step's time.")] = 2.0
    machine: Annotated[str | None, Meta(description="Simulated: the machine that times are predicted for.")] = None
    measure: Annotated[bool, Meta(description="Simulated: measure the times of ops here instead.")] = False
    search: Annotated[float, Meta(gt=0, description="Seconds of `plan` and `checkmate` to search.")] = 20.0
    timeout: Annotated[Seconds | None, Meta(description="Seconds after which an attempt is ended.")] = None
    retries: Annotated[int, Meta(ge=0, description="Further attempts where one crashes, hangs or is killed.")] = 0

    @property
    def rival(self) -> Rival | None:
        """The way to run the step; None for an eviction policy or a plan's file."""
        return RIVALS.get(self.policy)

    @property
    def has_limit(self) -> bool:
        """True if the budget is a limit of the trial: of ways without one it is nothing, or a setting."""
        return self.rival is None or self.rival.takes == "a budget"

    @functools.cached_property
    def baseline(self) -> Trial:
        """The trial of ordinary steps that this one is compared with."""
        return msgspec.structs.replace(self, policy=NONE, budget=None).canonical()

    def canonical(self) -> Trial:
        """The trial without what has no effect on it: trials that differ in nothing else are one."""
        kept = {*_DEFAULTS} - _WITHOUT_EFFECT[self.mode]
        if self.rival is not None:
            kept -= {"deallocation", "limit", "save_log"}
            if self.rival.takes == "nothing":
                kept.discard("budget")
        if self.policy not in ("plan", "checkmate"):
            kept.discard("search")
        if self.machine is not None or self.mode == "live":
            kept.discard("measure")
        return Trial(**{name: getattr(self, name) for name in kept})

    def fault(self) -> tuple[str, str] | None:
        """The key that is wrong, and why; None if all go together. Policies in files are not looked at."""
        if self.rival is None and not (names_object(self.policy) or is_path(self.policy)):
            try:
                policy(self.policy)
            except PlanError:
                return "policy", f"there is no policy {self.policy!r}{near(self.policy, [*RIVALS, *POLICIES])}"
        takes = "a budget" if self.rival is None else self.rival.takes
        if takes == "a ratio" and (self.budget is None or not 0 <= (self.budget.ratio or -1) <= 1):
            return "budget", f"{self.policy} takes a ratio from 0 to 1"
        if takes == "a budget" and self.budget is None and not is_path(self.policy):
            return "budget", f"{self.policy} needs a budget"
        return None

    @property
    def content(self) -> bytes:
        """The keys that decide the result, as JSON that is the same for equal trials: values are told from defaults
        by equality, which ``omit_defaults`` does by identity."""
        own = self.canonical()
        given = {name: value for name, usual in _DEFAULTS.items() if (value := getattr(own, name)) != usual}
        decisive = {name: value for name, value in given.items() if name not in ("timeout", "retries")}
        return msgspec.json.encode(decisive, order="sorted")

    @functools.cached_property
    def key(self) -> str:
        """Hexadecimal digest of all that decides the result: the trial, and the files that it names, as they are when
        it is first asked for: one that is edited later does not part trials from their baselines."""
        digest = hashlib.sha256(self.content)
        for path in dict.fromkeys(self._paths()):
            if path.is_file():
                digest.update(path.read_bytes())
        return digest.hexdigest()[:12]

    def _paths(self) -> Iterator[Path]:
        """Yield the files that the trial may name, there or not: a saved step has its durations beside it, and may be
        a folder."""
        for text in (self.workload, *self.workload.split(), self.policy, self.machine or ""):
            yield from (Path(text), Path(text.rpartition(":")[0]))
        yield from filter(None, map(file_of, self._modules()))
        folder = Path(self.workload)
        yield beside(folder)
        if folder.is_dir():
            with contextlib.suppress(TensortideError):  # the trial will tell
                yield from sorted(folder.rglob("*")) if recognize(folder) is not None else ()

    def _modules(self) -> Iterator[str]:
        """Yield the modules that the trial names."""
        for text in filter(names_object, (self.workload, self.policy)):
            yield text.rpartition(":")[0]
        with contextlib.suppress(TensortideError):  # the trial will tell
            script = find_script(self.workload)
            if script is not None and script.kind == "module":
                yield from (script.target, f"{script.target}.__main__")

    @property
    def step(self) -> str:
        """The workload with its settings, in words."""
        return " ".join([self.workload, *(f"{name}={value}" for name, value in self.set.items())])

    @property
    def budget_text(self) -> str:
        """The budget in words."""
        if self.budget is None:
            return ""
        if self.budget.nbytes is None:
            return f"{100 * (self.budget.ratio or 0):g} %"
        return "unlimited" if self.budget.nbytes >= UNLIMITED else format_bytes(self.budget.nbytes)

    @property
    def name(self) -> str:
        """The trial in words."""
        return " ".join(part for part in (self.step, self.mode, self.policy, self.budget_text) if part)


_WITHOUT_EFFECT = {
    "simulated": {"repeats", "dropped", "steps", "seed", "threads", "save_log"},
    "live": {"deallocation", "limit", "machine"},
}
"""Keys that a trial of the other mode has."""
_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Trial)}
"""The keys of a trial; read once, as they take milliseconds."""
