"""The tables of docs/experiments.md: keys of files of experiments, as their structs have them.

python -m scripts.experiment_keys    # write them anew
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from tensortide.studies.experiment.grammar import Head
from tensortide.studies.experiment.trials import RIVALS, Trial
from tensortide.write import write_file

PAGE = Path(__file__).resolve().parent.parent / "docs/experiments.md"


def tables() -> dict[str, str]:
    """The tables by the names that they have in comments of the page."""
    return {"file": _keys(Head), "trial": _keys(Trial), "ways": _ways()}


def _keys(kind: type[msgspec.Struct]) -> str:
    hints = get_type_hints(kind, include_extras=True)
    rows = [
        f"| `{field.name}` | {_default(field)} | {get_args(hints[field.name])[1].description} |"
        for field in msgspec.structs.fields(kind)
    ]
    return "\n".join(["| key | default | |", "|---|---|---|", *rows])


def _default(field: Any) -> str:
    if field.required:
        return "must be given"
    return f"`{str(field.default).lower()}`" if field.default not in (None, "", msgspec.NODEFAULT) else ""


def _ways() -> str:
    rows = [f"| `{name}` | {rival.takes} | {rival.about} |" for name, rival in RIVALS.items()]
    return "\n".join(["| policy | budget | |", "|---|---|---|", *rows])


def page(text: str) -> str:
    """The ``text`` of the page with its tables as they are now."""
    for name, table in tables().items():
        text = re.sub(rf"(<!-- {name} -->\n\n).*?(\n?<!-- end -->)", rf"\1{_literal(table)}\n\2", text, flags=re.DOTALL)
    return text


def _literal(text: str) -> str:
    return text.replace("\\", r"\\")


if __name__ == "__main__":
    write_file(PAGE, page(PAGE.read_text()))
