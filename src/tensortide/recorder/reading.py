"""Lines of code that read values of tensors: the expression that reads, and its part in a loop or a check."""

from __future__ import annotations

import ast
import bisect
import contextlib
import dis
import functools
import linecache
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from tensortide.recorder.code_paths import is_internal

_PLUMBING = tuple(
    f"torch/{name}.py"
    for name in (
        "_tensor",
        "_subclasses/fake_tensor",
        "_ops",
        "_compile",
        "_dynamo/eval_frame",
        "utils/_stats",
        "utils/_device",
    )
)
"""Code between a tensor's method and the mode that sees it."""
OWN = str(Path(__file__).parent)
"""Start of the names of files of the recorder's own."""
_LONGEST = 200
"""Characters of the longest expression that is shown whole."""
_TESTS = ("POP_JUMP", "JUMP_IF", "UNARY_NOT", "TO_BOOL")
_SKIPPED = ("CACHE", "EXTENDED_ARG", "NOP", "COPY", "TO_BOOL", "NOT_TAKEN")
_PRINTS = ("print", "info", "debug", "set_postfix", "set_description", "add_scalar")
"""Functions and methods that print or log what they are given."""
_FORMATS = ("format", "round", "exp", "str", "repr")
"""Those that what is printed passes through."""
_ENDLESS = ("count", "cycle", "repeat", "iter")
"""Functions whose iterators may have no end."""

Loop = ast.For | ast.AsyncFor | ast.While
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Module)


class Part(NamedTuple):
    """The part of an expression in the code around it."""

    text: str
    wanted: bool | None = None
    """The truth value with which its loop goes on, one that ends by itself at some time, or a check passes."""
    of_loop: bool = False
    """True if it is a loop that goes on."""
    tested: bool = False
    """True if the value of the expression is a truth value, whatever its type."""
    loops: tuple[Loop | ast.expr, ...] = ()
    """The loops around it, the innermost first, comprehensions among them."""
    printed: bool = False
    """True if its value goes into a text that is printed or logged, and nowhere else."""


def reader(frame: FrameType | None) -> tuple[FrameType | None, bool]:
    """The innermost frame of the user's code, and whether it reads by itself: by a method of a tensor."""
    direct = True
    while frame is not None:
        name = frame.f_code.co_filename
        if not is_internal(name):
            return frame, direct
        direct = direct and (name.startswith(OWN) or name.endswith(_PLUMBING))
        frame = frame.f_back
    return None, direct


def part_of(frame: FrameType) -> Part:
    """The expression that runs in ``frame``, and its part."""
    return _part(frame.f_code, frame.f_lasti) or Part(
        linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    )


@functools.lru_cache(maxsize=4096)
def _part(code: CodeType, at: int) -> Part | None:
    tree = _parsed("".join(linecache.getlines(code.co_filename)))
    span = _span(code, at)
    if tree is None or span is None:
        return None
    path = _path(tree, span)
    node = path[-1]
    if isinstance(node, (ast.If, ast.While, ast.Assert)):
        node = node.test
        path.append(node)
    if isinstance(node, ast.stmt):
        node = getattr(node, "value", None) or node
    for each in path:
        if isinstance(each, ast.FormattedValue) and each.format_spec in path:  # the value is read to be formatted
            node = each.value
    scope = max(i for i, each in enumerate(path) if isinstance(each, _SCOPES))
    around = path[scope:]
    loops = tuple(each for each in reversed(around) if isinstance(each, (*_LOOPS, *_COMPREHENSIONS)))
    tested = _running(code, at)[0].opname.startswith(_TESTS)
    return Part(_text(node, code), *_wanted(around), tested, loops, _printed(around, node))


def _printed(path: list[ast.AST], read: ast.AST) -> bool:
    """True if the last statement of ``path`` is a call that prints, and what it does with ``read`` is to format it."""
    place = max((i for i, each in enumerate(path) if isinstance(each, ast.stmt)), default=0)
    calls = [each.func for each in path[place:] if isinstance(each, ast.Call) and each is not read]
    names = [getattr(each, "attr", getattr(each, "id", "")) for each in calls]
    prints = isinstance(path[place], ast.Expr) and bool(names) and names[0] in _PRINTS
    return prints and all(name in _FORMATS for name in names[1:])


@functools.lru_cache(maxsize=32)
def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


@functools.lru_cache(maxsize=256)
def _instructions(code: CodeType) -> list[dis.Instruction]:
    return list(dis.get_instructions(code))


def _running(code: CodeType, at: int) -> tuple[dis.Instruction, dis.Instruction]:
    """The instruction at offset ``at``, or whose cache that is, and the one before it that computes something."""
    listed = _instructions(code)
    index = bisect.bisect_right(listed, at, key=lambda each: each.offset) - 1
    before = next((each for each in listed[index - 1 :: -1] if not each.opname.startswith(_SKIPPED)), listed[index])
    return listed[index], before


def _span(code: CodeType, at: int) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """First and last position in the source of what runs: of a test, the operand that is tested."""
    instruction, before = _running(code, at)
    where = (before if instruction.opname.startswith(_TESTS) else instruction).positions
    if where is None or where.lineno is None or where.col_offset is None:
        return None
    return (where.lineno, where.col_offset), (where.end_lineno or where.lineno, where.end_col_offset or 0)


def _path(tree: ast.Module, span: tuple[tuple[int, int], tuple[int, int]]) -> list[ast.AST]:
    """The nodes from the module down to the smallest one that covers ``span``."""
    path: list[ast.AST] = [tree]
    while True:
        inner = next((each for each in _parts(path[-1]) if _covers(each, span)), None)
        if isinstance(path[-1], ast.JoinedStr):  # before Python 3.12 its parts are where all of it is
            exact = (each for each in ast.walk(path[-1]) if isinstance(each, ast.expr) and _is_at(each, span))
            inner = next((each for each in exact if not isinstance(each, (ast.JoinedStr, ast.FormattedValue))), None)
            return [*path, inner] if inner is not None else path
        if inner is None:
            return path
        path.append(inner)


def _parts(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.expr, ast.stmt)):
            yield child
        else:
            yield from _parts(child)


def _covers(node: ast.expr | ast.stmt, span: tuple[tuple[int, int], tuple[int, int]]) -> bool:
    end = node.end_lineno or node.lineno, node.end_col_offset or 0
    return (node.lineno, node.col_offset) <= span[0] and span[1] <= end


def _is_at(node: ast.expr, span: tuple[tuple[int, int], tuple[int, int]]) -> bool:
    return ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)) == span


def _text(node: ast.AST, code: CodeType) -> str:
    """``node`` as it is written, on one line."""
    text = ast.unparse(node)
    if isinstance(node, ast.expr) and node.lineno == node.end_lineno:
        line = linecache.getline(code.co_filename, node.lineno).encode()
        written = line[node.col_offset : node.end_col_offset].decode(errors="replace")
        with contextlib.suppress(SyntaxError, ValueError):  # positions within f-strings are wrong before Python 3.12
            if ast.dump(ast.parse(written, mode="eval").body) == ast.dump(node):
                text = written
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


# -- loops and checks --------------------------------------------------------------------------------


def _wanted(path: list[ast.AST]) -> tuple[bool | None, bool]:
    """The truth value of the last node of ``path`` with which its loop goes on or a check passes, and whether it is a
    loop's; None if it decides neither, or if its loop could not end then."""
    value, child = True, path[-1]
    for depth in range(len(path) - 2, -1, -1):
        parent = path[depth]
        if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
            value = not value
        elif isinstance(parent, ast.Assert):
            return (value, False) if child is parent.test else (None, False)
        elif isinstance(parent, ast.While) and child is parent.test:
            return (value, True) if _ends_otherwise(parent, path[-1]) else (None, False)
        elif isinstance(parent, ast.If) and child is parent.test:
            return _wanted_if(parent, value, path[-1], path[:depth])
        elif not isinstance(parent, ast.BoolOp):
            return None, False
        child = parent
    return None, False


def _wanted_if(node: ast.If, value: bool, read: ast.AST, outside: list[ast.AST]) -> tuple[bool | None, bool]:
    for body, goes_on in ((node.body, not value), (node.orelse, value)):
        last = body[-1] if body else None
        if isinstance(last, ast.Raise):
            return goes_on, False
        if isinstance(last, (ast.Break, ast.Return)):
            loop = next((each for each in reversed(outside) if isinstance(each, _LOOPS)), None)
            if loop is not None and _ends_otherwise(loop, read):
                return goes_on, True
    return None, False


def _ends_otherwise(loop: Loop, read: ast.AST) -> bool:
    """True if ``loop`` may end by something else than what the expression ``read`` decides."""
    if not isinstance(loop, ast.While):
        name = getattr(loop.iter, "func", None)
        if getattr(name, "attr", getattr(name, "id", "")) not in _ENDLESS:
            return True
    return any(all(each is not read for each in ast.walk(test)) for test in exits(loop))


def exits(loop: Loop) -> list[ast.expr]:
    """The conditions that end ``loop``: parts of its own, and those of statements that leave it."""
    own = _operands(loop.test, ast.And) if isinstance(loop, ast.While) else []
    found = [each for each in own if not isinstance(each, ast.Constant)]

    def look(body: list[ast.stmt], *, breaks: bool) -> None:
        for each in body:
            if isinstance(each, _SCOPES):
                continue
            if isinstance(each, ast.If) and any(_leaves(part, breaks=breaks) for part in (each.body, each.orelse)):
                found.extend(_operands(each.test, ast.Or))
            for part in ("body", "orelse", "finalbody"):
                look(getattr(each, part, []), breaks=breaks and not isinstance(each, _LOOPS))
            for handler in getattr(each, "handlers", []):
                look(handler.body, breaks=breaks)

    look(loop.body, breaks=True)
    return found


def _operands(test: ast.expr, kind: type[ast.boolop]) -> list[ast.expr]:
    return list(test.values) if isinstance(test, ast.BoolOp) and isinstance(test.op, kind) else [test]


def _leaves(body: list[ast.stmt], *, breaks: bool) -> bool:
    return any(isinstance(each, (ast.Return, ast.Raise)) or (breaks and isinstance(each, ast.Break)) for each in body)
