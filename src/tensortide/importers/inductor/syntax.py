"""The text of a dumped graph: its parameters, nodes and results. It is parsed, never executed."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from tensortide.graph.model import Source
from tensortide.importers.inductor.types import Bad, SymbolType, TensorType, parse_type
from tensortide.importers.textfile import TextFile

_MODULE = re.compile(r"class (?:<lambda>|[A-Za-z_]\w*)\((?:[\w.]*\.)?Module\):\s*(?:#.*)?", re.ASCII)
_DEF = re.compile(r"\s+def forward\(self\b", re.ASCII)
_TYPE = r"([A-Za-z]\w*\[[^\[\]]*\](?:\[[^\[\]]*\])?(?:[a-z]+(?::\d+)?)?|Sym\([^\[\]\"']*?\)(?=\s*[,)=]))"
_BARE_NODE = re.compile(rf"(\s*[A-Za-z_]\w*\s*):\s?{_TYPE}\s?(?==)", re.ASCII)
_BARE_PARAMETER = re.compile(rf"([A-Za-z_]\w*\s*):\s?{_TYPE}", re.ASCII)
_PLACE = re.compile(r"#\s*File: (.*?):(\d{1,9})(?: in (.+?))?, code: ?(.*)")


class Parameter(NamedTuple):
    """An argument of the graph, and its line (from 0). ``type`` is None for what is neither tensor nor number."""

    name: str
    type: TensorType | SymbolType | None
    line: int


class Node(NamedTuple):
    """A definition: what ``name`` is (``value``, its ``text`` verbatim), of which type, where the user's code asks for
    it."""

    name: str
    type: TensorType | SymbolType | None
    value: ast.expr
    text: str
    line: int
    source: Source | None


class Program(NamedTuple):
    """A dumped graph: what it takes, defines and returns. ``last_line`` (from 0) is where it returns."""

    file: TextFile
    parameters: tuple[Parameter, ...]
    nodes: tuple[Node, ...]
    results: ast.expr
    last_line: int


def parse(file: TextFile) -> Program:
    """The graph in ``file``. Modules inside its class are what its ops of higher order call; they are passed over.

    Raises:
        TraceError: a line is not what its place asks for.
    """
    lines = _quoted(file)
    body = [part for part in _tree(file, lines).body if not isinstance(part, (ast.Import, ast.ImportFrom))]
    at = body[0].lineno - 1 if body else len(file.lines)
    if not body or not isinstance(module := body[0], ast.ClassDef) or not _MODULE.fullmatch(file.lines[at]):
        raise file.error(at, "'class <name>(torch.nn.Module):'")
    forward, *inner = module.body
    if not isinstance(forward, ast.FunctionDef) or not _DEF.match(file.lines[forward.lineno - 1]):
        raise file.error(forward.lineno - 1, "'def forward(self, ...):'")
    parameters: dict[str, Parameter] = {}
    for argument in forward.args.args[1:]:
        name, line = argument.arg, argument.lineno - 1
        if name in parameters:
            raise file.wrong(line, f"{name} is a parameter twice", argument.col_offset + 1)
        parameters[name] = Parameter(name, _type(file, argument.annotation), line)
    *statements, last = forward.body
    nodes = tuple(_nodes(file, lines, statements if isinstance(last, ast.Return) else forward.body))
    if not isinstance(last, ast.Return):
        raise file.error(forward.end_lineno or len(file.lines), "'return ...'")
    if last.value is None:
        raise file.error(last.lineno - 1, "'return <names>'")
    for other in (*(part for part in inner if not isinstance(part, ast.ClassDef)), *body[1:]):
        raise file.error(other.lineno - 1, "nothing after the graph's 'return'")
    return Program(file, tuple(parameters.values()), nodes, last.value, last.lineno - 1)


def name_of_call(node: ast.expr) -> str:
    """The dotted name of what ``node`` calls; empty if it is no call of such a name."""
    parts: list[str] = []
    part = node.func if isinstance(node, ast.Call) else None
    while isinstance(part, ast.Attribute):
        parts.append(part.attr)
        part = part.value
    return ".".join([part.id, *reversed(parts)]) if isinstance(part, ast.Name) else ""


def _quoted(file: TextFile) -> list[str]:
    """The lines as Python has them: types, which older dumps do not quote, in quotes; columns stay where they are, but
    for the parameters."""
    lines, header = [], False
    for line in file.lines:
        header = header or _DEF.match(line) is not None
        if header:
            lines.append(_BARE_PARAMETER.sub(r'\1:"\2"', line))
            header = re.search(r"\)\s*:\s*(#.*)?$", line) is None
        else:
            lines.append(_BARE_NODE.sub(r'\1:"\2"', line, count=1).replace("class <lambda>", "class _lambda_"))
    return lines


def _tree(file: TextFile, lines: list[str]) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the parser, about the text
            return ast.parse("\n".join(lines))
    except SyntaxError as error:
        raise file.wrong((error.lineno or 1) - 1, f"not Python: {error.msg}", error.offset) from None
    except (ValueError, RecursionError, MemoryError) as error:  # the longest line nests deepest
        longest = max(range(len(lines)), key=lambda index: len(lines[index]))
        raise file.wrong(longest, f"not Python: {error}") from None


def _nodes(file: TextFile, lines: list[str], statements: list[ast.stmt]) -> Iterator[Node]:
    """The definitions; ``<name> = None``, where a name ends, is passed over."""
    comments = [index for index, line in enumerate(lines) if line.lstrip().startswith("#")]
    source: Source | None = None
    before: ast.expr | None = None
    for statement in statements:
        line = statement.lineno - 1
        while comments and comments[0] < line:
            source = _place(lines[comments.pop(0)].lstrip(), source)
        match statement:
            case ast.Assign(value=ast.Constant(value=None), targets=targets) if all(
                isinstance(target, ast.Name) for target in targets
            ):
                continue
            case _ if before is not None and before.end_lineno == statement.lineno:
                raise file.error(line, "one call, and after it only '<name> = None'", before.col_offset + 1)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                kind = None
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=ast.expr() as value):
                kind = _type(file, annotation)
            case ast.Assign(targets=[first, _, *_]):
                raise file.error(line, "one name before '='", first.col_offset + 1)
            case _:
                raise file.error(line, "'<name>: \"<type>\" = <call>' or 'return ...'", 1)
        before = value
        yield Node(name, kind, value, _segment(lines, value), line, source)


def _place(comment: str, source: Source | None) -> Source | None:
    """A place in the user's code holds until the next comment that tells of one, or of none."""
    if found := _PLACE.match(comment):
        return Source(found[1], int(found[2]), found[3] or "", found[4][:160])
    return None if comment.startswith("# No stacktrace") else source


def _type(file: TextFile, annotation: ast.expr | None) -> TensorType | SymbolType | None:
    if annotation is None:
        return None
    quoted = isinstance(annotation, ast.Constant) and isinstance(annotation.value, str)
    try:
        return parse_type(annotation.value if quoted else ast.unparse(annotation))  # type: ignore[attr-defined]
    except RecursionError:
        raise file.wrong(annotation.lineno - 1, "the type is nested too deeply", annotation.col_offset + 1) from None
    except Bad as error:
        raise file.wrong(annotation.lineno - 1, str(error), annotation.col_offset + 1 + quoted + error.at) from None


def _segment(lines: list[str], node: ast.expr) -> str:
    """The text of ``node``, verbatim but on one line."""
    rows = [line.encode() for line in lines[node.lineno - 1 : node.end_lineno]]
    rows[-1] = rows[-1][: node.end_col_offset]
    rows[0] = rows[0][node.col_offset :]
    return b" ".join(row.strip() for row in rows).decode()
