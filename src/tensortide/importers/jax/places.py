"""Module paths of name stacks."""

from __future__ import annotations

import re

from tensortide.importers.jax.program import SourceInfo

_WRAPPED = re.compile(r"\b\w+\(([^()]*)\)")
_NAME = re.compile(r"[A-Za-z_]\w*")
_NOT_MODULES = frozenset(("rematted_computation", "checkpoint", "remat", "while", "body", "cond", "scan", "shard_map"))


def kind_of(path: str) -> str:
    """Return the class that a module's name suggests: ``Dense`` of ``MLP.Dense_0``."""
    return re.sub(r"_\d+$", "", path.rpartition(".")[2])


def module_of(place: SourceInfo) -> str:
    """Return the module path of ``place``: the names of its stack without transformations, after the functions that are
    jitted around it.

    >>> module_of(SourceInfo("transpose(jvp(MLP))/Dense_0"))
    'MLP.Dense_0'
    """
    stack = place.stack
    while (plain := _WRAPPED.sub(r"\1", stack)) != stack:
        stack = plain
    names = [name for name in stack.split("/") if _NAME.fullmatch(name) and name not in _NOT_MODULES]
    return ".".join((*place.functions, *names))
