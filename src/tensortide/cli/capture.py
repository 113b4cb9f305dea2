"""``tensortide capture``: write one step to a file: its Graph, a DTR log, a Chakra trace, or the files of G10."""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from tensortide.cli.durations import TimeOptions, timed
from tensortide.cli.expressions import opened_exactly
from tensortide.cli.show import show, tell
from tensortide.cli.source import (
    TARGET,
    CaptureOptions,
    OutputOptions,
    is_stdout,
    option,
)
from tensortide.errors import WorkloadError
from tensortide.graph import Graph, save
from tensortide.graph.file import SUFFIX
from tensortide.importers.chakra.files import SUFFIX as CHAKRA
from tensortide.importers.chakra.files import write_chakra
from tensortide.importers.chakra.graph import chakra_of
from tensortide.importers.door import File, resolve
from tensortide.importers.dtrlog.write import is_log_file, write_log
from tensortide.importers.imported import Imported, with_names
from tensortide.importers.table import importers
from tensortide.recorder import resolver
from tensortide.recorder.script import find_script
from tensortide.recorder.target import Scalar
from tensortide.write import check_writable

if TYPE_CHECKING:
    from tensortide.examples import Example


@Parameter(name="*")
@dataclass(frozen=True)
class G10Options:
    """Options of ``--g10``: files of G10 and of the tensor liveness tool derived from it."""

    g10: Annotated[
        Path | None,
        option(
            "--g10",
            "Write files of G10 to this folder: kernels, tensors and liveness in statistics/, two logs beside it "
            "(default: the folder that a configuration file of the tensor liveness tool names).",
        ),
    ] = None
    formats: Annotated[
        tuple[Literal["config", "json", "csv", "parquet"], ...],
        Parameter(
            name=["--format"],
            negative=(),
            show_default=False,
            help="With --g10: layouts (default: config). Repeatable.",
        ),
    ] = ("config",)
    with_times: Annotated[
        bool, option("--with-times", "With --g10: put the time of each kernel into kernels.config.")
    ] = False
    order: Annotated[
        Literal["creation", "time_size"],
        Parameter(name="--period-order", help="With --g10: order of periods in TensorPeriodLog."),
    ] = "creation"

    def folder(self, target: str, output: Path | None) -> Path | None:
        """Return the folder to write to; None if the output is one file. Raises WorkloadError if both are given."""
        if self.g10 is not None and output is not None:
            raise WorkloadError("-o and --g10 write different files: capture once for each")
        found = self.g10
        if found is None and output is None and isinstance(file := resolve(target), File):
            from tensortide.importers.g10.importer import is_config, read_config

            found = read_config(file.path).output_folder if is_config(file.path) else None
        if found is None and self != G10Options():
            raise WorkloadError("--format, --with-times and --period-order go with --g10")
        return found

    def write(self, step: Imported, folder: Path) -> tuple[Path, ...]:
        """Write the files. Raises OutputError; TraceError for tensors without a size."""
        from tensortide.importers.g10.export import write_liveness_files
        from tensortide.timing.durations import times_of

        assert step.durations is not None
        times = step.times or times_of(step.durations)
        return write_liveness_files(
            step if step.kernels else with_names(step.graph, times),
            folder,
            times=times,
            with_times=self.with_times,
            order=self.order,
            formats=self.formats,
        )


def capture(
    target: Annotated[
        str,
        option("", f"{TARGET}."),
    ] = "",
    /,
    *,
    output: Annotated[
        Path | None,
        option(
            "--output -o",
            "File to write (default: NAME.tide). With durations: a DTR log (.log or .jsonl, also .gz), or a Chakra "
            "execution trace (.et).",
        ),
    ] = None,
    listed: Annotated[
        bool, option("--list", "List the built-in examples, or the hyperparameters of one, and exit.")
    ] = False,
    kinds: Annotated[
        bool, option("--kinds", "List the kinds of files that every verb reads, with their options, and exit.")
    ] = False,
    g10: G10Options = G10Options(),
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    times: TimeOptions = TimeOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Capture one training step as a graph and save it; every other verb reads the file."""
    if listed:
        _list(target, out)
        return
    if kinds:
        from tensortide.reports.sections.kinds import document

        show(document(importers()), out)
        return
    if not target:
        raise WorkloadError("capture needs a target; tensortide capture --list shows the built-in examples")
    folder = g10.folder(target, output)
    path = folder or check_writable(output or Path(_name(target) + SUFFIX), replaces=SUFFIX)
    chakra = folder is None and path.suffix == CHAKRA
    plain = folder is None and not chakra and not is_log_file(str(path))
    if times != TimeOptions() and plain:
        raise WorkloadError(
            "--durations, --machine and --measure go with a log or a trace (-o NAME.log, NAME.et), or with --g10"
        )
    step = _step(target, options, None if plain else times, quiet=out.quiet)
    if folder is not None:
        g10.write(step, folder)
    elif plain:
        save(step.graph, path)
    elif chakra:
        write_chakra(chakra_of(step.graph, step.durations, resolver=resolver), path)
    else:
        write_log(step.events or step.graph, step.durations.ns if step.durations else None, path)
    if is_stdout(path):
        return
    from tensortide.reports.sections.assumed import brief

    facts = _summary(step.graph, path)
    counts = ", ".join(f"{facts[name]:,} {name}" for name in ("ops", "storages", "modules"))
    assumed = [f"assumed: {note.text}" for note in brief(step.graph)]
    tell(facts, [f"{counts} -> {path}", *assumed], out)


def _step(target: str, options: CaptureOptions, times: TimeOptions | None, *, quiet: bool) -> Imported:
    """Capture or read ``target``, with durations if ``times`` are given."""
    if times is not None:
        return timed(resolve(target), options, times, quiet=quiet)
    return opened_exactly(resolve(target), options, quiet=quiet)


def _list(name: str, out: OutputOptions) -> None:
    """Print the built-in examples, or one with its hyperparameters."""
    from tensortide import examples
    from tensortide.reports.sections.examples import document

    chosen = [examples.find(name)] if name else list(examples.examples())
    rows = [(one.name, one.summary, ", ".join(p for p in one.requires if p != "torch")) for one in chosen]
    show(document(rows, _hyperparameters(chosen[0]) if name else None), out)


def _hyperparameters(example: Example) -> dict[str, Scalar]:
    try:
        parameters = inspect.signature(example.load()).parameters
    except ImportError as error:
        raise WorkloadError(f"{example.name} cannot be imported: {error}") from error
    return {one.name: one.default for one in parameters.values()}


def _name(target: str) -> str:
    """Name the file to write after the target."""
    if (script := find_script(target)) is not None:
        return script.name.removesuffix(".py")
    return target.rpartition(":")[2].rpartition("/")[2].removesuffix(SUFFIX)


def _summary(graph: Graph, path: Path) -> dict[str, object]:
    return {
        "path": str(path),
        "meta": graph.meta,
        "ops": len(graph),
        "ops_by_phase": dict(Counter(op.phase.value for op in graph.ops)),
        "calls": len(graph.calls),
        "tensors": len(graph.tensors),
        "storages": len(graph.storages),
        "modules": len(graph.modules),
    }
