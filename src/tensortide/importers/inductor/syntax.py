"""The text of a dumped graph: its parameters, nodes and results. It is parsed, never executed."""

from __future__ import annotations

import ast
import re
import warnings
from typing import NamedTuple

from tensortide.graph.model import Source
from tensortide.importers.inductor.types import Bad, SymbolType, TensorType, parse_type
from tensortide.importers.textfile import Cursor, TextFile

__all__ = ["Node", "Parameter", "Program", "name_of_call", "parse"]

_CLASS = re.compile(r"class (?:<lambda>|[A-Za-z_]\w*)\((?:[\w.]*\.)?Module\):\s*(?:#.*)?", re.ASCII)
_DEF = re.compile(r"\s+def forward\(self,?\s*", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_TYPE = (
    r"\"[^\"]*\"|'[^']*'|[A-Za-z]\w*\[[^\[\]]*\](?:\[[^\[\]]*\])?(?:[a-z]+(?::\d+)?)?|Sym\([^\[\]\"']*?\)(?=\s*[,)=])"
)
_ANNOTATED = re.compile(rf"(?P<name>[A-Za-z_]\w*)\s*(?::\s*(?P<type>{_TYPE}))?", re.ASCII)
_NODE = re.compile(rf"\s*{_ANNOTATED.pattern}\s*=(?!=)\s*", re.ASCII)
_PLACE = re.compile(r"#\s*File: (.*?):(\d{1,9})(?: in (.+?))?, code: ?(.*)")
_MOST_LINES = 1000


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
    return _Parser(file).program()


def name_of_call(node: ast.expr) -> str:
    """The dotted name of what ``node`` calls; empty if it is no call of such a name."""
    parts: list[str] = []
    part = node.func if isinstance(node, ast.Call) else None
    while isinstance(part, ast.Attribute):
        parts.append(part.attr)
        part = part.value
    return ".".join([part.id, *reversed(parts)]) if isinstance(part, ast.Name) else ""


class _Parser(Cursor):
    def __init__(self, file: TextFile) -> None:
        super().__init__(file)
        self.nodes: list[Node] = []
        self.source: Source | None = None

    def program(self) -> Program:
        self._skip_to_class()
        parameters = self._parameters()
        while True:
            line = self.line.strip()
            if self.done:
                raise self.file.error(self.at, "'return ...'")
            if line.startswith("#"):
                self._comment(line)
                self.at += 1
            elif not line:
                self.at += 1
            elif re.match(r"return\b", line):
                program = Program(self.file, parameters, tuple(self.nodes), self._results(), self.at - 1)
                self._rest()
                return program
            else:
                self._node()

    def _skip_to_class(self) -> None:
        """Imports, comments and blank lines may come first."""
        while not _CLASS.fullmatch(self.line):
            line = self.line
            if self.done or (line and not re.match(r"#|import |from ", line)):
                raise self.file.error(self.at, "'class <name>(torch.nn.Module):'")
            self.at += 1
        self.at += 1

    def _parameters(self) -> tuple[Parameter, ...]:
        while not self.line.strip() or self.line.lstrip().startswith("#"):
            if self.done:
                break
            self.at += 1
        start = self.at
        head = _DEF.match(self.line)
        if head is None:
            raise self.file.error(start, "'def forward(self, ...):'")
        found: dict[str, Parameter] = {}
        position = head.end()
        while True:
            while not self.line[position:].strip():  # the parameters go on in the next line
                self.at, position = self.at + 1, 0
                if self.done:
                    raise self.file.error(start, "parameters that end with '):'")
            position += len(self.line[position:]) - len(self.line[position:].lstrip())
            if re.match(r"\)\s*:\s*(#.*)?$", self.line[position:]):
                self.at += 1
                return tuple(found.values())
            position = self._parameter(position, found)

    def _parameter(self, position: int, found: dict[str, Parameter]) -> int:
        line = self.line
        match = _ANNOTATED.match(line, position)
        if match is None:
            raise self.file.error(self.at, "'<name>: \"<type>\"' or '):'", position + 1)
        name = match["name"]
        if name in found:
            raise self.file.wrong(self.at, f"{name} is a parameter twice", position + 1)
        found[name] = Parameter(name, self._type(match), self.at)
        rest = re.compile(r"\s*(,|(?=\)))").match(line, match.end())
        if rest is None:
            raise self.file.error(self.at, "',' or '):' after a parameter", match.end() + 1)
        return rest.end()

    def _type(self, match: re.Match[str]) -> TensorType | SymbolType | None:
        text = match["type"]
        if text is None:
            return None
        quoted = text[0] in "\"'"
        try:
            return parse_type(text[1:-1] if quoted else text)
        except Bad as error:
            raise self.file.wrong(self.at, str(error), match.start("type") + 1 + quoted + error.at) from None

    def _comment(self, line: str) -> None:
        """A place in the user's code holds until the next comment that tells of one, or of none."""
        if found := _PLACE.match(line):
            self.source = Source(found[1], int(found[2]), found[3] or "", found[4][:160])
        elif line.startswith("# No stacktrace"):
            self.source = None

    def _node(self) -> None:
        start = self.at
        match = _NODE.match(self.line)
        if match is None:
            raise self.file.error(start, "'<name>: \"<type>\" = <call>' or 'return ...'", 1)
        kind = self._type(match)
        text, body = self._statements(match.end())
        value = body[0].value if isinstance(body[0], (ast.Expr, ast.Assign)) else None
        if value is None or not all(map(_frees, body[1:])):
            raise self.file.error(start, "one call, and after it only '<name> = None'", match.end() + 1)
        if kind is None and _is_none(value):
            return  # names that end here
        if isinstance(body[0], ast.Assign):
            raise self.file.error(start, "one name before '='", match.start("name") + 1)
        self.nodes.append(Node(match["name"], kind, value, _segment(text, value), start, self.source))

    def _results(self) -> ast.expr:
        start = self.at
        _, body = self._statements(0)
        statement = body[0]
        if len(body) > 1 or not isinstance(statement, ast.Return) or statement.value is None:
            raise self.file.error(start, "'return <names>'")
        return statement.value

    def _statements(self, position: int) -> tuple[str, list[ast.stmt]]:
        """The statements from ``position`` of this line on, with their text; lines are joined until brackets close."""
        start = self.at
        text = self.line[position:].lstrip()
        offset = len(self.line) - len(text)
        first: SyntaxError | None = None
        for _ in range(_MOST_LINES):
            self.at += 1
            try:
                body = _parsed(text)
            except SyntaxError as error:
                first = first or error
                if "was never closed" in str(error) and not self.done:
                    text += " " + self.line.strip()
                    continue
                raise self.file.wrong(start, f"not Python: {first.msg}", offset + (first.offset or 1)) from None
            except (ValueError, RecursionError, MemoryError) as error:
                raise self.file.wrong(start, f"not Python: {error}") from None
            if not body:
                raise self.file.error(start, "a call after '='", position + 1)
            return text, body
        raise self.file.wrong(start, f"brackets do not close within {_MOST_LINES} lines")

    def _rest(self) -> None:
        """Nothing but modules inside the class may follow."""
        inside = False
        for index in range(self.at, len(self.file.lines)):
            line = self.file.lines[index]
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            inside = inside or re.match(r"\s+class ", line) is not None
            if not inside or not line[0].isspace():
                raise self.file.error(index, "nothing after the graph's 'return'")


def _parsed(text: str) -> list[ast.stmt]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the parser, about the text
        if text.startswith("return"):
            function = ast.parse(f"def f(): {text}").body[0]
            assert isinstance(function, ast.FunctionDef)
            return function.body
        return ast.parse(text).body


def _segment(text: str, node: ast.expr) -> str:
    """Return the source of ``node``, verbatim."""
    return text.encode()[node.col_offset : node.end_col_offset].decode()


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _frees(statement: ast.stmt) -> bool:
    """Return whether the statement only releases names: ``a = b = None``."""
    if not isinstance(statement, ast.Assign) or not _is_none(statement.value):
        return False
    return all(isinstance(target, ast.Name) for target in statement.targets)
