"""Write the argument names of PyTorch's ops that have a cost rule or are views: the table that GraphBuilder reads.

    python scripts/aten_signatures.py

Run it after a rule is added, or with a newer PyTorch. One op overload per line, as ``graph/signatures.py`` explains.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from tensortide.cost.evaluate import rule_for

TABLE = Path(__file__).resolve().parent.parent / "src/tensortide/graph/aten_signatures.txt"


def lines() -> Iterator[str]:
    """Yield one line for every overload of ``aten`` that has a rule and returns its results; the default ones first."""
    found = torch._C._jit_get_all_schemas()
    for schema in sorted(found, key=lambda schema: (schema.name, schema.overload_name != "")):
        namespace, _, base = schema.name.partition("::")
        overload = schema.overload_name
        name = f"aten::{base}{'.' * bool(overload)}{overload}"
        is_view = any(result.alias_info is not None and not result.alias_info.is_write for result in schema.returns)
        if namespace != "aten" or not (is_view or rule_for(name)) or any(a.is_out for a in schema.arguments):
            continue
        if torch._C._dispatch_has_kernel(name) and "hacked_twin" not in overload:  # else of TorchScript alone
            yield " ".join([f"{base}.{overload or 'default'}", *_arguments(schema)])


def _arguments(schema: Any) -> Iterator[str]:
    keyword = False
    for argument in schema.arguments:
        if argument.kwarg_only and not keyword:
            keyword = True
            yield "/"
        kind = str(argument.real_type)
        marks = "*" if "Tensor" in kind and "[" in kind and kind != "Optional[Tensor]" else ""
        marks += ":" if "Tensor" not in kind else ""
        written = argument.alias_info is not None and argument.alias_info.is_write
        yield f"{argument.name}{marks}{'!' if written else ''}"


if __name__ == "__main__":
    made = sorted(dict.fromkeys(lines()), key=lambda line: line.partition(".")[0])
    TABLE.write_text("\n".join(made) + "\n")
    print(f"{len(made)} signatures -> {TABLE}")
