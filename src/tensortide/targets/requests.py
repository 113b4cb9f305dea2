"""Requests about a target: how it is captured or read, and where the durations of its ops come from."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tensortide.errors import RequestError
from tensortide.importers.door import File
from tensortide.recorder.script import IDLE_S, PATIENCE_S, ScriptOptions
from tensortide.recorder.script_command import Script
from tensortide.recorder.suggest import option_for
from tensortide.recorder.target import Workload
from tensortide.request import Opt, Request, Rule, exclusive, option_of
from tensortide.targets.assumptions import assumed
from tensortide.targets.machines import device_named, full_name, kernels_of, strict_name
from tensortide.targets.reading import SHARED, ReadingRequest
from tensortide.timing.cards import Card, card
from tensortide.timing.catalogue import DEFAULT_DEVICE
from tensortide.timing.collectives.nodes import DEVICE_LINK, NIC, LinkRates, counts_and_name
from tensortide.timing.links import rate
from tensortide.timing.local import NAME

TARGET = (
    "A built-in example (gpt2), file.py:function, package.module:function, the command of a training script after -- "
    "(-- python train.py --its arguments), or a file or folder of a kind that tensortide capture --kinds lists."
)
Settings = Annotated[
    tuple[str, ...],
    Opt(
        "Set a hyperparameter of the step: --set batch=16.",
        of=("workload", "file"),
        common=True,
        value="KEY=VALUE",
        group="The step and its capture",
    ),
]
Assume = Annotated[
    tuple[str, ...],
    Opt(
        "A value that a line reads, or the number of elements that it selects: train.py:41=128 (for formulas also in "
        "hyperparameters: train.py:41=batch*seq).",
        of=("workload", "script"),
        value="LINE=VALUE",
        group="The step and its capture",
    ),
]
Strict = Annotated[
    bool,
    Opt(
        "Exit with status 3 if an op has no cost rule, or if the answer depends on an assumed value.",
        "--strict",
        common=True,
        group="What counts as an error",
    ),
]
Depth = Annotated[int, Opt("Levels of modules to show.", "--depth", least=0, group="Output")]
Top = Annotated[int, Opt("Rows to show of each list.", "--top", least=0, common=True, group="Output")]
MeasuredOn = Annotated[
    str,
    Opt("Device to measure on: cpu or cuda.", "--device", common=True, value="DEVICE", group="How times are measured"),
]
_KINDS = {kind: f"a {kind}" for kind in ("step", "workload", "file", "saved status")}
_KINDS["script"] = "a script, as in -- python train.py"
_SINGLE, _OTHERS = "{} takes a single --machine; {}", "tensortide time and fit take several"


def described(found: Workload | Script | File) -> tuple[str, ...]:
    """A target in words, and the kinds of targets that it is of, as ``of`` of options has them."""
    if isinstance(found, Workload):
        return f"{found.name} is a workload", "workload", "step"
    return str(found), *(("script",) if isinstance(found, Script) else ("file", found.importer.kind)), "step"


def refuse(asked: Request, what: str, *kinds: str) -> None:
    """Raise RequestError for an option that does not go with a target of these ``kinds``, which is ``what``; one that
    names no kinds goes with every step."""
    for one in asked.given():
        goes = one.opt.of or ("step",)
        if one.names and not {*kinds} & {*goes}:
            raise RequestError(f"{what}: {one.name} goes with {' or '.join(_KINDS.get(kind, kind) for kind in goes)}")


def single_machine(name: str = "", others: str = _OTHERS) -> Rule:
    """A single machine is given, or one at most with the option ``name``; ``others`` says what several go with."""

    def fault(asked: Request) -> str | None:
        if len(asked.get("machines")) < 2 or (name and not asked.has(name)):
            return None
        return _SINGLE.format(option_of(type(asked), name).name if name else "this", others)

    return Rule(("machines", *([name] if name else [])), fault)


@dataclass(frozen=True, kw_only=True)
class CaptureRequest(Request):
    """Capture of a target, or its reading."""

    GROUP = "The step and its capture"

    set: Settings = ()
    real: Annotated[
        bool, Opt("Capture on real tensors instead of fake ones, which take no memory.", of=("workload", "script"))
    ] = False
    first_step: Annotated[
        bool, Opt("Record the very first step, which creates the optimizer state.", of=("workload", "script"))
    ] = False
    assume: Assume = ()
    device: Annotated[
        str | None,
        Opt(
            "Device to capture the step for: cpu or cuda, which needs no GPU here (default: the workload's own, else "
            "cpu). For a file: the device whose memory is shown.",
            value="DEVICE",
        ),
    ] = None
    machines: Annotated[
        tuple[str, ...],
        Opt(
            "GPU or CPU to answer for: t4, h100, ... (tensortide time --list has all); 24GB, a GPU of that size, "
            f"without times; {NAME}, this machine as tensortide time calibrate measured it; or a JSON file: figures of "
            "your own, or a cluster, of which box.json:gpu0 is one device (docs/machines.md). Times are predicted for "
            f"{DEFAULT_DEVICE} by default. fit and time take several.",
            "--machine",
            common=True,
            value="NAME",
        ),
    ] = ()
    ranks: Annotated[
        int | None,
        Opt(
            "Capture one of this many processes (DDP, FSDP, tensor parallel), in a single process (default: as many "
            "as the launcher of a script starts).",
            least=1,
            most=1 << 20,
        ),
    ] = None
    rank: Annotated[
        int | None,
        Opt(
            "Rank of the process to capture (default: 0, or the first of the node on which a launcher is told to run).",
            least=0,
            of=("workload", "script"),
        ),
    ] = None
    all_stages: Annotated[
        bool,
        Opt(
            "Capture one rank of each stage of a launch, and join their steps: the memory of each, and the time of the "
            "job. For time, memory, fit and report.",
            of=("script",),
        ),
    ] = False
    rules: Annotated[
        Path | None,
        Opt("Cost rules for ops of your own: a TOML file with a row for each, its family and operands (docs/cost.md)."),
    ] = None
    compiled: Annotated[
        bool,
        Opt(
            "Capture the ops of the graphs that torch.compile makes: of what the step compiles, else of its whole "
            "model.",
            of=("workload", "script"),
        ),
    ] = False
    step: Annotated[
        str | None,
        Opt(
            "For a script: the number of the training step to record (default: the first that repeats, from "
            "2 on). For a trace: the target that was profiled.",
            read=str,
            of=("script", "file"),
            value="STEP",
            group="A training script",
        ),
    ] = None
    keep_running: Annotated[
        bool,
        Opt(
            "For a script: let it run to its end instead of stopping after the recorded step.",
            of=("script",),
            group="A training script",
        ),
    ] = False
    fake: Annotated[
        bool,
        Opt(
            "For a script: run it on fake tensors, if its model is too large for this machine.",
            of=("script",),
            group="A training script",
        ),
    ] = False
    patience: Annotated[
        float | None,
        Opt(
            f"For a script: the seconds in which it may do nothing before its step is recorded, and in which it must "
            f"end thereafter, before it is killed (default: {IDLE_S:.0f} and {PATIENCE_S:.0f}).",
            least=0,
            of=("script",),
            value="SECONDS",
            group="A training script",
        ),
    ] = None
    reading: ReadingRequest = dataclasses.field(default_factory=ReadingRequest)

    RULES = (
        exclusive("real", "fake"),
        exclusive("all_stages", "rank"),
        exclusive("all_stages", "compiled"),
        exclusive("all_stages", "real", why="ranks are captured on fake tensors"),
        exclusive("all_stages", "rules"),
    )

    @property
    def machine(self) -> str | None:
        """The machine by its name in the catalogue; None if none is given. Raises RequestError for several."""
        if len(self.machines) > 1:
            raise RequestError(_SINGLE.format("this", _OTHERS))
        return full_name(self.machines[0]) if self.machines else None

    @property
    def card(self) -> Card | None:
        """The card of which the machine is only a size; None for a machine that is named, or none."""
        return None if self.machine is None else card(self.machine)

    @property
    def kernels(self) -> str | None:
        """The machine of the catalogue whose kernels the step is captured with; None: the default."""
        return None if self.machine is None else kernels_of(self.machine)

    @property
    def wants_gpu(self) -> bool:
        """True if the step is to be captured for a GPU."""
        if self.device is not None or self.kernels is None:
            return (self.device or "cpu") != "cpu"
        return device_named(self.kernels).kind != "cpu"

    def require_full_names(self) -> None:
        """Raise TensortideError for a machine whose name is short for several, as ``--strict`` asks."""
        for text in self.machines:
            strict_name(counts_and_name(text)[1])

    def require(self, found: Workload | Script | File) -> None:
        """Raise RequestError for an option that does not go with what the target is."""
        if isinstance(found, Script) and self.set:
            name, _, value = self.set[0].partition("=")
            option = option_for(found.file, name)
            own = f"option, as in {found.target} {option} {value}" if option else "arguments"
            raise RequestError(f"{found}: --set goes with a workload or a file. Give the script its own {own}")
        refuse(self, *described(found))

    def of_file(self) -> dict[str, object]:
        """The options of the importer that are given."""
        shared = {name: value for name in SHARED if (value := getattr(self, name)) is not None}
        return {**self.reading.values(), **shared}

    def of_script(self, *, compare: bool) -> ScriptOptions:
        """The options of a script, which with ``compare`` is run again where it reads values, to tell whether its step
        depends on them. Raises RequestError for steps that are none."""
        step = 1 if self.first_step else None
        if self.step is not None:
            step = int(self.step) if self.step.isdecimal() else 0
        if step == 0:
            raise RequestError(f"--step takes the number of a training step, counted from 1, not {self.step!r}")
        if self.first_step and self.step not in (None, "1"):
            raise RequestError("--first-step is --step 1: give one of them")
        assume = assumed(self.assume)
        return ScriptOptions(
            *(step, self.real, self.fake, self.keep_running, assume, self.device, self.kernels, self.ranks),
            compiled=self.compiled,
            compare=compare,
            patience=PATIENCE_S if self.patience is None else self.patience,
            idle=IDLE_S if self.patience is None else self.patience,
            rank=self.rank,
        )


@dataclass(frozen=True, kw_only=True)
class LinkRatesRequest(Request):
    """Rates of the links between devices, in place of those of the catalogue."""

    GROUP = "The links between devices"

    device_link: Annotated[
        float | None,
        Opt(
            "Rate of a device to the others of its node, in one direction, such as 450GB/s, 400Gbit/s or pcie5 "
            "(default: that of the catalogue, and how it wires a node). fit takes both rates for what it shards over "
            "several of its device.",
            DEVICE_LINK,
            read=rate,
            above=0,
            value="SPEED",
        ),
    ] = None
    nic: Annotated[
        float | None,
        Opt(
            "Rate of the NIC that a device has to other nodes, such as 400Gbit/s (default: that of the catalogue).",
            NIC,
            read=rate,
            above=0,
            value="SPEED",
        ),
    ] = None

    @property
    def rates(self) -> LinkRates:
        """The rates that are given."""
        return LinkRates(self.device_link, self.nic)

    def require_several(self, devices: int, nodes: int = 2) -> None:
        """Raise RequestError for rates of links of one device, which has none, or of NICs within one node."""
        if devices == 1 and (given := self.given()):
            raise RequestError(
                f"{given[0].name} goes with several devices, as --machine 4xh100-sxm: one has no such link"
            )
        if nodes == 1 and self.nic is not None:
            raise RequestError(f"{NIC} goes with several nodes, as --machine 2x8xh100-sxm: nothing leaves one")


@dataclass(frozen=True, kw_only=True)
class TimesRequest(Request):
    """Source of the durations of the ops."""

    GROUP = "Times of ops"

    durations: Annotated[
        Path | None, Opt("File of durations (default: NAME.durations.json beside a saved graph, if it is there).")
    ] = None
    measure: Annotated[
        bool, Opt("Run the step on this machine and time its ops, instead of estimating them.", common=True)
    ] = False

    RULES = (exclusive("durations", "measure"),)


@dataclass(frozen=True, kw_only=True)
class TimedRequest(Request):
    """A step that is captured or read, and the durations of its ops: of one source."""

    capture: CaptureRequest = CaptureRequest()
    times: TimesRequest = TimesRequest()

    RULES = (
        *(exclusive(name, "machines") for name in ("durations", "measure")),
        *(exclusive("measure", name, why="it runs the steady step, eagerly") for name in ("first_step", "compiled")),
    )


@dataclass(frozen=True, kw_only=True)
class ClockRequest(Request):
    """The clock that times are measured by, and the threads that are at work."""

    GROUP = "How times are measured"

    clock: Annotated[
        Literal["wall", "thread"],
        Opt("Measure wall time, or processor time of one thread, for a machine that others share."),
    ] = "wall"
    threads: Annotated[
        int | None, Opt("Threads per op (default: as many as PyTorch takes; with --clock thread: 1).", least=1)
    ] = None

    def conditions(self, device: str | None) -> dict[str, Any]:
        """Clock, threads and device of a measurement."""
        threads = 1 if self.clock == "thread" and self.threads is None else self.threads
        return {"clock": self.clock, "threads": threads, "device": device or "cpu"}


@dataclass(frozen=True, kw_only=True)
class MeasureRequest(ClockRequest):
    """The way in which durations are measured, or the file that they are read from."""

    steps: Annotated[int, Opt("Steps to measure, after warming up.", least=1, common=True)] = 9
    isolated: Annotated[
        bool, Opt("Execute each distinct op by itself, on random tensors; for steps too large to run.")
    ] = False
    recorded: Annotated[
        Path | None,
        Opt(
            "Read times from a file: a trace of PyTorch's profiler (.json, .json.gz), or a list of op and ns "
            "(.csv, .jsonl).",
            "--from",
            common=True,
        ),
    ] = None
    strict: Annotated[
        bool,
        Opt(
            "Fail if an op has no known time, or a machine's name may mean several devices.",
            common=True,
            group="What counts as an error",
        ),
    ] = False

    RULES = (exclusive("isolated", "recorded"),)
