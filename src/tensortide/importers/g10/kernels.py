"""``kernels.config`` and ``tensors.config``, as both tools write them."""

from __future__ import annotations

import os
import re
from typing import NoReturn

import msgspec

from tensortide.importers.inductor.types import Bad, parse_type
from tensortide.importers.textfile import Cursor, TextFile, read_text

KERNEL_RULE = "_" * 68
"""Line that ends the block of a kernel."""

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
_EXPECTED = (
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
        raise Bad(f"expected {_EXPECTED}")
    number, weight, nbytes, low, high, name, is_global, size, dims = found.groups()
    if weight is None:
        parse_type(dims or "u8[]")
        return TensorLine(int(number), is_global == "1", int(size), name, dims or "")
    if int(high) - int(low) != int(nbytes):
        raise Bad(f"expected a range of {nbytes} bytes")
    return TensorLine(int(number), weight == "1", int(nbytes))


def tensor_line(cursor: Cursor) -> TensorLine:
    """Pass a line that describes a tensor. Raises TraceError for any other."""
    try:
        tensor = _tensor(cursor.line)
    except Bad as error:
        raise cursor.file.wrong(cursor.at, str(error)) from None
    cursor.at += 1
    return tensor


def read_tensors(path: str | os.PathLike[str], known: ReadLines | None = None) -> tuple[TensorLine, ...]:
    """The tensors of a ``tensors.config``: dense ids, ascending. ``known``: lines of other files of the trace.

    Raises:
        TraceError: it cannot be read, a line describes no tensor, or its id is out of sequence.
    """
    file = read_text(path)
    known = ReadLines() if known is None else known
    try:
        tensors = tuple([known[line] for line in file.lines])
        wrong = next((index for index, tensor in enumerate(tensors) if tensor.id != index), None)
    except Bad as error:
        wrong = next(index for index, line in enumerate(file.lines) if line not in known)
        raise file.wrong(wrong, str(error)) from None
    if wrong is not None:
        raise file.error(wrong, f"tensor{wrong}, as ids are dense and ascend")
    return tensors


def read_kernels(path: str | os.PathLike[str], known: ReadLines | None = None) -> tuple[TextFile, tuple[Kernel, ...]]:
    """The kernels of a ``kernels.config``, and the file to report errors against. ``known``: lines that were read.

    Raises:
        TraceError: it cannot be read, or a line is not what its place asks for.
    """
    reader = _Reader(read_text(path), ReadLines() if known is None else known)
    kernels: list[Kernel] = []
    while not reader.done:
        kernels.append(reader.kernel(len(kernels)))
    return reader.file, tuple(kernels)


class _Reader(Cursor):
    """Walks over the blocks of a file."""

    def __init__(self, file: TextFile, known: ReadLines) -> None:
        super().__init__(file)
        self.known = known

    def kernel(self, number: int) -> Kernel:
        """The next block, which must be of the kernel ``number``."""
        start = self.at
        head = self.take(_HEAD, f"'Kernel ID: {number}, Name: <name>'", lambda found: int(found[1]) == number)
        time, parent = self._facts()
        inputs = self._operands("Output Tensors:")
        outputs = self._operands(KERNEL_RULE)
        return Kernel(head[2], inputs, outputs, time, parent, start)

    def _facts(self) -> tuple[int | None, tuple[int, str] | None]:
        """Time and parent, in any order before ``Input Tensors:``; dimensions are passed over."""
        time: int | None = None
        parent: tuple[int, str] | None = None
        while (line := self.line) != "Input Tensors:":
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
        while self.line.startswith("tensor"):
            tensor = tensor_line(self)
            if tensor.id in seen:
                raise self.file.error(self.at - 1, f"each tensor once, and tensor{tensor.id} is in the list already")
            seen.add(tensor.id)
        expected = f"a line of {len(end)} underscores" if end[0] == "_" else repr(end)
        raise self.file.error(self.at, f"a tensor or {expected}")
