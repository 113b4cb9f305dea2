"""Argument names of PyTorch's ops, by which cost rules find a call's tensors.

``aten_signatures.txt`` has an overload per line: ``addmm.default self mat1 mat2 / beta: alpha:``. A name ending in
``*`` is of a list of tensors, in ``:`` of another value; ``!``: the op writes it; what follows ``/`` goes by keyword.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib.resources import files
from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["tensor", "tensors", "value", "none"]
"""Kind of an argument, declared or given; ``none``: an absent one, which fits every kind."""
NAMESPACE = "aten."


class Argument(NamedTuple):
    """A declared argument; ``written``: the op writes it in place; ``keyword``: it is not passed by position."""

    name: str
    kind: Kind
    written: bool = False
    keyword: bool = False

    def takes(self, given: Kind) -> bool:
        """Tell whether a value of the kind ``given`` can be this argument."""
        return given in ("none", self.kind)


class Signature(NamedTuple):
    """An overload: its full name in a Graph (``aten.add.Tensor``) and its arguments."""

    op: str
    arguments: tuple[Argument, ...]

    def __str__(self) -> str:
        return f"{self.op}({', '.join(argument.name for argument in self.arguments)})"

    def fits(self, given: Sequence[Kind]) -> bool:
        """Tell whether positional values of these kinds can be passed to it."""
        positional = [argument for argument in self.arguments if not argument.keyword]
        return len(given) <= len(positional) and all(map(Argument.takes, positional, given))


@functools.cache
def signatures_of(name: str) -> tuple[Signature, ...]:
    """List the overloads that ``aten.op`` stands for, or the one that is ``aten.op.overload``; none of other ops."""
    base, _, overload = name.removeprefix(NAMESPACE).partition(".")
    if not name.startswith(NAMESPACE):
        return ()
    found = tuple(_parsed(line) for line in _lines().get(base, ()))
    return tuple(s for s in found if s.op == name) if overload else found


@functools.cache
def _lines() -> dict[str, list[str]]:
    by_base: dict[str, list[str]] = {}
    for line in files("tensortide.graph").joinpath("aten_signatures.txt").read_text().splitlines():
        by_base.setdefault(line.partition(".")[0], []).append(line)
    return by_base


def _parsed(line: str) -> Signature:
    name, *words = line.split()
    by_position = words.index("/") if "/" in words else len(words)
    return Signature(
        NAMESPACE + name,
        tuple(_argument(word, at > by_position) for at, word in enumerate(words) if word != "/"),
    )


def _argument(word: str, keyword: bool) -> Argument:
    name = word.rstrip("*:!")
    marks = word[len(name) :]
    return Argument(name, "value" if ":" in marks else "tensors" if "*" in marks else "tensor", "!" in marks, keyword)
