"""Lines per room of the package, and their difference against a git revision.

    python -m scripts.room_sizes                      # as it is
    python -m scripts.room_sizes v0.1                 # against a revision
    python -m scripts.room_sizes v0.1 --renamed capture=recorder --renamed capture/g10=importers
    python -m scripts.room_sizes --check              # fail where a room is over its line in tests/rooms.toml

Two numbers per room: all lines of its Python files, and those left without docstrings, comments and blank lines.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "src/tensortide/"
TABLE = ROOT / "tests/rooms.toml"
LAYOUT = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}


def code_lines(source: str) -> int:
    """Lines with code: neither blank nor only of a comment or of a string that is a statement of its own."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def sources_now() -> Iterator[tuple[str, str]]:
    """Path in the package and text of every Python file of the working tree."""
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        yield path.relative_to(ROOT / PACKAGE).as_posix(), path.read_text("utf-8", "replace")


def sources_of(revision: str) -> Iterator[tuple[str, str]]:
    """Path in the package and text of every Python file of ``revision``."""
    packed = subprocess.run(["git", "archive", revision, PACKAGE], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.name.endswith(".py") else None
            if content is not None:
                yield member.name.removeprefix(PACKAGE), content.read().decode()


def line_counts(sources: Iterable[tuple[str, str]], renamed: dict[str, str] | None = None) -> Counter[str]:
    """All lines per room. A path that begins with a key of ``renamed`` counts for its value."""
    lines: Counter[str] = Counter()
    for path, source in sources:
        lines[_room(path, renamed or {})] += len(source.splitlines())
    return lines


def sizes(sources: Iterable[tuple[str, str]], renamed: dict[str, str]) -> tuple[Counter[str], Counter[str]]:
    """All lines and lines with code per room."""
    sources = list(sources)
    code: Counter[str] = Counter()
    for path, source in sources:
        code[_room(path, renamed)] += code_lines(source)
    return line_counts(sources, renamed), code


def _room(path: str, renamed: dict[str, str]) -> str:
    old = max((key for key in renamed if path.startswith(f"{key}/")), key=len, default=None)
    place = path if old is None else f"{renamed[old]}/{path.removeprefix(old)}"
    return place.split("/")[0] if "/" in place else "top"


def over_limit(lines: Counter[str], limits: dict[str, int]) -> list[str]:
    """One message for each room with more lines than its limit, or without one."""
    return [
        f"{room}: {count:,} lines, limit {limits[room]:,}" if room in limits else f"{room}: {count:,} lines, no row"
        for room, count in sorted(lines.items())
        if count > limits.get(room, 0)
    ]


def line_limits(table: Path = TABLE) -> dict[str, int]:
    """Lines that each room may have."""
    rows = tomllib.loads(table.read_text("utf-8"))
    return {room: row["lines"] for room, row in rows.items() if "lines" in row}


def check() -> int:
    """Print the rooms that are over their limits; 1 if there is one."""
    messages = over_limit(line_counts(sources_now()), line_limits())
    for message in messages:
        print(f"{message}: make the room smaller, or change tests/rooms.toml and say why in the commit")
    return bool(messages)


def main() -> int:
    """Print the table, or check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", nargs="?", help="git revision to compare with")
    parser.add_argument(
        "--renamed", action="append", default=[], metavar="OLD=NEW", help="folder of the revision and its room today"
    )
    parser.add_argument("--check", action="store_true", help="compare with tests/rooms.toml, and fail if one is over")
    options = parser.parse_args()
    if options.check:
        return check()
    renamed = dict(each.split("=", 1) for each in options.renamed)
    now = sizes(sources_now(), {})
    before = sizes(sources_of(options.revision), renamed) if options.revision else None
    against = [] if before is None else ["before", "diff"]
    rooms = sorted({*now[0], *(before[0] if before else ())})
    table = [["room", "lines", *against, "code", *against]]
    for room in [*rooms, "total"]:
        row = [room]
        for i in range(2):
            count = now[i].total() if room == "total" else now[i][room]
            row.append(f"{count:,}")
            if before is not None:
                earlier = before[i].total() if room == "total" else before[i][room]
                row += [f"{earlier:,}", f"{count - earlier:+,}"]
        table.append(row)
    for row in table:
        print(f"{row[0]:12}" + "".join(f"{cell:>10}" for cell in row[1:]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
