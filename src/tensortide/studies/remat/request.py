"""Questions about steps that are played under memory budgets: how they are read, by which rules, in which runs."""

from __future__ import annotations

import contextlib
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple

from tensortide.errors import PlanError, RequestError
from tensortide.executors.request import WorkerRequest
from tensortide.graph import Graph
from tensortide.plans.checkpointing.static import chain
from tensortide.plans.remat.policies import DEFAULT_POLICY, contenders
from tensortide.plans.remat.schedule import Recording
from tensortide.progress import Say, silent
from tensortide.replays.remat import Deallocation
from tensortide.replays.remat.budgets import Budget, budgets, resolved
from tensortide.replays.remat.simulator import AUTO
from tensortide.request import Arg, Opt, OutFolder, Request
from tensortide.studies.remat import designs
from tensortide.studies.remat.comparison import Comparison, compare
from tensortide.studies.remat.contenders import made_up
from tensortide.studies.remat.designs import Line, conduct
from tensortide.studies.remat.grid import Play, finished_runs, play_all
from tensortide.studies.remat.linear import LIMIT, RULES, asymptotics
from tensortide.studies.remat.results import Kind, Study
from tensortide.studies.remat.subject import Subject
from tensortide.targets.recordings import recorded_step
from tensortide.targets.requests import TARGET, TimedRequest

BUDGETS = "Budgets: ratios of the peak, sizes, or ranges FROM:TO:STEP of them (0.9,0.5, 80%, 8GiB:2GiB:1GiB; default: "
POLICIES = "Policies, separated by commas: lru, dtr-eq, FILE.py:NAME, ...; random is played with ten seeds (default: "
NAMES = "Names of the steps in tables and figures, separated by commas (default: those of the targets)."
COMPAT = "Play by the rules of DTR's own simulator, to the byte (docs/remat.md)."
RUNS = "runs.jsonl"
"""The file of finished runs in the folder of all figures."""
LAYERS = 10_000
"""Most layers of a made-up chain."""
MOST = 100_000
"""Most layers of a linear network."""
Handling = Annotated[
    Deallocation,
    Opt(
        "When the program drops a tensor: evict it at once (eager), leave it to the policy (none), release it for good "
        "when nothing evicted depends on it (banish), or ignore the release (ignore)."
    ),
]
Limit = Annotated[
    float,
    Opt(
        "Abort a run once it takes this many times the step without recomputation (inf: never).", least=1, infinite=True
    ),
]


def words(text: str) -> tuple[str, ...]:
    """Split a list at its commas."""
    return tuple(word for word in (part.strip() for part in text.split(",")) if word)


def lengths(text: str) -> tuple[int, ...]:
    """Read whole numbers above 0, and sort them. Raises PlanError for anything else."""
    parts = words(str(text))
    if not parts or not all(part.isdecimal() and 0 < int(part) <= MOST for part in parts):
        raise PlanError(f"--sizes takes numbers of layers from 1 to {MOST:,}, as in 16,32,64, not {text!r}")
    return tuple(sorted({int(part) for part in parts}))


SIZES = lengths("16,32,64,128,256,512")


def listed(values: Sequence[object]) -> str:
    """Write a list as on the command line."""
    return ",".join(map(str, values))


@dataclass(frozen=True, kw_only=True)
class PlayedRequest(TimedRequest):
    """Steps to be played: how they are read, and whether by the rules of DTR's simulator."""

    GROUP = "The budget and the policy"

    compat: Annotated[bool, Opt(COMPAT)] = False

    def recording(self, target: str, say: Say = silent) -> Recording:
        """The step of ``target``."""
        return recorded_step(target, self, say, compat=self.compat)

    def subject(self, name: str, recording: Recording) -> Subject:
        """The step of ``recording``, under a name."""
        return Subject(name, recording, compat=self.compat, device=self.capture.device or "")

    def name(self, target: str, *, settings: bool = True) -> str:
        """Name a target in tables and figures, with its ``settings``."""
        name = target.rpartition("/")[2]
        for suffix in (".gz", ".log", ".jsonl", ".tide"):
            name = name.removesuffix(suffix)
        return " ".join([name, *(self.capture.set if settings else ())])


@dataclass(frozen=True, kw_only=True)
class ContendersRequest(Request):
    """Question for the fastest under each budget: a plan made ahead, or a policy."""

    GROUP = "The budget and the policy"

    target: Annotated[str, Arg(f"{TARGET} Or chain:N, N layers of equal cost and size.")]
    budgets: Annotated[Sequence[Budget], Opt(f"{BUDGETS}1.0:0.3:0.1).", read=budgets, common=True, value="BUDGETS")] = (
        budgets("1.0:0.3:0.1")
    )
    policies: Annotated[
        Sequence[str],
        Opt(
            "Online policies, separated by commas; auto is the best of many at each budget "
            f"(default: {DEFAULT_POLICY},{AUTO}).",
            read=words,
            common=True,
            value="POLICIES",
        ),
    ] = (DEFAULT_POLICY, AUTO)
    limit: Limit = 2.0
    optimum_time: Annotated[
        float | None,
        Opt(
            "Seconds for each search for an optimum, and each relaxation to be rounded; 0 leaves both out (default: "
            "60; none with --work-limit).",
            least=0,
            value="SECONDS",
            group="The search",
        ),
    ] = None
    work_limit: Annotated[
        float | None,
        Opt(
            "Limit of each of these searches in steps of schedules (1,000,000 are about a second of the solver): they "
            "find the same on any machine.",
            least=0,
            group="The search",
        ),
    ] = None
    deallocation: Handling = "eager"
    workers: WorkerRequest = WorkerRequest()
    step: PlayedRequest = PlayedRequest()


def answer_contenders(asked: ContendersRequest, say: Say = silent) -> tuple[Comparison, Graph]:
    """Plans made ahead and online policies on one step under the same budgets, and that step."""
    recording = _chain(asked) or asked.step.recording(asked.target, say)
    subject = asked.step.subject(asked.step.name(asked.target), recording)
    found = compare(
        subject,
        resolved(asked.budgets, subject.baseline_bytes),
        asked.policies,
        deallocation=asked.deallocation,
        overhead_limit=asked.limit,
        optimum_time_s=asked.optimum_time,
        work_limit=asked.work_limit,
        where=asked.workers.where,
        progress=say,
    )
    return found, subject.recording.graph


def _chain(asked: ContendersRequest) -> Recording | None:
    """A chain of so many layers, if the target names one. Raises RequestError for options of a step."""
    match = re.fullmatch(r"chain:(\d+)", asked.target, re.ASCII)
    if match is None:
        return None
    if asked.step.capture.given() or asked.step.times.given():
        raise RequestError(f"{asked.target} is made up: it has no settings, and every op of it takes 1 ns")
    if not 1 <= int(match[1]) <= LAYERS:
        raise RequestError(f"{asked.target}: a chain has 1 to {LAYERS:,} layers")
    return made_up(chain(int(match[1])), asked.target)


@dataclass(frozen=True, kw_only=True)
class RunsRequest(Request):
    """Runs of an experiment: where they are made and kept."""

    GROUP = "Output"

    save: Annotated[
        Path | None,
        Opt("File of finished runs: those in it are not repeated, new ones are added.", writes=True, common=True),
    ] = None
    workers: WorkerRequest = WorkerRequest()

    @contextlib.contextmanager
    def playing(self, say: Say) -> Iterator[Play]:
        """Open the file of finished runs, if one is given, and show the progress of new ones."""
        file = finished_runs(self.save) if self.save else contextlib.nullcontext()
        with file as saved:
            yield partial(play_all, saved=saved, where=self.workers.where, progress=say)


@dataclass(frozen=True, kw_only=True)
class StepsRequest(Request):
    """Steps, and the budgets under which they are played."""

    GROUP = "The budget and the policy"

    targets: Annotated[tuple[str, ...], Arg(f"{TARGET} Several make a panel each.")]
    budgets: Annotated[Sequence[Budget], Opt(f"{BUDGETS}1.0:0.1).", read=budgets, common=True, value="BUDGETS")] = (
        budgets("1.0:0.1")
    )
    limit: Limit = 2.0
    names: Annotated[Sequence[str] | None, Opt(NAMES, read=words, value="NAMES", group="Output")] = None
    step: PlayedRequest = PlayedRequest()

    def subjects(self, say: Say = silent) -> list[Subject]:
        """Read the steps. Raises RequestError unless each has a name, if any has."""
        if self.names and len(self.names) != len(self.targets):
            raise RequestError(f"--names takes a name for each of {len(self.targets)} targets, not {len(self.names)}")
        alone = len(self.targets) == 1
        names = self.names or [self.step.name(target, settings=alone) for target in self.targets]
        recorded = (self.step.recording(target, say) for target in self.targets)
        return [self.step.subject(name, recording) for name, recording in zip(names, recorded, strict=True)]


class Experiment(NamedTuple):
    """Runs of steps, and these steps."""

    study: Study
    graphs: list[Graph]


@dataclass(frozen=True, kw_only=True)
class ExperimentRequest(Request):
    """Runs of steps along the lines of a design."""

    GROUP = "The budget and the policy"

    steps: StepsRequest
    runs: RunsRequest = RunsRequest()
    KIND: ClassVar[Kind]

    @abstractmethod
    def lines(self) -> Sequence[Line]:
        """The lines of the design."""


def answer(asked: ExperimentRequest, say: Say = silent) -> Experiment:
    """Play every step along every line under every budget."""
    lines, steps = asked.lines(), asked.steps
    subjects = steps.subjects(say)
    with asked.runs.playing(say) as play:
        study = conduct(asked.KIND, subjects, lines, steps.budgets, overhead_limit=steps.limit, play=play)
    return Experiment(study, [subject.recording.graph for subject in subjects])


@dataclass(frozen=True, kw_only=True)
class RematSweepRequest(ExperimentRequest):
    """Question for what recomputation costs under each budget, by policy."""

    GROUP = "The budget and the policy"

    policies: Annotated[
        Sequence[str], Opt(f"{POLICIES}{listed(contenders())}).", read=words, common=True, value="POLICIES")
    ] = contenders()
    deallocation: Handling = "eager"
    KIND = "sweep"

    def lines(self) -> Sequence[Line]:
        """A line for each policy."""
        return designs.contest(self.policies, deallocation=self.deallocation)


@dataclass(frozen=True, kw_only=True)
class AblationRequest(ExperimentRequest):
    """Question for the part of a policy that matters."""

    deallocation: Handling = "eager"
    KIND = "ablation"

    def lines(self) -> Sequence[Line]:
        """A line for each cell of the ablation."""
        return designs.ablation(deallocation=self.deallocation)


@dataclass(frozen=True, kw_only=True)
class BanishingRequest(ExperimentRequest):
    """Question for the best way to release what the program drops."""

    KIND = "banishing"

    def lines(self) -> Sequence[Line]:
        """A line for each way."""
        return designs.banishing()


@dataclass(frozen=True, kw_only=True)
class AccessesRequest(ExperimentRequest):
    """Question for the number of storages that policies look at to choose what to evict."""

    GROUP = "The budget and the policy"

    policies: Annotated[
        Sequence[str], Opt(f"{POLICIES}dtr,dtr-eq,dtr-local).", read=words, common=True, value="POLICIES")
    ] = words("dtr,dtr-eq,dtr-local")
    deallocation: Handling = "eager"
    KIND = "accesses"

    def lines(self) -> Sequence[Line]:
        """Two lines for each policy, where bounds rule candidates out."""
        return designs.accesses(self.policies, deallocation=self.deallocation)


@dataclass(frozen=True, kw_only=True)
class RematGrowthRequest(Request):
    """Question for the growth of recomputation with the length of a linear network."""

    GROUP = "The budget and the policy"

    sizes: Annotated[
        Sequence[int], Opt(f"Numbers of layers (default: {listed(SIZES)}).", read=lengths, common=True, value="SIZES")
    ] = SIZES
    budgets: Annotated[
        Sequence[str],
        Opt(
            f"Budgets as functions of them: {', '.join(RULES)} (default: n/2,2sqrt,sqrt+3,log2).",
            read=words,
            common=True,
            value="BUDGETS",
        ),
    ] = ("n/2", "2sqrt", "sqrt+3", "log2")
    policies: Annotated[
        Sequence[str],
        Opt(
            f"Policies, separated by commas (default: {listed(contenders(seeded=False))}).",
            read=words,
            common=True,
            value="POLICIES",
        ),
    ] = contenders(seeded=False)
    limit: Limit = LIMIT
    compat: Annotated[bool, Opt(COMPAT)] = False
    runs: RunsRequest = RunsRequest()


def answer_growth(asked: RematGrowthRequest, say: Say = silent) -> Study:
    """The recomputed ops in linear networks of growing length."""
    with asked.runs.playing(say) as play:
        return asymptotics(
            asked.sizes, asked.budgets, asked.policies, compat=asked.compat, overhead_limit=asked.limit, play=play
        )


@dataclass(frozen=True, kw_only=True)
class FiguresRequest(Request):
    """All experiments on some steps."""

    GROUP = "The budget and the policy"

    steps: StepsRequest
    folder: Annotated[Path, OutFolder("Folder to write to; it is made if missing.", "--out")]
    formats: Annotated[
        tuple[Literal["pdf", "svg", "png"], ...],
        Opt("Figure format (default: pdf, png).", "--format", common=True, group="Output"),
    ] = ("pdf", "png")
    policies: Annotated[
        Sequence[str], Opt(f"{POLICIES}{listed(contenders())}).", read=words, common=True, value="POLICIES")
    ] = contenders()
    sizes: Annotated[
        Sequence[int],
        Opt(
            f"Numbers of layers of the linear networks (default: {listed(SIZES)}).",
            read=lengths,
            common=True,
            value="SIZES",
        ),
    ] = SIZES
    workers: WorkerRequest = WorkerRequest()


def answer_figures(asked: FiguresRequest, say: Say = silent) -> list[Study]:
    """All experiments, that on linear networks last. Finished runs are kept in ``RUNS`` in the folder, which exists."""
    steps = asked.steps
    lines: dict[Kind, Sequence[Line]] = {
        "sweep": designs.contest(asked.policies),
        "ablation": designs.ablation(),
        "banishing": designs.banishing(),
        "accesses": designs.accesses(),
    }
    subjects = steps.subjects(say)
    runs = RunsRequest(save=asked.folder / RUNS, workers=asked.workers)
    with runs.playing(say) as play:
        studies = [
            conduct(kind, subjects, each, steps.budgets, overhead_limit=steps.limit, play=play)
            for kind, each in lines.items()
        ]
    grown = answer_growth(RematGrowthRequest(sizes=asked.sizes, compat=steps.step.compat, runs=runs), say)
    return [*studies, grown]
