"""The options every verb shares, those of importers among them, and the Graph they lead to."""

from __future__ import annotations

import ast
import dataclasses
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Parameter, validators

from tensortide.cli.local import device_named, full_name, is_local, kernels_of, strict_name
from tensortide.cli.messages import one_line, say_warning
from tensortide.cli.numbers import Real
from tensortide.cli.reading_options import SHARED, ReadingOptions
from tensortide.errors import CaptureError, WorkloadError
from tensortide.graph import TRIPS, Graph
from tensortide.graph.plain import plain
from tensortide.importers import built
from tensortide.importers.door import Built, File, resolve
from tensortide.importers.imported import Imported
from tensortide.recorder import capture
from tensortide.recorder.script import PATIENCE_S, Script, ScriptOptions, capture_script
from tensortide.recorder.target import Scalar, Workload, parse_settings
from tensortide.timelines.machines import Machines, split
from tensortide.timing.catalogue import DEFAULT_DEVICE
from tensortide.timing.local import NAME

if TYPE_CHECKING:
    from rich.console import Console

Made = TypeVar("Made")


def option(names: str, text: str) -> Parameter:
    """An option without a negative form or a shown default."""
    return Parameter(name=names.split(), negative=(), show_default=False, help=text)


Depth = Annotated[int, Parameter(help="Levels of the module tree to show.", validator=validators.Number(gte=0))]
Top = Annotated[int, Parameter(help="Number of rows to show of each list.", validator=validators.Number(gte=0))]
TARGET = (
    "A built-in example, file.py:function, package.module:function, the command of a training script after -- "
    "(-- python train.py --its arguments), or a file or folder of a kind that tensortide capture --kinds lists"
)
Target = Annotated[str, Parameter(help=f"{TARGET}.")]
LINE_S = 10.0
"""Seconds from one line of progress to the next where standard error is no terminal."""
SETTINGS = "Set a hyperparameter: key=value. Repeatable: --set a=1 --set b=2."
ASSUME = (
    "A value that a line reads, or the number of elements that it selects: train.py:41=128 (for formulas also in "
    "hyperparameters: train.py:41=batch*seq). Repeatable."
)
Settings = Annotated[tuple[str, ...], option("--set", SETTINGS)]
Strict = Annotated[
    bool, option("--strict", "An op without a cost rule is an error, and an assumption that ops or sizes depend on.")
]


@Parameter(name="*")
@dataclass(frozen=True)
class CaptureOptions:
    """Options of capturing the target."""

    set: Settings = ()
    real: Annotated[bool, option("--real", "Capture on real tensors instead of fake ones.")] = False
    first_step: Annotated[
        bool, option("--first-step", "Record the very first step, which creates the optimizer state.")
    ] = False
    assume: Annotated[tuple[str, ...], option("--assume", ASSUME)] = ()
    device: Annotated[
        str | None,
        option(
            "--device",
            "Device to capture the step for: cpu or cuda, which needs no GPU here (default: the workload's own, else "
            "cpu). For a file: the device whose memory is shown.",
        ),
    ] = None
    machines: Annotated[
        tuple[str, ...],
        option(
            "--machine",
            f"Machine of the catalogue (h100, t4, ...) for kernels and times; {NAME}: this one, as tensortide time "
            f"calibrate measured it; or a JSON file (default: {DEFAULT_DEVICE}). tensortide time --list shows them.",
        ),
    ] = ()
    ranks: Annotated[
        int | None,
        option("--ranks", "Capture rank 0 of this many processes (DDP, FSDP, tensor parallel), in a single process."),
    ] = None
    compiled: Annotated[
        bool,
        option(
            "--compiled",
            "The ops of the graphs that torch.compile makes: of what the step compiles, else of its whole model.",
        ),
    ] = False
    step: Annotated[
        str | None,
        option(
            "--step",
            "For a script: the training step to record (default: 2). For a trace: the target that was profiled.",
        ),
    ] = None
    keep_running: Annotated[
        bool,
        option("--keep-running", "For a script: let it run to its end instead of stopping after the recorded step."),
    ] = False
    fake: Annotated[
        bool, option("--fake", "For a script: run it on fake tensors, if its model is too large for this machine.")
    ] = False
    patience: Annotated[
        float | None,
        option(
            "--patience",
            f"For a script: the seconds in which it must end after the recorded step, before it is killed "
            f"(default: {PATIENCE_S:.0f}).",
        ),
        Parameter(validator=Real(least=0)),
    ] = None
    compare: Annotated[bool, Parameter(parse=False)] = False
    """True to run a script again where it reads values, to tell whether its step depends on them."""
    reading: Annotated[ReadingOptions, Parameter(name="*", show=False)] = dataclasses.field(
        default_factory=ReadingOptions
    )

    @property
    def machine(self) -> str | None:
        """The machine by its name in the catalogue; None if none is given. Raises WorkloadError for several."""
        if len(self.machines) > 1:
            raise WorkloadError("one --machine goes with this; tensortide time and fit take several")
        return full_name(self.machines[0]) if self.machines else None

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
            strict_name(split(text)[1])

    def of_file(self) -> dict[str, object]:
        """Return the importer options that were given."""
        shared = {name: value for name in SHARED if (value := getattr(self, name)) is not None}
        return {**self.reading.given(), **shared}

    def refuse_script(self, target: str) -> None:
        """Raise WorkloadError if an option of scripts is given for a ``target`` that is not a script."""
        given = {"--step": self.step is not None, "--keep-running": self.keep_running, "--fake": self.fake}
        given["--patience"] = self.patience is not None
        for name in (name for name, is_given in given.items() if is_given):
            raise WorkloadError(f"{target}: {name} goes with a script, as in -- python train.py")

    def of_script(self, script: Script) -> ScriptOptions:
        """Return the options of a script. Raises WorkloadError for options of other targets, and for contradictions."""
        self.reading.refuse(str(script))
        if self.set:
            raise WorkloadError(f"{script}: --set goes with a workload; give the script its own arguments")
        step = 1 if self.first_step else 2 if self.step is None else int(self.step) if self.step.isdecimal() else 0
        if not step:
            raise WorkloadError(f"--step takes the number of a training step, counted from 1, not {self.step!r}")
        if self.first_step and self.step not in (None, "1"):
            raise WorkloadError("--first-step is --step 1: give one of them")
        assume = assumed(self.assume)
        return ScriptOptions(
            *(step, self.real, self.fake, self.keep_running, assume, self.device, self.kernels, self.ranks),
            compiled=self.compiled,
            compare=self.compare,
            patience=PATIENCE_S if self.patience is None else self.patience,
        )


@Parameter(name="*", group="Captured steps: the capture")
@dataclass(frozen=True)
class PlacedCapture(CaptureOptions):
    """The same for a verb whose ``--machine`` is a cluster."""

    machines: Annotated[tuple[str, ...], Parameter(parse=False)] = ()


@Parameter(name="*")
@dataclass(frozen=True)
class OutputOptions:
    """Options of printing results."""

    json: Annotated[bool, option("--json", "Print JSON instead of text.")] = False
    quiet: Annotated[
        bool, option("--quiet -q", "Print no progress, no names of written files, and no standard output of a script.")
    ] = False


def machines_of(text: str, *, strict: bool = False) -> Machines:
    """The machines that ``text`` means: ``4xh100-sxm``. With ``strict`` a name short for several is an error."""
    counts, name = split(text)
    if is_local(name) and counts != (1, 1):
        raise WorkloadError(f"{text}: {NAME} is one machine; name a device of the catalogue to ask for several")
    return Machines(text, device_named(strict_name(name) if strict else full_name(name)), *counts)


def graph_of(target: str, options: CaptureOptions, *, quiet: bool) -> Graph:
    """Return the Graph of ``target``: captured if it is a workload, else read."""
    return opened(resolve(target), options, quiet=quiet, durations=False).graph


def opened(found: Workload | Script | File, options: CaptureOptions, *, quiet: bool, **reading: object) -> Imported:
    """Capture or read a target; ``reading`` are further options of its importer."""
    if isinstance(found, File):
        step = found.read(symbols_of(found, options), **options.of_file(), **reading)
        step.graph.index.device(options.device)  # an error if nothing is on it
        return replace(step, graph=plain(step.graph))
    if isinstance(found, Script):
        return Imported(capture_script(found, options.of_script(found), quiet=quiet, say=say_warning))
    settings, assume = settings_of(found, options), assumed(options.assume)
    how: dict[str, object] = {"real": options.real or None, "assume": assume, "first_step": options.first_step}
    how |= {"device": options.device, "machine": options.kernels, "ranks": options.ranks}
    how["compiled"] = options.compiled
    graph = with_progress(capture, found, settings, quiet=quiet, **how)
    if options.wants_gpu and graph.index.main_device == "cpu":
        say_warning(
            f"the step stays on the CPU: {found.name} puts its tensors there itself. Where a hyperparameter says so, "
            "set it: --set device=cuda"
        )
    return Imported(graph)


def require_certain(graph: Graph) -> None:
    """Raise CaptureError if ops or sizes of ``graph`` depend on what was assumed, or may."""
    if found := (*graph.meta.decisive, *graph.meta.untested):
        listed = "\n  ".join(found)
        raise CaptureError(
            f"--strict: ops or sizes of the step depend on what was assumed:\n  {listed}\n"
            "Give the values (--assume FILE:LINE=VALUE), or capture on real tensors (--real; a script: no --fake)."
        )


def assumed(texts: Sequence[str], *, expressions: bool = False) -> dict[str, Any]:
    """Return the values of ``--assume`` by place; ``expressions`` in hyperparameters are texts.

    Raises WorkloadError for a malformed one.
    """
    values: dict[str, Any] = {}
    for text in texts:
        place, equals, value = text.rpartition("=")
        file, colon, line = place.strip().rpartition(":")
        known = {"true": True, "false": False}.get(value.strip().lower())
        try:
            number = known if known is not None else ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            number = value.strip() if expressions and value.strip() else None
        kinds = (bool, int, float, str) if expressions else (bool, int, float)
        if not (equals and file and colon and line.isdecimal() and isinstance(number, kinds)):
            raise WorkloadError(f"--assume takes FILE:LINE=NUMBER, as train.py:41=128, not {text!r}")
        values[place.strip()] = number
    return values


def with_progress(
    make: Callable[..., Made], workload: Workload, settings: Mapping[str, Scalar], *, quiet: bool, **how: Any
) -> Made:
    """Call ``make`` on a workload at these settings, and show its progress unless ``quiet``."""
    with progress(quiet) as say:
        return make(workload.function, hyperparameters=settings, name=workload.name, progress=say, **how)


def settings_of(found: Workload, options: CaptureOptions) -> dict[str, Scalar]:
    """Return the hyperparameters. Raises WorkloadError for unknown ones, and for options of files and scripts."""
    options.reading.refuse(f"{found.name} is a workload")
    options.refuse_script(f"{found.name} is a workload")
    return parse_settings(options.set, found.function, found.name)


def symbols_of(found: File, options: CaptureOptions) -> Mapping[str, Scalar]:
    """Return the values of symbols, or the hyperparameters of a function that returns an object of a framework. Raises
    WorkloadError for a symbol that is no positive integer, and for options that go with other targets."""
    if options.real or options.first_step or options.assume or options.compiled:
        raise WorkloadError(f"{found}: --real, --assume, --compiled and --first-step go with a workload")
    replace(options, step=None).refuse_script(str(found))
    if isinstance(found, Built):
        return built.settings_of(found.workload, options.set)
    values: dict[str, int] = {}
    for setting in options.set:
        name, _, text = setting.rpartition("=")
        if not name or not text.strip().isdecimal() or not (int(text) or name.startswith(TRIPS)):
            raise WorkloadError(f"{found}: --set takes name=value with a positive integer, not {setting!r}")
        values[name.strip()] = int(text)
    return values


def workload_of(target: str, verb: str) -> Workload:
    """Return the workload ``target``, whatever its function returns. Raises WorkloadError for a file or a script."""
    found = resolve(target)
    return found.workload if isinstance(found, Built) else step_of(target, verb)


def step_of(target: str, verb: str) -> Workload:
    """Return the workload ``target``, for a verb that runs it. Raises WorkloadError for a file or a script."""
    found = resolve(target)
    if isinstance(found, Script):
        other = " (or open tensortide.budget(...) around the script's training loop)" if verb == "run" else ""
        raise WorkloadError(f"{found}, which has no step to call: {verb} goes with a workload, file.py:function{other}")
    if isinstance(found, File):
        raise WorkloadError(f"{found}, which has no step to run: {verb} goes with a workload")
    return found


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a message: on a terminal after a second of work, else as a line now and then."""
    if quiet:
        yield lambda message: None
        return
    if not sys.stderr.isatty():
        with _now_and_then() as say:
            yield say
        return
    from rich.console import Console
    from rich.status import Status
    from rich.text import Text

    status = Status("", console=Console(stderr=True))
    late = threading.Timer(1.0, status.start)
    late.daemon = True
    late.start()
    try:
        yield lambda message: status.update(Text(f"{one_line(message)} ..."))
    finally:
        late.cancel()
        status.stop()


@contextmanager
def _now_and_then() -> Iterator[Callable[[str], None]]:
    """Yield a function that prints a message as a line, ``LINE_S`` after the last line or the start; of several until
    then the last."""
    start = printed = time.monotonic()
    latest = ""
    waiting: threading.Timer | None = None

    def print_line() -> None:
        nonlocal printed, waiting
        printed, waiting = time.monotonic(), None
        sys.stderr.write(f"{printed - start:.0f} s: {one_line(latest)}\n")
        sys.stderr.flush()

    def say(message: str) -> None:
        nonlocal latest, waiting
        latest = message
        left = printed + LINE_S - time.monotonic()
        if left <= 0 and waiting is None:
            print_line()
        elif waiting is None:
            waiting = threading.Timer(left, print_line)
            waiting.daemon = True
            waiting.start()

    try:
        yield say
    finally:
        if waiting is not None:
            waiting.cancel()


def console() -> Console:
    """Return a console for standard output: styled on a terminal, plain and 100 columns wide in a pipe."""
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            """Leave the error to whoever prints: the program ends with the status of a broken pipe, not with rich's."""
            raise  # noqa: PLE0704 # rich calls this where it handles the error

    terminal = sys.stdout is not None and sys.stdout.isatty()  # None if it was closed
    if terminal:
        return PipeConsole(highlight=False, emoji=False)  # a target called train.py:fire: is no picture
    return PipeConsole(width=100, highlight=False, no_color=True, emoji=False)


def is_stdout(path: Path | None) -> bool:
    """Return whether ``path`` is standard output, whose contents must not be mixed with text."""
    return path is not None and str(path) in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
