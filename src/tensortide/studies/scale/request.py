"""A step on many devices: what is asked, and the study that answers it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import structs

from tensortide.dtypes import dtype_named, is_float, tagged
from tensortide.errors import DegreesError, RequestError
from tensortide.executors.request import WorkerRequest
from tensortide.graph import Graph, unrolled
from tensortide.importers.door import resolve
from tensortide.parallelism.closed import transformer
from tensortide.parallelism.closed.configuration import Configuration, Recompute, no_experts
from tensortide.parallelism.closed.transformer import Transformer
from tensortide.parallelism.degrees import KeysBy
from tensortide.parallelism.pipelines import DEFAULT_SCHEDULE, SCHEDULES, PipelineName
from tensortide.plans import Plan, load_plan
from tensortide.progress import UNWATCHED, Say, Search
from tensortide.recorder import resolver
from tensortide.recorder.script_command import PREFIX, Script
from tensortide.request import Arg, Opt, Request, either, exclusive, needs
from tensortide.studies.scale.captured import Captured, samples_of, tokens_of
from tensortide.studies.scale.launched import Launch, Launched, known_degrees
from tensortide.studies.scale.predictors import ClosedForm, Predictor
from tensortide.studies.scale.problem import DegreeRequest, Problem, known
from tensortide.studies.scale.run import check_runnable, run_best
from tensortide.studies.scale.study import Scale, scale, with_faster_recomputation
from tensortide.targets.machines import machines_of, nodes_for, one_of, say_wiring
from tensortide.targets.opening import graph_of
from tensortide.targets.requests import TARGET, CaptureRequest, LinkRatesRequest, single_machine
from tensortide.timing import DEFAULT_DEVICE
from tensortide.timing.attention import KERNELS, USUAL, Kernel
from tensortide.timing.collectives import Nodes
from tensortide.timing.collectives.nodes import NIC, unknown_rate
from tensortide.units import parse_bytes

LOG = logging.getLogger("tensortide")
DTYPE = "bfloat16"
_KINDS: dict[str, Recompute] = {"none": "none", "selective": "selective", "ops": "ops", "full": "full"}
"""Kinds of recomputation that need no plan."""
Attention: TypeAlias = Literal["unfused"] | Kernel
_CAPTURED = (
    "a captured step has the dtypes of its tensors, so capture it under torch.autocast, or with parameters of that type"
)


def _trained_dtype(text: str) -> str:
    """The name of a dtype in which products have gradients. Raises RequestError for another one."""
    name = dtype_named(text)
    if not is_float(name):
        raise RequestError(f"a training step has no products of {name}: gradients take a dtype with fractions, as bf16")
    return name


@dataclass(frozen=True, kw_only=True)
class StrategyRequest(Request):
    """Choices that a step depends on beside the degrees: ZeRO, recomputation, schedule, overlap."""

    GROUP = "Memory of a rank"

    zero: Annotated[
        int,
        Opt(
            "ZeRO: 1 divides the optimizer state among replicas, 2 also gradients, 3 also parameters (default: 0, "
            "nothing).",
            least=0,
            most=3,
            common=True,
        ),
    ] = 0
    zero_group: Annotated[
        int | None,
        Opt("Replicas in a group that shards the whole state (default: one group of all).", least=1),
    ] = None
    recompute: Annotated[
        str | None,
        Opt(
            "What to recompute in the backward pass: none, selective (the core of attention), ops (with --model: all "
            "but attention and every second product), full (every block), or a plan for the target, written by "
            "tensortide plan (default: full with --model, else none).",
            value="WHAT",
        ),
    ] = None
    schedule: Annotated[
        PipelineName, Opt(f"Schedule of the pipeline: {', '.join(SCHEDULES)}.", group="Schedule and overlap")
    ] = DEFAULT_SCHEDULE
    sequence: Annotated[bool, Opt("Sequence parallelism: divide along the sequence what tensor ranks replicate.")] = (
        False
    )
    keys: Annotated[
        KeysBy,
        Opt(
            "How context ranks exchange keys and values of fused attention: gather, ring, or zigzag (a ring of ranks "
            "with two parts of each sequence, which mirror each other)."
        ),
    ] = "gather"
    fused_attention: Annotated[bool, Opt(f"Attention that keeps no scores in memory, by {USUAL} (with --model).")] = (
        False
    )
    attention: Annotated[
        Attention | None,
        Opt(
            f"Kernel of attention, with --model: unfused, or one that keeps no scores in memory: {', '.join(KERNELS)} "
            "(default: unfused).",
            group="A transformer in place of a target",
        ),
    ] = None
    overlap: Annotated[
        bool,
        Opt(
            "Overlap communication with compute: gradients, tensor collectives, transfers.",
            group="Schedule and overlap",
        ),
    ] = False
    overlap_data: Annotated[
        bool,
        Opt(
            "Overlap the exchange of gradients and parameters alone: tensor collectives and transfers are exposed.",
            group="Schedule and overlap",
        ),
    ] = False
    gradient_as_bucket_view: Annotated[
        bool,
        Opt("Gradients become views of the buckets of DistributedDataParallel, as its option of this name makes them."),
    ] = False

    RULES = (
        exclusive("gradient_as_bucket_view", "zero", why="ZeRO has no buckets"),
        exclusive("fused_attention", "attention"),
        exclusive("overlap", "overlap_data"),
    )

    @property
    def plan(self) -> Plan | None:
        """The plan of recomputation, if one is given. Raises PlanFileError if it cannot be read."""
        if self.recompute is None or self.recompute in _KINDS:
            return None
        if not Path(self.recompute).exists():
            raise RequestError(
                f"--recompute {self.recompute}: there is no such plan, and it is none of {', '.join(_KINDS)}"
            )
        return load_plan(self.recompute)


@dataclass(frozen=True, kw_only=True)
class ScaleRequest(Request):
    """Run of a step on many devices: in the given configuration, or in the fastest of all."""

    GROUP = "The devices and the batch"

    target: Annotated[str, Arg(TARGET)] = ""
    model: Annotated[
        Transformer | None,
        Opt(
            "A transformer in place of a target: layers=96,hidden=12288,heads=96,seq=2048,vocab=51200; also "
            "feedforward, kv_heads, gated, untied, experts, active; or a published one: llama3-8b, gpt3-175b, mpt-7b "
            "(docs/scale.md).",
            read=transformer,
            common=True,
            value="SIZES",
            group="A transformer in place of a target",
        ),
    ] = None
    devices: Annotated[
        int | None,
        Opt(
            "Number of devices, such as 64, in nodes of 8 (default: that of --machine, as in 64xh100-sxm).",
            least=1,
            common=True,
        ),
    ] = None
    batch: Annotated[
        int | None,
        Opt(
            "Samples in one step of all devices, such as 512 (default: the batch of the target).", least=1, common=True
        ),
    ] = None
    dtype: Annotated[
        str | None,
        Opt(
            f"Type of the products, with --model: {', '.join(tagged('short'))}, nvfp4, ... (default: {DTYPE}).",
            read=_trained_dtype,
            value="TYPE",
            group="A transformer in place of a target",
        ),
    ] = None
    memory: Annotated[
        int | None,
        Opt("Memory of a device for the step, such as 70GiB (default: its usable memory).", read=parse_bytes, least=1),
    ] = None
    price: Annotated[float | None, Opt("Price of a device-hour, from which that of tokens follows.", above=0)] = None
    steps: Annotated[
        int | None,
        Opt(
            "Also run the fastest configuration for this many steps, with a process on this machine per device.",
            "--run",
            least=1,
            group="A run on this machine",
        ),
    ] = None
    degrees: DegreeRequest = DegreeRequest()
    strategy: StrategyRequest = StrategyRequest()
    workers: WorkerRequest = WorkerRequest()
    links: LinkRatesRequest = LinkRatesRequest()
    capture: CaptureRequest = CaptureRequest()

    RULES = (
        single_machine(),
        either("target", "model", why="scale takes a target, or a transformer"),
        needs("dtype", "model", why=_CAPTURED),
        needs("model", "batch", why="the samples of a step of all devices, as --batch 1536"),
        needs("fused_attention", "model"),
        needs("attention", "model", why="a captured step has the kernels that it was captured with"),
        needs("gradient_as_bucket_view", "target", why="a closed form counts no buckets"),
        needs("keys", "target", why="a closed form has a ring with --overlap"),
        needs("keys", "context", why="its ranks exchange keys"),
        *(
            needs(name, "target", why="--model captures nothing")
            for name in ("set", "real", "first_step", "assume", "device", "ranks", "step", "fake")
        ),
    )

    @property
    def machine(self) -> str:
        """The machine as it was asked for, number of devices included."""
        return next(iter(self.capture.machines), DEFAULT_DEVICE)

    @property
    def nodes(self) -> Nodes:
        """The devices."""
        rates = self.links.rates
        found = machines_of(self.machine, rates=rates)
        if self.devices is None:
            return found
        if found.cluster_name:
            raise RequestError(f"--devices goes with devices of the catalogue: {self.machine} has its own")
        if found.size == 1:
            where = rates.spread(found.device, self.devices)
        else:
            where = rates.nodes_of(found.device, found.devices_per_node, max(1, self.devices // found.devices_per_node))
        if where.size != self.devices:
            per = where.devices_per_node
            raise RequestError(f"--devices {self.devices}: devices / node = {self.devices}/{per} is no whole number")
        return where

    @property
    def base(self) -> Configuration:
        """The choices that are not searched; the batch is 1 until that of a target is known."""
        given: dict[str, Any] = {
            name: value
            for name in Configuration.__struct_fields__
            if (value := getattr(self.strategy, name, None)) is not None
        }
        given |= dict.fromkeys(("overlap_tensor", "overlap_pipeline"), self.strategy.overlap)
        given |= {"overlap_data": self.strategy.overlap or self.strategy.overlap_data}
        given |= {"batch": self.batch or 1, "dtype": self.dtype or DTYPE, "recompute": self._recompute()}
        asked = self.strategy.attention
        kernel = USUAL if asked in (None, "unfused") else asked
        fused = self.strategy.fused_attention or asked not in (None, "unfused")
        given |= {"fused_attention": fused, "causal_half": fused, "kernel": kernel}
        return Configuration(**given, compiled=self.model is not None and self.capture.compiled)

    def problem(self) -> Problem:
        """The question to the study. Raises DegreesError for degrees that contradict each other."""
        where = self.nodes
        return Problem(
            nodes=where,
            base=self.base,
            degrees=self.degrees if self.steps is None else replace(self.degrees, tensor=1),
            memory_bytes=where.device.usable_bytes if self.memory is None else self.memory,
            price_per_hour=self.price,
        )

    def _recompute(self) -> Recompute:
        asked = self.strategy.recompute
        if asked is None:
            return "none" if self.model is None else "full"
        if asked not in _KINDS and self.model is not None:
            raise RequestError(f"--recompute {asked}: with --model it is {', '.join(_KINDS)}")
        if asked == "ops" and self.model is None:
            raise RequestError(
                "--recompute ops goes with --model: capture the target with its own checkpointing policy"
            )
        return _KINDS.get(asked, "plan")


def answer(asked: ScaleRequest, search: Search = UNWATCHED) -> Scale | Launched:
    """The study of all candidates, until the search is stopped; of a launch of several ranks as it is.

    Mistakes are errors before anything is captured; only then is the batch of a target known.

    Raises:
        RequestError: the options contradict each other or the machine, or what is found could not run (--run).
        DegreesError: degrees that divide nothing evenly, or what a captured step cannot do.
    """
    if asked.steps is not None:
        check_runnable(asked)
    problem = asked.problem()
    asked.links.require_several(problem.nodes.size)
    say_wiring(problem.nodes)
    if problem.nodes.nic is None:
        why: object = unknown_rate(f"the NICs of {problem.nodes.device.name}", NIC)
        if problem.nodes.size == 1 or problem.nodes.cluster_name:
            why = f"{asked.machine} is one {'node' if problem.nodes.size > 1 else 'device'}"
        LOG.info("scaling to several nodes is left out: %s", why)
    predictor: Predictor
    if asked.model is not None:
        if missing := no_experts(known(asked.degrees.expert), asked.model):
            raise DegreesError(missing)
        predictor = ClosedForm(asked.model)
    else:
        plan = asked.strategy.plan  # a file that is none is an error before the capture
        _require_options(asked)
        graph = unrolled(_graph(asked, asked.target, search.say))
        if (ranks := max(map(len, graph.meta.groups.values()), default=1)) > 1:
            return _launched(asked, problem, graph, ranks, search.say)
        predictor = captured = _captured(graph, asked, problem, plan)
        if asked.batch is None:
            problem = structs.replace(problem, base=structs.replace(problem.base, batch=captured.batch))
    found = scale(problem, predictor, search.known, search.stopped, asked.workers.where)
    return found if asked.model is None else with_faster_recomputation(found, predictor)


def scale_and_run(asked: ScaleRequest) -> Scale | Launched:
    """The study, as ``answer`` has it, with a run of the best configuration where that is asked for."""
    found = answer(asked)
    return run_best(asked, found) if asked.steps is not None and isinstance(found, Scale) and found.best else found


def _graph(asked: ScaleRequest, target: str, say: Say) -> Graph:
    return graph_of(target, replace(asked.capture, machines=(one_of(asked.machine),)), say)


def _require_options(asked: ScaleRequest) -> None:
    """Raise DegreesError for a degree that the command of a launch has no option for, before it is captured."""
    script = resolve(asked.target) if asked.target.startswith(PREFIX) else None
    place = script.launch.place(asked.capture.ranks, asked.capture.rank) if isinstance(script, Script) else None
    if place is not None and place.ranks > 1 and (degrees := _degrees(asked)):
        known_degrees(asked.target, degrees)


def _degrees(asked: ScaleRequest) -> dict[str, int]:
    """The degrees asked for, other than 1."""
    return {name: known(value) for name, value in vars(asked.degrees).items() if value not in (None, 1)}


def _launched(asked: ScaleRequest, problem: Problem, graph: Graph, ranks: int, say: Say) -> Launched:
    """The study of a launch, on one device for each rank. Raises RequestError for fewer devices, DegreesError for
    another number of them, and for options that say how a step is to be divided."""
    if asked.devices not in (None, ranks):
        raise DegreesError(f"the launch has {ranks} ranks: --devices {asked.devices} is another number")
    nodes = nodes_for(asked.machine, ranks, asked.links.rates) if asked.devices is None else problem.nodes
    if asked.strategy != StrategyRequest() or asked.batch is not None:
        raise DegreesError(f"{graph.meta.workload} is a launch of {ranks} ranks: its own options say how it is divided")
    command = asked.target.removeprefix(PREFIX) if asked.target.startswith(PREFIX) else ""
    launch = Launch(command, nodes, problem.memory_bytes)
    return launch.study(graph, _degrees(asked), lambda target: unrolled(_graph(asked, target, say)))


def _captured(graph: Graph, asked: ScaleRequest, problem: Problem, plan: Plan | None) -> Captured:
    """The captured target."""
    batch, tokens = samples_of(graph), tokens_of(graph)
    device, keys = problem.nodes.device, asked.strategy.keys
    return Captured(graph, device, batch=batch, tokens=tokens, resolver=resolver, plan=plan, keys=keys)
