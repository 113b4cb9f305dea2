"""A step, written to a file: its Graph, a DTR log, a Chakra trace, or the files of G10."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from tensortide.errors import RequestError
from tensortide.graph import Graph, save
from tensortide.graph.file import SUFFIX
from tensortide.importers.chakra.files import SUFFIX as CHAKRA
from tensortide.importers.chakra.files import write_chakra
from tensortide.importers.chakra.graph import chakra_of
from tensortide.importers.door import File, resolve
from tensortide.importers.dtrlog.write import is_log_file, write_log
from tensortide.importers.g10.analysis import Order
from tensortide.importers.g10.export import Format, write_liveness_files
from tensortide.importers.g10.importer import is_config, read_config
from tensortide.importers.imported import Imported, with_names
from tensortide.progress import Say, silent
from tensortide.recorder import resolver
from tensortide.recorder.script_command import find_script
from tensortide.request import Arg, Opt, OutFile, Request, exclusive
from tensortide.targets.durations import timed
from tensortide.targets.opening import opened
from tensortide.targets.requests import TARGET, TimedRequest
from tensortide.timing.durations import times_of
from tensortide.write import check_writable


@dataclass(frozen=True, kw_only=True)
class G10Request(Request):
    """Files of G10 and of the tensor liveness tool derived from it."""

    GROUP = "Files of G10"

    g10: Annotated[
        Path | None,
        Opt(
            "Write files of G10 to this folder: kernels, tensors and liveness in statistics/, two logs beside it "
            "(default: the folder that a configuration file of the tensor liveness tool names).",
            value="FOLDER",
        ),
    ] = None
    formats: Annotated[tuple[Format, ...], Opt("With --g10: layouts (default: config).", "--format")] = ("config",)
    with_times: Annotated[bool, Opt("With --g10: put the time of each kernel into kernels.config.")] = False
    order: Annotated[Order, Opt("With --g10: order of periods in TensorPeriodLog.", "--period-order")] = "creation"

    log_suffix: Annotated[
        str,
        Opt("With --g10: text behind the name of the folder in the names of the two logs (-run2).", value="SUFFIX"),
    ] = ""

    def folder(self, target: str, output: Path | None) -> Path | None:
        """The folder to write to; None if the output is one file. Raises RequestError for options without one."""
        found = self.g10
        if found is None and output is None and isinstance(file := resolve(target), File):
            found = read_config(file.path).output_folder if is_config(file.path) else None
        if found is None and (others := self.given()):
            raise RequestError(f"{others[0].name} goes with --g10")
        return found

    def write(self, step: Imported, folder: Path) -> tuple[Path, ...]:
        """Write the files. Raises OutputError; TraceError for tensors without a size."""
        assert step.durations is not None
        times = step.times or times_of(step.durations)
        return write_liveness_files(
            step if step.kernels else with_names(step.graph, times),
            folder,
            times=times,
            with_times=self.with_times,
            order=self.order,
            formats=self.formats,
            log_suffix=self.log_suffix,
        )


@dataclass(frozen=True, kw_only=True)
class SaveRequest(Request):
    """Write the step to a file."""

    target: Annotated[str, Arg(TARGET)] = ""
    output: Annotated[
        Path | None,
        OutFile(
            "File to write (default: NAME.tide). With durations also a DTR log (NAME.log or "
            ".jsonl, also .gz) or a Chakra execution trace (NAME.et).",
            "--output -o",
            replaces=SUFFIX,
        ),
    ] = None
    files: G10Request = G10Request()
    step: TimedRequest = TimedRequest()

    RULES = (exclusive("output", "g10", why="they are different files, so capture once for each"),)


class Saved(NamedTuple):
    """A step, and the file or folder that it was written to."""

    graph: Graph
    path: Path


def answer(asked: SaveRequest, say: Say = silent) -> Saved:
    """Capture or read the step, and write it.

    Raises:
        RequestError: options do not go with the target, or with the kind of file that is written.
        OutputError: it cannot be written.
    """
    folder = asked.files.folder(asked.target, asked.output)
    path = folder or check_writable(asked.output or Path(_name(asked.target) + SUFFIX), replaces=SUFFIX)
    chakra = folder is None and path.suffix == CHAKRA
    if folder is None and not chakra and not is_log_file(path):
        if asked.step.times.given():
            raise RequestError(
                "--durations and --measure go with a log or a trace (-o NAME.log, NAME.et), or with --g10"
            )
        graph = opened(resolve(asked.target), asked.step.capture, say, exact=True, durations=False).graph
        save(graph, path)
        return Saved(graph, path)
    step = timed(resolve(asked.target), asked.step, say=say)
    if folder is not None:
        asked.files.write(step, folder)
    elif chakra:
        write_chakra(chakra_of(step.graph, step.durations, resolver=resolver), path)
    else:
        write_log(step.events or step.graph, step.durations.ns if step.durations else None, path)
    return Saved(step.graph, path)


def _name(target: str) -> str:
    """Name the file to write after the target."""
    if (script := find_script(target)) is not None:
        return script.name.removesuffix(".py")
    return target.rpartition(":")[2].rpartition("/")[2].removesuffix(SUFFIX)
