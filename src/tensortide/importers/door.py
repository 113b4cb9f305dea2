"""The one place where it is decided what a target is: a built-in example, a workload, a workload whose function returns
an object of a framework, a file that an importer reads, or a step that the caller has: a Graph, a function, an object.

A bare name is an example first. A target with a path separator or a suffix is a path; whose it is shows in its content.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from tensortide.errors import GraphFileError, TimesError, WorkloadError
from tensortide.file_faults import reading
from tensortide.graph import Graph
from tensortide.graph.trips import with_trips
from tensortide.gzipped import MAGIC
from tensortide.importers import built
from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, Options, importers, no_file
from tensortide.importers.textfile import head
from tensortide.python_object import is_path, names_object
from tensortide.recorder.script import ScriptOptions, capture_script
from tensortide.recorder.script_command import Script, find_script
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
        found = self.found(self.importer.options_of(options, self.path))
        return replace(found, graph=with_trips(found.graph, trips))

    def found(self, options: Options) -> Imported:
        """The step that the importer finds there."""
        with reading(self.path, GraphFileError):
            return self.importer.read(self.path, options)


@dataclass(frozen=True)
class Held(File):
    """A step that the caller has: a Graph, what ``open`` returned, or an object of a framework. ``path`` is its name,
    and ``importer`` converts it."""

    step: Any

    def found(self, options: Options) -> Imported:
        """The step as its importer converts it."""
        assert self.importer.convert is not None
        return self.importer.convert(self.step, options)


def _no_file(path: Path, options: Options) -> Imported:
    del options
    raise GraphFileError(f"{path} is no Graph")


def _as_graph(step: Graph | Imported, options: Options) -> Imported:
    if isinstance(step, Graph):
        return Imported(step)
    return step if options.durations else replace(step, durations=None, times=None)


def _is_graph(step: object) -> bool:
    return isinstance(step, Graph | Imported)


GRAPH = Importer("graph", "a Graph", no_file, _no_file, accepts=_is_graph, convert=_as_graph)
"""Steps that are captured or read already, as a row of the table."""


class NamedTarget(str):
    """A target's text that carries the object itself."""

    target: Any


def as_text(target: Any) -> str:
    """The text of a ``target``, whatever it is, for a request: ``resolve`` finds the object."""
    if isinstance(target, str):
        return target
    if isinstance(target, Graph | Imported):
        graph = target if isinstance(target, Graph) else target.graph
        name = graph.meta.workload or "a Graph"
    elif isinstance(target, Workload):
        name = target.name
    elif isinstance(target, os.PathLike):
        name = os.fspath(target)
    else:
        name = _name(target)
    found = NamedTarget(name)
    found.target = target
    return found


def _name(target: Any) -> str:
    """The text by which another process finds a function, ``package.module:function`` or ``file.py:function``, where it
    can; else its name."""
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", type(target).__name__)
    found = sys.modules.get(module) if isinstance(module, str) else None
    if found is None or getattr(found, name, None) is not target:
        return str(name)
    file = getattr(found, "__file__", None)
    if module == "__main__":
        return f"{file}:{name}" if file else name
    return f"{module}:{name}"


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


def resolve(target: Any) -> Workload | Script | File:
    """Decide what ``target`` is: an example, ``file.py:function``, ``package.module:function``, a script
    (``-- python train.py --its arguments``), a file or folder; or, from Python, a Graph, a workload function or a step,
    or an object of a framework. A function that uses a framework of one of the importers is a Built: it is called, to
    see what it returns, when it is read.

    Raises WorkloadError if it is none of these or cannot be loaded, GraphFileError if no importer reads it.
    """
    if isinstance(target, NamedTarget):
        return _of_object(target.target, str(target))
    if not isinstance(target, str | os.PathLike):
        return _of_object(target, _name(target))
    if not (text := os.fspath(target)):
        raise WorkloadError("a target is missing; tensortide capture --list shows the built-in examples")
    if (script := find_script(text)) is not None:
        return script
    if isinstance(target, str) and (found := find_workload(target)) is not None:
        return _workload(found) if names_object(target) else found
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
    rank: int | None = None,
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
    command of a training script (with the options of ``recorder.script.ScriptOptions``), a Graph, a function that makes
    a step or runs one, an object of a framework that one of the importers accepts (an ExportedProgram, an ONNX
    ModelProto, a JAX function with its arguments, a Keras model, a ``tf.function``), or a file or folder that one of
    them reads: ``tensortide capture --kinds`` lists these.
    A bare name is an example first; with a path separator or a suffix it is a path, and its content says whose it is.

    ``real``, ``assume``, ``first_step``, ``device``, ``machine``, ``ranks``, ``rank`` and ``compiled`` are those of
    ``tensortide.capture``, for a workload or a script, and so is ``progress``, for a workload. ``hyperparameters`` are
    those of a workload, or values of the symbols in the sizes of a file, and as ``trips.NAME`` how often a loop of
    unknown length runs. ``options`` are those of the importer or the script.

    Raises WorkloadError if there is no such target or an option does not go with it, and what its reader raises.
    """
    found = resolve(target)
    how: dict[str, Any] = {"real": real, "assume": assume, "first_step": first_step, "compiled": compiled}
    where: dict[str, Any] = {"device": device, "machine": machine, "ranks": ranks, "rank": rank}
    if isinstance(found, File):
        for given, goes_with in ((how, "a workload"), (where, "a workload or a script")):
            if any(given.values()):
                *names, last = given
                raise WorkloadError(f"{found}: {', '.join(names)} and {last} go with {goes_with}")
        return found.read(hyperparameters, **options)
    if isinstance(found, Script):
        if hyperparameters:
            raise WorkloadError(f"{found}: hyperparameters go with a workload; give the script its own arguments")
        return Imported(_of_script(found, **how, **where, options=options))
    if options:
        raise WorkloadError(f"{found.name} is a workload: {', '.join(options)} goes with a file")
    from tensortide.recorder import capture

    asked: dict[str, Any] = {"hyperparameters": hyperparameters, "name": found.name, "progress": progress}
    return Imported(capture(found.function, **asked, **how, **where))


def _of_script(
    found: Script,
    *,
    real: bool | None,
    assume: Mapping[str, bool | int | float] | None,
    first_step: bool,
    options: Mapping[str, Any],
    **others: Any,
) -> Graph:
    """Capture a step of a script: the first one, or that of its ``options``."""
    given = {"real": bool(real), "assume": dict(assume or {}), **({"step": 1} if first_step else {}), **others}
    return capture_script(found, _script_options(found, {**given, **options}))


def _workload(found: Workload) -> Workload | Built:
    takes = built.candidates(found.function)
    return Built(Path(found.name), takes[0], found) if takes else found


def _of_object(target: Any, name: str) -> Workload | Script | File:
    """Decide what an object is. Raises WorkloadError for one that is no step."""
    if isinstance(target, os.PathLike):
        return resolve(target)
    if isinstance(target, Workload):
        return target
    rows = (one for one in (GRAPH, *importers()) if one.convert is not None and one.accepts(target))
    if (row := next(rows, None)) is not None:
        return Held(Path(name), row, target)
    if callable(target) and not isinstance(target, type) and not is_module(target):
        return _workload(Workload(name, target))
    said = f"a {type(target).__name__} is nothing that tensortide opens"
    if is_module(target):
        pairs = "tensortide.fits(model, inputs, gpu=...) or tensortide.capture(model, inputs, loss=..., optimizer=...)"
        raise WorkloadError(f"{said}: a model of PyTorch stands with its inputs, {pairs}")
    known = "; ".join(importer.kind for importer in importers() if importer.convert)
    raise WorkloadError(f"{said}. It takes a target, a Graph, a function that makes a step or runs one, or {known}")


def is_module(target: object) -> bool:
    """Tell whether it is a model of PyTorch, which is not imported for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(target, torch.nn.Module)


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
