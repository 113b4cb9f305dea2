"""Configuration files of Exprimo: a net, a device graph, an optimizer and its arguments.

They are read unchanged. A key that is not known, a value of another kind and keys that contradict each other are errors
that name file and line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec

from tensortide.errors import PlacementError
from tensortide.file_faults import reader
from tensortide.studies.placement.optimizers import Arguments, arguments_of
from tensortide.timing.json_file import read_json
from tensortide.timing.paleo.nets import names_like


class Benchmark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Timing of real batches: how many, and how many of the first are left out of the mean. ``device_map`` is from
    numbers of devices to those of PyTorch. What is trained is the network of the file, whatever ``model_type`` calls
    it."""

    model_type: str = "resnet"
    batches: Annotated[int, msgspec.Meta(ge=1)] = 50
    drop_batches: Annotated[int, msgspec.Meta(ge=0)] = 1
    lr: float = 0.01
    device_map: dict[str, Any] | None = None
    gpu_memory_limit: float | None = None
    verbose: bool | int = False

    @property
    def timed(self) -> str:
        """The batches whose mean time counts."""
        first = self.drop_batches + 1
        counted = f"batch {first}" if first == self.batches else f"batches {first} to {self.batches}"
        return f"the mean of {counted}: batches {self.batches}, drop_batches {self.drop_batches}"


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of a file, with their defaults."""

    device_graph_path: str
    net_path: str
    optimizer: str
    optimizer_args: dict[str, Any] = {}
    log_dir: str | None = None
    benchmark_solution: bool = False
    plot_event_trace: bool = True
    print_memory_usage: bool = False
    print_event_trace: bool = False
    drop_last_dataset_batch: bool = True


@dataclass(frozen=True)
class Config:
    """A configuration: paths found, arguments checked. ``folder`` is for artefacts, None if the file names none."""

    path: Path
    net: Path
    device_graph: Path
    optimizer: str
    arguments: Arguments
    benchmark: Benchmark | None
    folder: Path | None
    benchmark_solution: bool
    plot_event_trace: bool
    print_memory_usage: bool
    print_event_trace: bool

    @property
    def measures(self) -> bool:
        """True if the file asks for real measurements."""
        return self.benchmark_solution or self.benchmark is not None


@reader
def read_config(path: Path) -> Config:
    """Read a configuration file.

    Raises TensortideError, with file and line, for a file that is none, a key that is not known, a value that cannot
    be, keys that contradict each other, and a net or device graph that is not found.
    """
    raw = read_json(path, dict[str, Any], "a configuration")
    source = _Source(path, path.read_text("utf-8"))
    source.check_keys(raw, [field.name for field in msgspec.structs.fields(_File)], "")
    file = source.converted(raw, _File)
    kind = arguments_of(file.optimizer)
    if isinstance(kind, str):
        source.fail("optimizer", kind)
    source.check_keys(
        file.optimizer_args, [field.encode_name for field in msgspec.structs.fields(kind)], "optimizer_args"
    )
    arguments: Arguments = source.converted(file.optimizer_args, kind)
    benchmark = None if arguments.benchmarking_function is None else source.benchmark(arguments.benchmarking_function)
    for keys, reason in arguments.contradictions():
        fault = f"{' and '.join(keys)} contradict each other" if len(keys) > 1 else keys[0]
        source.fail(keys[0], f"{fault}: {reason}", keys[1:])
    return Config(
        path=path,
        net=source.found("net_path", file.net_path),
        device_graph=source.found("device_graph_path", file.device_graph_path),
        optimizer=file.optimizer,
        arguments=arguments,
        benchmark=benchmark,
        folder=None if file.log_dir is None else Path(file.log_dir).expanduser(),
        benchmark_solution=file.benchmark_solution,
        plot_event_trace=file.plot_event_trace,
        print_memory_usage=file.print_memory_usage,
        print_event_trace=file.print_event_trace,
    )


@dataclass(frozen=True)
class _Source:
    """The text of a file, for messages that name a line."""

    path: Path
    text: str

    def line(self, key: str) -> int | None:
        """The first line on which ``key`` stands."""
        found = re.search(rf'"{re.escape(key)}"\s*:', self.text)
        return None if found is None else self.text.count("\n", 0, found.start()) + 1

    def fail(self, key: str, reason: str, others: tuple[str, ...] = ()) -> NoReturn:
        """Raise PlacementError at the line of ``key``; ``others`` stand on lines that are named too."""
        line = self.line(key)
        lines = [f"{other} on line {at}" for other in others if (at := self.line(other)) is not None]
        place = f"{self.path}:{line}" if line else str(self.path)
        more = f" ({', '.join(lines)})" if lines else ""
        raise PlacementError(f"{place}: {reason}{more}.")

    def check_keys(self, given: dict[str, Any], known: list[str], of: str) -> None:
        """Raise PlacementError for a key that is not ``known``."""
        for key in given:
            if key not in known:
                where = f" of {of}" if of else ""
                self.fail(key, f"unknown key {key!r}{where}; {names_like(key, known)}")

    def converted(self, given: dict[str, Any], kind: Any) -> Any:
        """Make a ``kind`` of ``given``."""
        try:
            return msgspec.convert(given, kind)
        except msgspec.ValidationError as error:
            key = re.search(r"`\$\.([\w]+)", str(error))
            self.fail(key[1] if key else "", str(error))

    def benchmark(self, given: dict[str, Any]) -> Benchmark:
        """The measuring function. Raises PlacementError where no batch is left to time, too."""
        self.check_keys(given, [field.name for field in msgspec.structs.fields(Benchmark)], "benchmarking_function")
        made: Benchmark = self.converted(given, Benchmark)
        if made.drop_batches >= made.batches:
            key = "drop_batches" if "drop_batches" in given else "benchmarking_function"
            reason = f"drop_batches {made.drop_batches} of batches {made.batches} leave none to time"
            self.fail(key, f"drop_batches and batches of benchmarking_function contradict each other: {reason}")
        return made

    def found(self, key: str, name: str) -> Path:
        """The file that ``name`` means: in the working directory, the folder of the configuration or one above it."""
        places = [Path(name).expanduser(), *(folder / name for folder in self.path.resolve().parents)]
        found = next((place for place in places if place.is_file()), None)
        if found is None:
            self.fail(key, f"there is no file {name}, in the working directory or beside or above {self.path.name}")
        return found
