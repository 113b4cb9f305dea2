"""``kernels.config`` and ``tensors.config``, as both tools write them."""

from __future__ import annotations

import os
import re
from typing import NoReturn

import msgspec

from tensortide.importers.inductor.types import Bad, parse_type
from tensortide.importers.textfile import TextFile, read_text

__all__ = [
    "KERNEL_RULE",
    "TENSOR_EXPECTED",
    "Kernel",
    "ReadLines",
    "TensorLine",
    "read_kernels",
    "read_tensors",
    "tensor_line",
]

KERNEL_RULE = "_" * 68
"""What ends a kernel."""

_TENSOR = re.compile(
    r"tensor(?P<id>\d{1,9})(?:"
    r" Is weight \(global\)\?: (?P<weight>[01]), Size in byte: (?P<bytes>\d{1,18}), "
    r"Range:(?P<low>\d{1,18})--(?P<high>\d{1,18})"
    r"|, Name: (?P<name>.+), Is global\?: (?P<global>[01]): Size in byte: (?P<size>\d{1,18}),"
    r"(?: Dimensions: (?P<dims>.+))?)",
    re.ASCII,
)
_HEAD = re.compile(r"Kernel ID: (\d{1,9}), Name: (.+)", re.ASCII)
_FACT = re.compile(
    r"(?a:Execution Time: (?P<time>\d{1,18})|Parent (?:Layer|OP) ID:(?P<parent>-?\d{1,9}); Name:(?P<name>.*))|\(.*\)"
)
TENSOR_EXPECTED = (
    "'tensor<id> Is weight (global)?: <0|1>, Size in byte: <bytes>, Range:<low>--<high>' "
    "or 'tensor<id>, Name: <name>, Is global?: <0|1>: Size in byte: <bytes>,'"
)


class TensorLine(msgspec.Struct, frozen=True, gc=False):
    """Tensor as a line describes it. ``name`` and ``dims`` (``f32[8, 3]``) are in the files of the later tool
    only."""

    id: int
    is_global: bool
    nbytes: int
    name: str = ""
    dims: str = ""


class Kernel(msgspec.Struct, frozen=True, gc=False):
    """Kernel as its block describes it, and the line (from 0) that it starts at.

    ``time``: in cycles where the operands have address ranges, else in nanoseconds. ``parent``: number and name of the
    layer or op that it belongs to.
    """

    name: str
    inputs: tuple[TensorLine, ...]
    outputs: tuple[TensorLine, ...]
    time: int | None
    parent: tuple[int, str] | None
    line: int


class ReadLines(dict[str, TensorLine]):
    """The tensor of each line that was read: a tensor's line repeats in every kernel that uses it.

    Raises Bad for a line that describes no tensor.
    """

    def __missing__(self, line: str) -> TensorLine:
        self[line] = tensor = _tensor(line)
        return tensor


def _tensor(line: str) -> TensorLine:
    found = _TENSOR.fullmatch(line)
    if found is None:
        raise Bad(f"expected {TENSOR_EXPECTED}")
    number, weight, nbytes, low, high, name, is_global, size, dims = found.groups()
    if weight is None:
        parse_type(dims or "u8[]")
        return TensorLine(int(number), is_global == "1", int(size), name, dims or "")
    if int(high) - int(low) != int(nbytes):
        raise Bad(f"expected a range of {nbytes} bytes")
    return TensorLine(int(number), weight == "1", int(nbytes))


def tensor_line(file: TextFile, index: int) -> TensorLine:
    """The tensor that a line describes. Raises TraceError."""
    try:
        return _tensor(file.lines[index] if index < len(file.lines) else "")
    except Bad as error:
        raise file.wrong(index, str(error)) from None


def read_tensors(path: str | os.PathLike[str], known: ReadLines | None = None) -> tuple[TensorLine, ...]:
    """The tensors of a ``tensors.config``: dense ids, ascending. ``known``: lines of other files of the trace.

    Raises:
        TraceError: it cannot be read, or a line is no tensor, or of another than the next.
    """
    file = read_text(path)
    known = ReadLines() if known is None else known
    tensors: list[TensorLine] = []
    for index, line in enumerate(file.lines):
        try:
            tensor = known[line]
        except Bad as error:
            raise file.wrong(index, str(error)) from None
        if tensor.id != index:
            raise file.error(index, f"tensor{index}, as ids are dense and ascend")
        tensors.append(tensor)
    return tuple(tensors)


def read_kernels(path: str | os.PathLike[str], known: ReadLines | None = None) -> tuple[TextFile, tuple[Kernel, ...]]:
    """The kernels of a ``kernels.config``, and the file to report errors against. ``known``: lines that were read.

    Raises:
        TraceError: it cannot be read, or a line is not what its place asks for.
    """
    file = read_text(path)
    reader = _Reader(file, ReadLines() if known is None else known)
    kernels: list[Kernel] = []
    while reader.at < len(file.lines):
        kernels.append(reader.kernel(len(kernels)))
    return file, tuple(kernels)


class _Reader:
    """Walks over the blocks of a file; ``at`` is the next line."""

    def __init__(self, file: TextFile, known: ReadLines) -> None:
        self.file = file
        self.known = known
        self.at = 0

    def kernel(self, number: int) -> Kernel:
        """The next block, which must be of the kernel ``number``."""
        start = self.at
        head = _HEAD.fullmatch(self._line())
        if head is None or int(head[1]) != number:
            raise self.file.error(start, f"'Kernel ID: {number}, Name: <name>'")
        self.at += 1
        time, parent = self._facts()
        self.at += 1
        inputs = self._operands("Output Tensors:")
        outputs = self._operands(KERNEL_RULE)
        return Kernel(head[2], inputs, outputs, time, parent, start)

    def _line(self) -> str:
        return self.file.lines[self.at] if self.at < len(self.file.lines) else ""

    def _facts(self) -> tuple[int | None, tuple[int, str] | None]:
        """Time and parent, in any order before ``Input Tensors:``; dimensions are passed over."""
        time: int | None = None
        parent: tuple[int, str] | None = None
        while (line := self._line()) != "Input Tensors:":
            found = _FACT.fullmatch(line)
            if found is not None and found["time"] and time is None:
                time = int(found["time"])
            elif found is not None and found["parent"] and parent is None:
                parent = int(found["parent"]), found["name"]
            elif found is None or found.lastgroup is not None:
                raise self.file.error(
                    self.at,
                    "one 'Parent Layer ID:<n>; Name:<name>' or 'Parent OP ID:...', one 'Execution Time: <n>', "
                    "dimensions in parentheses, then 'Input Tensors:'",
                )
            self.at += 1
        return time, parent

    def _operands(self, end: str) -> tuple[TensorLine, ...]:
        """The tensors up to the line ``end``, each once."""
        lines, known = self.file.lines, self.known
        try:
            stop = lines.index(end, self.at)
            operands = tuple([known[line] for line in lines[self.at : stop]])
        except ValueError:  # Bad among them
            self._refuse(end)
        if len(operands) > 1 and len({tensor.id for tensor in operands}) < len(operands):
            self._refuse(end)
        self.at = stop + 1
        return operands

    def _refuse(self, end: str) -> NoReturn:
        """Raise TraceError for the first line that is wrong before the line ``end``."""
        seen: set[int] = set()
        while True:
            if not self._line().startswith("tensor"):
                raise self.file.error(self.at, f"a tensor or {_quoted(end)}")
            tensor = tensor_line(self.file, self.at)
            if tensor.id in seen:
                raise self.file.error(self.at, f"each tensor once, and tensor{tensor.id} is in the list already")
            seen.add(tensor.id)
            self.at += 1


def _quoted(text: str) -> str:
    return f"a line of {len(text)} underscores" if text[0] == "_" else repr(text)
