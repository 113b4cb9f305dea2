"""Loops that wait for a value that no stand-in will take: found by that nothing their conditions read changes."""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Hashable, Iterator, Mapping
from types import FrameType, ModuleType
from typing import Any

import torch

from tensortide.recorder.code_paths import is_internal
from tensortide.recorder.reading import OWN, exits, part_of

STUCK_ROUNDS = 100
"""Readings in a row between which nothing has changed that ends the loop."""
_PLAIN = (bool, int, float, str, bytes, type(None))
_SIZED = (list, tuple, dict, set, frozenset)
Scopes = tuple[Mapping[str, Any], Mapping[str, Any]]
"""Local and global variables."""


class Rounds:
    """Counts readings of one line during which its loop has come no nearer to an end."""

    def __init__(self) -> None:
        self._state: Hashable = None
        self._same = 0

    def stuck(self, frame: FrameType) -> str:
        """Note that the line which runs in ``frame`` reads a value. Returns the head of its loop if that is stuck."""
        state = _state(frame)
        self._same = self._same + 1 if state is not None and state == self._state else 0
        self._state = state
        return _head(frame) if self._same >= STUCK_ROUNDS else ""


def _head(frame: FrameType | None) -> str:
    while frame is not None:
        loops = () if is_internal(frame.f_code.co_filename) else part_of(frame).loops
        if loops and isinstance(loops[0], ast.While):
            return f"while {ast.unparse(loops[0].test)}: at line {loops[0].lineno}"
        frame = frame.f_back
    return ""


def _state(frame: FrameType) -> Hashable:
    """Return the state that decides when the running loop and those around it end; None if it ends by itself."""
    found: list[Hashable] = []
    inner: FrameType | None = frame
    while inner is not None and not inner.f_code.co_filename.startswith(OWN):
        loops = () if is_internal(inner.f_code.co_filename) else part_of(inner).loops
        if loops and not found and not isinstance(loops[0], ast.While):
            return None
        if loops:
            local = inner.f_locals
            found += [(id(inner), each.lineno, *_of_loop(each, (local, inner.f_globals))) for each in loops]
            if inner.f_code.co_flags & inspect.CO_OPTIMIZED and isinstance(local, dict):
                local.clear()  # what the frame remembers of having been asked would keep tensors alive
        inner = inner.f_back
    return tuple(found) or None


def _of_loop(loop: ast.stmt | ast.expr, scopes: Scopes) -> Iterator[Hashable]:
    if isinstance(loop, ast.While):
        for test in exits(loop):
            yield from _read_by(test, scopes)
    elif isinstance(loop, (ast.For, ast.AsyncFor)):
        for each in ast.walk(loop.target):
            if isinstance(each, ast.Name):
                yield _brief(scopes[0].get(each.id))


def _read_by(node: ast.AST, scopes: Scopes) -> Iterator[Hashable]:
    """The state of all that the expression ``node`` reads; something new for what cannot be told."""
    if isinstance(node, (ast.Name, ast.Attribute)):
        owner, value = _value(node, scopes)
        yield _brief(value) if owner else object()
    elif isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Attribute):
            known, value = _value(function.value, scopes)
            if isinstance(function.value, (ast.Name, ast.Attribute)) and not (
                known and isinstance(value, (torch.Tensor, ModuleType, *_PLAIN, *_SIZED))
            ):
                yield object()
            yield from _read_by(function.value, scopes)
        elif not (isinstance(function, ast.Name) and hasattr(builtins, function.id) and function.id != "next"):
            yield object()
        for each in (*node.args, *(keyword.value for keyword in node.keywords)):
            yield from _read_by(each, scopes)
    elif isinstance(node, (ast.Await, ast.Yield, ast.NamedExpr, ast.Lambda)):
        yield object()
    else:
        for child in ast.iter_child_nodes(node):
            yield from _read_by(child, scopes)


def _value(node: ast.expr, scopes: Scopes) -> tuple[bool, Any]:
    """The value of a name, or of an attribute of a plain object or tensor; and whether it can be told."""
    if isinstance(node, ast.Name):
        for scope in (*scopes, vars(builtins)):
            if node.id in scope:
                return True, scope[node.id]
    if isinstance(node, ast.Attribute):
        known, owner = _value(node.value, scopes)
        if known and isinstance(owner, torch.Tensor):
            return True, owner
        if known and node.attr in getattr(owner, "__dict__", ()):
            return True, owner.__dict__[node.attr]
    return False, None


def _brief(value: Any) -> Hashable:
    """Return the part of ``value`` that can be compared."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), getattr(value, "guess", None)
    return len(value) if isinstance(value, _SIZED) else id(value)
