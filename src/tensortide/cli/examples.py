"""``tensortide examples``: the built-in workloads."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tensortide.cli.source import OutputOptions, console, print_json
from tensortide.errors import WorkloadError

if TYPE_CHECKING:
    from tensortide.examples import Example


def examples(
    name: Annotated[str, Parameter(show_default=False, help="One workload.")] = "",
    /,
    *,
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """List the built-in workloads, or the hyperparameters of one (NAME) with their defaults."""
    from tensortide import examples as registry

    chosen = [registry.find(name)] if name else list(registry.examples())
    rows: list[dict[str, Any]] = [
        {"name": e.name, "summary": e.summary, "requires": list(e.requires), **_defaults(e, name)} for e in chosen
    ]
    if out.json:
        print_json(rows)
        return
    from rich.table import Table

    from tensortide.reports.layout import Trimmed

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for row in rows:
        needs = (
            f" (needs {', '.join(e for e in row['requires'] if e != 'torch')})" if row["requires"] != ["torch"] else ""
        )
        table.add_row(str(row["name"]), f"{row['summary']}{needs}")
    console().print(Trimmed(table), end="")
    if name:
        console().print("  ".join(f"{key}={value!r}" for key, value in rows[0]["hyperparameters"].items()))


def _defaults(example: Example, asked: str) -> dict[str, dict[str, object]]:
    if not asked:
        return {}
    try:
        parameters = inspect.signature(example.load()).parameters
    except ImportError as error:
        raise WorkloadError(f"{example.name} cannot be imported: {error}") from error
    return {"hyperparameters": {p.name: p.default for p in parameters.values()}}
