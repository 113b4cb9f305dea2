"""A folder with a kernel trace: the graph, the names in it, and exact times."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from tensortide.collector import no_collection
from tensortide.errors import TraceError
from tensortide.graph.handles import contiguous
from tensortide.graph.model import OUTSIDE, TENSOR, Call, Graph, Meta, Module, Op, Phase, Role, Storage, Tensor
from tensortide.importers.g10.importer import KERNELS
from tensortide.importers.g10.kernels import Kernel, ReadLines, TensorLine, read_kernels, read_tensors
from tensortide.importers.imported import Imported
from tensortide.importers.inductor.types import TensorType, evaluated, parse_type, symbols_of
from tensortide.importers.textfile import TextFile, find_file
from tensortide.timing.durations import NANOSECOND, UNIT_CYCLE, Times

TENSORS = "tensors.config"
_WORD = re.compile(r"[^0-9A-Za-z_]")
_QUALIFIED = re.compile(r"torch\.ops\.([\w.]+)\(")
_FORWARD = re.compile(r"_Forward$|^LoadData")


@no_collection()
def read_trace(target: str | os.PathLike[str]) -> Imported:
    """Read the step of a folder with ``kernels.config`` (or of that file itself) and perhaps ``tensors.config``.

    Each may be compressed (``.gz``). Both the traces of G10 (times in cycles at 1.2 GHz) and the files of the later
    tool (times in nanoseconds, where there are any) are read. Every tensor is a storage. A tensor that is global lives
    across steps; any other lives from the first to the last kernel that uses it, from before the step if no kernel
    makes it.

    Raises:
        TraceError: a file is missing or damaged, a tensor has two sizes or none, an id is left out.
    """
    path = Path(target)
    kernels_file = path if path.is_file() else find_file(path, [KERNELS])
    if kernels_file is None:
        raise TraceError(f"{path}: there is no {KERNELS} or {KERNELS}.gz in it")
    known = ReadLines()
    file, kernels = read_kernels(kernels_file, known)
    if not kernels:
        raise TraceError(f"{kernels_file}: no kernel in this file")
    listed = find_file(kernels_file.parent, [TENSORS])
    tensors = _tensors(file, kernels, None if listed is None else read_tensors(listed, known), str(listed))
    names = tuple(tensor.name or f"tensor{tensor.id}" for tensor in tensors)
    graph = _graph(os.fspath(target), kernels, tensors, names)
    called = tuple(kernel.name for kernel in kernels)
    return Imported(graph, kernels=called, tensors=names, times=_times(file, kernels))


def _tensors(
    file: TextFile, kernels: Sequence[Kernel], listed: tuple[TensorLine, ...] | None, where: str
) -> list[TensorLine]:
    """All tensors by id; what kernels say of them must be what the list says. Raises TraceError."""
    known: dict[int, TensorLine] = {tensor.id: tensor for tensor in listed or ()}
    for kernel in kernels:
        for tensor in (*kernel.inputs, *kernel.outputs):
            first = known.get(tensor.id)
            if first is tensor:
                continue
            if first is None:
                if listed is not None:
                    raise file.wrong(kernel.line, f"tensor{tensor.id} of this kernel is not in {where}")
                known[tensor.id] = tensor
            elif _facts(first) != _facts(tensor):
                raise file.wrong(
                    kernel.line, f"tensor{tensor.id} of this kernel has {_facts(tensor)}, elsewhere {_facts(first)}"
                )
            elif tensor.dims and not first.dims:
                known[tensor.id] = tensor
    for index in range(len(known)):
        if index not in known:
            raise TraceError(f"{file.path}: no kernel uses tensor{index}, and there is no {TENSORS} beside it")
    return [known[index] for index in range(len(known))]


def _facts(tensor: TensorLine) -> str:
    name = f"name {tensor.name}, " if tensor.name else ""
    return f"{name}{tensor.nbytes} bytes, global {int(tensor.is_global)}"


def _times(file: TextFile, kernels: Sequence[Kernel]) -> Times | None:
    timed = [kernel.time for kernel in kernels if kernel.time is not None]
    if not timed:
        return None
    if len(timed) < len(kernels):
        missing = next(kernel for kernel in kernels if kernel.time is None)
        raise file.wrong(missing.line, "this kernel has no 'Execution Time', and others have")
    named = any(tensor.name for kernel in kernels for tensor in (*kernel.inputs, *kernel.outputs))
    return Times(tuple(timed), NANOSECOND if named else UNIT_CYCLE)


def _graph(workload: str, kernels: Sequence[Kernel], tensors: Sequence[TensorLine], names: Sequence[str]) -> Graph:
    calls: dict[Call, int] = {}
    kinds: dict[tuple[str, int, int, tuple[int, ...]], int] = {}
    modules: dict[tuple[int, str], int] = {}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    read: set[int] = set()
    given: set[int] = set()
    ops: list[Op] = []
    backward = False
    foreign = any(tensor.name for tensor in tensors)  # the later tool does not say which pass a kernel is in
    for index, kernel in enumerate(kernels):
        inputs = tuple([tensor.id for tensor in kernel.inputs])
        outputs = tuple([tensor.id for tensor in kernel.outputs])
        given.update([tensor for tensor in inputs if tensor not in first])
        for tensor in inputs + outputs:
            first.setdefault(tensor, index)
            last[tensor] = index
        read.update(inputs)
        mutated = tuple([i for i, tensor in enumerate(inputs) if tensor in outputs])
        kind = kernel.name, len(inputs), len(outputs), mutated
        if kind not in kinds:
            kinds[kind] = calls.setdefault(_call(*kind), len(calls))
        backward = backward or _FORWARD.search(kernel.name) is None
        module = OUTSIDE if kernel.parent is None else modules.setdefault(kernel.parent, len(modules))
        phase = Phase.OTHER if foreign else Phase.BACKWARD if backward else Phase.FORWARD
        ops.append(
            Op(kinds[kind], inputs, outputs, phase, module, label="" if kernel.parent is None else kernel.parent[1])
        )
    storages = tuple(_storage(tensor, names[tensor.id], first, last, read, given) for tensor in tensors)
    return Graph(
        ops=tuple(ops),
        calls=tuple(calls),
        tensors=tuple(_tensor(tensor) for tensor in tensors),
        storages=storages,
        modules=tuple(Module(f"{number}", name) for number, name in modules),
        meta=Meta(workload=workload, framework="kernel trace", captured_on="file", assumptions=_ASSUMED),
    )


_ASSUMED = ("every tensor of a kernel trace is a storage of its own",)


def _storage(
    tensor: TensorLine, name: str, first: dict[int, int], last: dict[int, int], read: set[int], given: set[int]
) -> Storage:
    """From the first to the last kernel that uses it; what is global or given exists before, what is unused until."""
    born, death, role = first.get(tensor.id), last.get(tensor.id, -1) + 1, Role.TEMPORARY
    if tensor.is_global:
        return Storage(tensor.nbytes, "cuda", Role.PARAMETER, None, None, name)
    if tensor.id in given:
        born, role = None, Role.INPUT
    elif tensor.id in read:
        role = Role.ACTIVATION
    return Storage(tensor.nbytes, "cuda", role, born, death, name)


def _tensor(tensor: TensorLine) -> Tensor:
    """As its dimensions say, if they are known and are of that size; else so many bytes."""
    kind = parse_type(tensor.dims) if tensor.dims else None
    if isinstance(kind, TensorType) and not any(map(symbols_of, kind.dims)):
        shape = tuple(evaluated(dim, {}) for dim in kind.dims)
        view = Tensor(tensor.id, kind.dtype, shape, contiguous(shape))
        if view.nbytes == tensor.nbytes:
            return view
    return Tensor(tensor.id, "uint8", (tensor.nbytes,), (1,))


def _call(name: str, inputs: int, outputs: int, mutated: tuple[int, ...]) -> Call:
    """The op of a kernel: the one that its text calls, or its type. Tensors on both sides are ``mutated`` in place."""
    called = _QUALIFIED.match(name)
    op = f"kernel.{called[1]}" if called else f"g10.{_WORD.sub('_', name)}"
    return Call(
        op=op,
        arguments=tuple((f"x{i}", TENSOR) for i in range(inputs)),
        positional=inputs,
        mutated=mutated,
        returns=TENSOR if outputs == 1 else (TENSOR,) * outputs,
    )
