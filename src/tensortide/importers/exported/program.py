"""A program as every reader of this package returns it: ops by name, types of tensors, what goes in and comes out.

Names of tensors are unique within a ``Block``; a program has one, and one in every higher-order op.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tensortide.graph.model import Role, Source, Value


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor by its name."""

    name: str


Arg: TypeAlias = "Value | Ref | Block | tuple[Arg, ...]"


@dataclass(frozen=True, slots=True)
class Type:
    """Dtype and layout of a tensor; sizes, strides and offset (in elements) may carry expressions."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class Node:
    """A call of ``op`` (``aten.mm.default``, ``higher_order.cond``). The first ``positional`` of its ``arguments`` are
    given by position. ``outputs`` are the names of its tensors in order, None where it makes none."""

    name: str
    op: str
    arguments: tuple[tuple[str, Arg], ...]
    outputs: tuple[str | None, ...]
    positional: int = 0
    tags: tuple[str, ...] = ()
    module: tuple[str, str] | None = None
    source: Source | None = None

    @property
    def base(self) -> str:
        """The op without namespace and overload: ``mm``."""
        parts = self.op.split(".")
        return parts[1] if len(parts) > 1 else self.op

    def argument(self, name: str, position: int = -1) -> Arg:
        """The argument ``name``, or the one at ``position``; None if there is neither."""
        found = dict(self.arguments)
        if name in found or not 0 <= position < len(self.arguments):
            return found.get(name)
        return self.arguments[position][1]


@dataclass(slots=True)
class Block:
    """A list of nodes: what it takes (None: no tensor), what it returns, and the types of all tensors in it."""

    name: str
    inputs: tuple[str | None, ...]
    nodes: list[Node]
    outputs: tuple[Arg, ...]
    types: dict[str, Type]


@dataclass(frozen=True, slots=True)
class Given:
    """A tensor that the program takes: an input, or a parameter or buffer ``title`` of the model. ``same_as`` is the
    name of an input before it whose memory it is: tied weights."""

    name: str
    role: Role
    title: str = ""
    trainable: bool = False
    same_as: str = ""


class End(enum.Enum):
    """Kinds of results: outputs and losses of the forward pass, gradients, and new contents of what was given."""

    OUTPUT = "output"
    GRADIENT = "gradient"
    MUTATION = "mutation"


@dataclass(frozen=True, slots=True)
class Result:
    """A tensor that the program returns; ``of`` is the input whose gradient or new contents it is."""

    name: str
    end: End = End.OUTPUT
    of: str = ""


@dataclass(slots=True)
class Program:
    """A whole program. ``origin`` is its file or class, ``framework`` the source and its version. ``notes`` say what
    was assumed; ``guesses`` are those of the notes on which sizes depend."""

    origin: str
    framework: str
    body: Block
    given: list[Given]
    results: list[Result]
    notes: list[str] = field(default_factory=list)
    guesses: list[str] = field(default_factory=list)


def refs(value: Arg) -> list[str]:
    """Names of the tensors in an argument."""
    if isinstance(value, Ref):
        return [value.name]
    return [name for item in value for name in refs(item)] if isinstance(value, tuple) else []


def blocks(value: Arg) -> list[Block]:
    """The blocks in an argument."""
    if isinstance(value, Block):
        return [value]
    return [block for item in value for block in blocks(item)] if isinstance(value, tuple) else []


# --- where nodes come from -----------------------------------------------------------------------------

_FRAME = re.compile(r'File "([^"\n]+)", line (\d+), in ([^\n]+)\n?(?:[ \t]+([^\n]*))?')
_LIBRARY = re.compile(r"[/\\](?:torch|site-packages)[/\\]|^<(?!stdin>)")
_EMPTY = "_empty_nn_module_stack_from_metadata_hook"
_ROOT = re.compile(r"^L(?:\['self'\]|__self__)\.?")
_PARTS = re.compile(r"_modules\['([^']+)'\]|\._modules\['([^']+)'\]")


def innermost(stack: str) -> tuple[str, str] | None:
    """The innermost module of a ``nn_module_stack`` as text, ``key,path,type;...``: its path and class name."""
    entries = [entry for entry in stack.split(";") if "," in entry]
    if not entries:
        return None
    rest, _, kind = entries[-1].rpartition(",")
    path = _after_comma(rest)
    return None if path == _EMPTY else module_of(path, kind)


def module_of(path: str, kind: str) -> tuple[str, str]:
    """A module by the path and the class that PyTorch notes: ``L['self'].blocks.0`` is ``blocks.0``."""
    plain = _PARTS.sub(lambda found: f".{found[1] or found[2]}", _ROOT.sub("", path))
    return plain.strip("."), kind.rpartition(".")[2]


def _after_comma(text: str) -> str:
    """Return what follows the first comma that is in no parentheses: paths may have slices in them."""
    depth = 0
    for at, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth <= 0:
            return text[at + 1 :]
    return text


def source_of(trace: str) -> Source | None:
    """The line of the user's code in a ``stack_trace``: the innermost that is in no library, else the innermost."""
    frames = _FRAME.findall(trace[-20_000:])
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])] or frames
    if not own:
        return None
    file, line, function, code = own[-1]
    return Source(file, int(line[:9]), function.strip(), code.strip())


def place_of(metadata: Mapping[str, str]) -> tuple[tuple[str, str] | None, Source | None]:
    """Module and source line of a node's metadata."""
    return innermost(metadata.get("nn_module_stack", "")), source_of(metadata.get("stack_trace", ""))
