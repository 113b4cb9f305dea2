"""The one place where it is decided what a target is: a built-in example, a workload, a workload whose function returns
an object of a framework, or a file that an importer reads.

A bare name is an example first. A target with a path separator or a suffix is a path; whose it is shows in its content.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from tensortide.errors import GraphFileError, TimesError, WorkloadError
from tensortide.file_faults import reading
from tensortide.graph.trips import with_trips
from tensortide.gzipped import MAGIC
from tensortide.importers import built
from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, importers, no_file
from tensortide.importers.textfile import head
from tensortide.python_object import is_path, names_object
from tensortide.recorder.script import Script, ScriptOptions, capture_script, find_script
from tensortide.recorder.target import Scalar, Workload, find_workload, workload


@dataclass(frozen=True)
class File:
    """A file or folder, and the importer that reads it."""

    path: Path
    importer: Importer

    def __str__(self) -> str:
        return f"{self.path} is {self.importer.kind}"

    def read(self, symbols: Mapping[str, Scalar] | None = None, **options: object) -> Imported:
        """Read it: ``symbols`` are values of the symbols in its sizes, and of ``trips.NAME`` for a loop whose trips
        nobody knows; ``options`` are those of its importer."""
        values, trips = self.importer.split(symbols or {})
        if values:
            if not self.importer.has("symbols"):
                raise WorkloadError(f"{self}: settings go with a workload, or with a file whose sizes have symbols")
            options["symbols"] = values
        chosen = self.importer.options_of(options, self.path)
        with reading(self.path, GraphFileError):
            found = self.importer.read(self.path, chosen)
        return replace(found, graph=with_trips(found.graph, trips))


@dataclass(frozen=True)
class Built(File):
    """A workload whose function uses a framework of ``importer``, and so may return an object of it."""

    workload: Workload

    def read(self, symbols: Mapping[str, Scalar] | None = None, **options: object) -> Imported:
        """Call the function and convert what it returns: ``symbols`` are its hyperparameters, and those of the
        importer. What is no such object is taken for a step of PyTorch, and captured."""
        settings = dict(symbols or {})
        if options.get("durations") is False:
            options.pop("durations")
        step = built.converted(self.workload, settings, options)
        if step is not None:
            return step
        from tensortide.recorder import capture

        return Imported(capture(self.workload.function, hyperparameters=settings, name=self.workload.name))


def resolve(target: str | os.PathLike[str]) -> Workload | Script | File:
    """Decide what ``target`` is: an example, ``file.py:function``, ``package.module:function``, a script
    (``-- python train.py --its arguments``), or a file or folder. A function that uses a framework of one of the
    importers is a Built: it is called, to see what it returns, when it is read.

    Raises WorkloadError if it is none of these or cannot be loaded, GraphFileError if no importer reads it.
    """
    if not (text := os.fspath(target)):
        raise WorkloadError("a target is missing; tensortide capture --list shows the built-in examples")
    if (script := find_script(text)) is not None:
        return script
    if isinstance(target, str) and (found := find_workload(target)) is not None:
        takes = built.candidates(found.function) if names_object(target) else ()
        return Built(Path(target), takes[0], found) if takes else found
    path = Path(text)
    if (importer := recognize(path)) is not None:
        return File(path, importer)
    if path.suffix != ".py" and (is_path(text) or not isinstance(target, str)):
        raise GraphFileError(_unread(path))
    return workload(text)


def recognize(path: Path) -> Importer | None:
    """Find the importer that reads what is at ``path``. Raises GraphFileError if there are two."""
    found = [importer for importer in importers() if importer.recognizes(path)]
    if len(found) > 1:
        raise GraphFileError(f"{path} is of {len(found)} importers: {', '.join(importer.name for importer in found)}")
    return found[0] if found else None


def open(
    target: object,
    *,
    hyperparameters: Mapping[str, Scalar] | None = None,
    real: bool | None = None,
    assume: Mapping[str, bool | int | float] | None = None,
    first_step: bool = False,
    device: str | None = None,
    machine: str | None = None,
    ranks: int | None = None,
    compiled: bool = False,
    progress: Callable[[str], None] | None = None,
    **options: object,
) -> Imported:
    """Open a step, whatever it is: the Graph, with durations, events and names where the source has them.

    >>> tensortide.open("gpt2", hyperparameters={"batch": 2}).graph
    >>> tensortide.open("step.tide").durations  # of step.durations.json beside it
    >>> tensortide.open("-- python train.py --lr 1e-3", step=2).graph
    >>> tensortide.open("model.onnx", hyperparameters={"batch": 8}, train=True).graph
    >>> tensortide.open("torchinductor/model__0_forward_1.0/fx_graph_transformed.py", backward="...").graph

    ``target`` is the name of a built-in example, ``file.py:function``, ``package.module:function``, ``--`` and the
    command of a training script (with the options of ``recorder.script.ScriptOptions``), an object of a framework that
    one of the importers accepts (an ExportedProgram, an ONNX ModelProto, a JAX function with its arguments, a Keras
    model, a ``tf.function``), or a file or folder that one of them reads: ``tensortide capture --kinds`` lists these.
    A bare name is an example first; with a path separator or a suffix it is a path, and its content says whose it is.

    ``real``, ``assume``, ``first_step``, ``device``, ``machine``, ``ranks`` and ``compiled`` are those of
    ``tensortide.capture``, for a workload or a script, and so is ``progress``, for a workload. ``hyperparameters`` are
    those of a workload, or values of the symbols in the sizes of a file, and as ``trips.NAME`` how often a loop of
    unknown length runs. ``options`` are those of the importer or the script.

    Raises WorkloadError if there is no such target or an option does not go with it, and what its reader raises.
    """
    if not isinstance(target, str | os.PathLike):
        return _open_object(target, hyperparameters, options)
    found = resolve(target)
    if isinstance(found, File):
        if real or assume or first_step or compiled:
            raise WorkloadError(f"{found}: real, assume, first_step and compiled go with a workload")
        if device or machine or ranks:
            raise WorkloadError(f"{found}: device, machine and ranks go with a workload or a script")
        return found.read(hyperparameters, **options)
    if isinstance(found, Script):
        if hyperparameters:
            raise WorkloadError(f"{found}: hyperparameters go with a workload; give the script its own arguments")
        given = {"real": bool(real), "assume": dict(assume or {}), **({"step": 1} if first_step else {})}
        given |= {"device": device, "machine": machine, "ranks": ranks, "compiled": compiled}
        return Imported(capture_script(found, _script_options(found, {**given, **options})))
    if options:
        raise WorkloadError(f"{target} is a workload: {', '.join(options)} goes with a file")
    from tensortide.recorder import capture

    return Imported(
        capture(
            found.function,
            hyperparameters=hyperparameters,
            real=real,
            assume=assume,
            first_step=first_step,
            device=device,
            machine=machine,
            ranks=ranks,
            compiled=compiled,
            name=found.name,
            progress=progress,
        )
    )


def _open_object(target: object, symbols: Mapping[str, Scalar] | None, options: dict[str, object]) -> Imported:
    """Open an object of a framework: by the importer that accepts it."""
    found = next((importer for importer in importers() if importer.convert and importer.accepts(target)), None)
    if found is None or found.convert is None:
        known = "; ".join(importer.kind for importer in importers() if importer.convert)
        hint = (
            ": PyTorch's modules and steps go to tensortide.capture(model, inputs), functions of JAX stand with their "
            "arguments, open((function, arguments))"
        )
        raise WorkloadError(
            f"a {type(target).__name__} is nothing that tensortide opens{hint * callable(target)}. "
            f"It takes a target, or {known}"
        )
    values, trips = found.split(symbols or {})
    if values:
        options["symbols"] = values
    step = found.convert(target, found.options_of(options, Path(type(target).__name__)))
    return replace(step, graph=with_trips(step.graph, trips))


def _script_options(found: Script, options: Mapping[str, Any]) -> ScriptOptions:
    if unknown := sorted(options.keys() - {field.name for field in fields(ScriptOptions)}):
        raise WorkloadError(f"{found}: {', '.join(unknown)} goes with a file")
    return ScriptOptions(**options)


def _unread(path: Path) -> str:
    """Say why nothing reads ``path``."""
    try:
        path.stat()
    except (OSError, ValueError) as error:
        return f"cannot read {path}: {getattr(error, 'strerror', None) or error}"
    from tensortide.importers.chakra.files import SUFFIX, read_chakra

    why = ", by its content"
    if path.is_file() and not path.stat().st_size:
        why = ": it is empty"
    elif head(path, 2, unpack=False) == MAGIC and not head(path):
        why = ": it begins as a file of gzip does, and is damaged from the start"
    elif path.is_file() and path.name.removesuffix(".gz").endswith(SUFFIX):
        try:
            read_chakra(path)
        except TimesError as error:
            return str(error)
    known = "; ".join(importer.kind for importer in importers() if importer.sniff is not no_file)
    return f"{path} is nothing that tensortide reads{why}. It reads:\n{known}"
