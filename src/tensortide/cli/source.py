"""The options every verb shares, and the Graph they lead to."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from tensortide.cli.tableoptions import FileOptions
from tensortide.errors import WorkloadError
from tensortide.graph import Graph, load
from tensortide.graph.file import SUFFIX
from tensortide.importers.files import GRAPH_FILES, is_graph_file
from tensortide.importers.traces import is_recorded, read_recorded
from tensortide.recorder import capture

if TYPE_CHECKING:
    from rich.console import Console

    from tensortide.cost import Cost
    from tensortide.cost.evaluate import How
    from tensortide.graph import OpView

Depth = Annotated[int, Parameter(help="Levels of the module tree to show.", validator=validators.Number(gte=0))]
Top = Annotated[int, Parameter(help="Number of rows to show of each list.", validator=validators.Number(gte=0))]
STEPS = (
    "file.py:function, package.module:function, an example, a saved graph, a TensorFlow graph (.meta, .pb), a dump of "
    "PyTorch's compiler (fx_graph_transformed.py, or its folder), the folder of a kernel trace"
)
"""What names a step, for help."""
LOGS = f"{STEPS}, or a DTR log (.log, .jsonl, also .gz)"
Target = Annotated[str, Parameter(help=f"{STEPS}.")]


def option(names: str, text: str) -> Parameter:
    """An option that has no opposite, and whose default goes without saying."""
    return Parameter(name=names.split(), negative=(), show_default=False, help=text)


@Parameter(name="*")
@dataclass(frozen=True)
class CaptureOptions:
    """How the target is captured."""

    set: Annotated[
        tuple[str, ...], option("--set", "A hyperparameter: key=value. Once for each: --set a=1 --set b=2.")
    ] = ()
    real: Annotated[bool, option("--real", "Run on real tensors instead of fake ones.")] = False
    first_step: Annotated[
        bool, option("--first-step", "Record the very first step, which creates optimizer state.")
    ] = False


@Parameter(name="*")
@dataclass(frozen=True)
class CostOptions:
    """How costs are totalled."""

    strict: Annotated[bool, option("--strict", "An op without a cost rule is an error.")] = False


@Parameter(name="*")
@dataclass(frozen=True)
class OutputOptions:
    """How results are printed."""

    json: Annotated[bool, option("--json", "Print JSON instead of text.")] = False
    quiet: Annotated[bool, option("--quiet -q", "No progress, no word of the files that were written.")] = False


def graph_of(
    target: str,
    options: CaptureOptions,
    *,
    quiet: bool,
    reading: FileOptions = FileOptions(),  # noqa: B008
) -> Graph:
    """The Graph of ``target``: read if it is a saved graph, else captured."""
    if reading != FileOptions() and not is_graph_file(target):
        raise WorkloadError("--preset, --drop and --bind go with a TensorFlow graph file (.meta)")
    if is_recorded(target):
        return read_recorded(target, bind=symbol_values(target, options)).graph
    if is_saved(target):
        if options != CaptureOptions():
            raise WorkloadError(f"{target} is a saved graph: --set, --real and --first-step go with a workload")
        return load(target)
    if is_graph_file(target):
        from tensortide.cli.graphfile import graph_of_file

        return graph_of_file(target, options, reading)
    from tensortide.recorder.target import find, parse_settings

    workload = find(target)
    with progress(quiet) as say:
        return capture(
            workload,
            hyperparameters=parse_settings(options.set, workload, target),
            real=options.real,
            first_step=options.first_step,
            name=target,
            progress=say,
        )


def symbol_values(file: str, options: CaptureOptions) -> dict[str, int]:
    """The settings as values of symbols. Raises WorkloadError for other options, and what is no positive integer."""
    if options.real or options.first_step:
        raise WorkloadError(f"{file} is a graph: --real and --first-step go with a workload")
    values: dict[str, int] = {}
    for setting in options.set:
        name, _, text = setting.rpartition("=")
        if not name or not text.strip().isdecimal() or not int(text):
            raise WorkloadError(f"--set takes name=value with a positive integer for a graph file, not {setting!r}")
        values[name.strip()] = int(text)
    return values


def is_saved(target: str) -> bool:
    """Whether ``target`` is a saved graph: by its name, or a file that is nothing else."""
    return target.endswith(SUFFIX) or (Path(target).is_file() and not target.endswith((".py", *GRAPH_FILES)))


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A function that says what is being done, on a terminal only; nothing shows for work of under a second."""
    if quiet or not sys.stderr.isatty():
        yield lambda message: None
        return
    from rich.console import Console
    from rich.status import Status

    status = Status("", console=Console(stderr=True))
    late = threading.Timer(1.0, status.start)
    late.daemon = True
    late.start()
    try:
        yield lambda message: status.update(f"{message} ...")
    finally:
        late.cancel()
        status.stop()


def console() -> Console:
    """Standard output: styled on a terminal, plain and 100 wide in a pipe."""
    from rich.console import Console

    return Console(highlight=False) if sys.stdout.isatty() else Console(width=100, highlight=False, no_color=True)


def is_stdout(path: Path | None) -> bool:
    """Whether ``path`` is standard output: what goes there must not be mixed with text."""
    return path is not None and str(path) in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def print_json(value: object) -> None:
    """Print ``value`` (structs, dataclasses, plain data) as JSON."""
    import msgspec

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def resolver(op: OpView) -> tuple[Cost, How] | None:
    """Cost of an op that has no rule, from the framework if it is installed: its formula, or the op's parts."""
    try:
        from tensortide.recorder.fallback import fallback
    except ImportError:
        return None
    return fallback(op)
