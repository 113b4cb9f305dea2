"""Keys of what is printed as JSON, by section and table: docs/keys.md, from the frozen figures of all verbs."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping

from scripts.freeze.lines import lines_of
from scripts.freeze.names import PREFIX
from scripts.freeze.settings import FROZEN

FACTS = "facts"
HEAD = """# Keys

Written by `python -m scripts.schemas` from the figures of every verb that is frozen; read [schemas](schemas.md) first.
`VERB --json` has under `.sections.SECTION.facts` the facts, and under `.sections.SECTION.tables.TABLE` the columns
named here; a table has those that its data make. `N` is a number: of a machine, a budget, an assertion. Type, unit
and title of a key are in [records.schema.json](schemas/records.schema.json), whose fields have the same names.
Verbs that measure (`run`, `time steady`, `time calibrate`, `place links`) are not listed.
"""


@functools.cache
def keys() -> dict[str, dict[str, set[str]]]:
    """The keys of each table of each section, its facts among them; of each section its verbs, under no name."""
    found: dict[str, dict[str, set[str]]] = {}
    for verb, section, table, names in _lines(lines_of(FROZEN.read_text("utf-8"))):
        tables = found.setdefault(section, {"": set()})
        tables[""].add(verb)
        tables.setdefault(table, set()).update(names)
    return found


def _lines(lines: Mapping[str, str]) -> Iterator[tuple[str, str, str, list[str]]]:
    for name, value in lines.items():
        verb, *middle, last = name.split("/")
        if verb.startswith(PREFIX) or len(middle) != 2 or last == "notes" or "." in last:
            continue
        section = general(middle[-1])
        if last.endswith("[]"):
            columns = [part.rpartition(":")[0] for part in value.split()[2:]]
            yield verb.replace("_", " "), section, general(last[:-2]), [*map(general, columns)]
        else:
            yield verb.replace("_", " "), section, FACTS, [general(last)]


def general(key: str) -> str:
    """``key`` with ``N`` for each number that is a part of it."""
    return re.sub(r"(?<=_)\d+(?=_|$)", "N", key)


def page() -> str:
    """The text of the page."""
    return "\n".join(
        [HEAD, *(line for section, tables in sorted(keys().items()) for line in _section(section, tables))]
    )


def _section(section: str, tables: Mapping[str, set[str]]) -> Iterator[str]:
    verbs = ", ".join(f"`{verb}`" for verb in sorted(tables[""]))
    yield f"## {section}\n\nOf {verbs}.\n\n| | keys |\n|---|---|"
    for table in sorted(tables.keys() - {""}, key=lambda one: (one != FACTS, one)):
        name = FACTS if table == FACTS else f"`{table}`"
        yield f"| {name} | {', '.join(f'`{key}`' for key in sorted(tables[table]) if key)} |"
    yield ""
