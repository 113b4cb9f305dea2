"""Files of G10 and of the tensor liveness tool, as ``tensortide capture`` writes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from tensortide.cli.source import option
from tensortide.errors import WorkloadError
from tensortide.importers.door import File, resolve
from tensortide.importers.imported import Imported, with_names

__all__ = ["G10Options"]


@Parameter(name="*")
@dataclass(frozen=True)
class G10Options:
    """Files of G10 and of the tensor liveness tool that came from it."""

    g10: Annotated[
        Path | None,
        option(
            "--g10",
            "Write files of G10: kernels, tensors and liveness into statistics/ of this folder, two logs beside it "
            "(default: the folder that a configuration of the tensor liveness tool names).",
        ),
    ] = None
    formats: Annotated[
        tuple[Literal["config", "json", "csv", "parquet"], ...],
        Parameter(name=["--format"], negative=(), help="Of --g10: layouts; once for each."),
    ] = ("config",)
    with_times: Annotated[
        bool, option("--with-times", "Of --g10: put the time of each kernel into kernels.config.")
    ] = False
    order: Annotated[
        Literal["creation", "time_size"],
        Parameter(name="--period-order", help="Of --g10: order of periods in TensorPeriodLog."),
    ] = "creation"

    def folder(self, target: str, output: Path | None) -> Path | None:
        """Choose the folder to write to; None: another kind of file. Raises WorkloadError if both are asked for."""
        if self.g10 is not None and output is not None:
            raise WorkloadError("-o and --g10 write different files: capture once for each")
        found = self.g10
        if found is None and output is None and isinstance(file := resolve(target), File):
            found = _results(file.path)
        if found is None and self != G10Options():
            raise WorkloadError("--format, --with-times and --period-order go with --g10")
        return found

    def write(self, step: Imported, folder: Path) -> tuple[Path, ...]:
        """Write the files. Raises OutputError; TraceError for tensors without a size."""
        from tensortide.importers.g10.export import write_liveness_files
        from tensortide.timing.exact import times_of

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


def _results(path: Path) -> Path | None:
    """Find the folder that a configuration file at ``path`` names for its results."""
    from tensortide.importers.g10.config import read_config
    from tensortide.importers.g10.importer import is_config

    return read_config(path).output_folder if is_config(path) else None
