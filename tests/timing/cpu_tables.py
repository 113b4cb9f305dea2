"""Training steps measured op by op on one core of a CPU, as samples. Columns of the tables: the README beside them."""

from __future__ import annotations

import ast
import functools
import math
from collections import defaultdict

from tensortide.timing import Device
from tensortide.timing.families import SMALL, VIEW, of_name
from tensortide.timing.fit.samples import samples
from tensortide.timing.fit.steps import MeasuredStep
from tensortide.timing.sequence import LARGE, reuse
from tensortide.timing.work import Dimensions, Work
from tests.timing.tables import rows

ZEN5 = Device(
    name="one core of a Zen 5", kind="cpu", fp32_tflops=0.097, memory_gbytes_per_s=34.0, l2_mbytes=32.0
)  # fmt: skip
"""The measured ceilings of the core."""

_VIEWS = frozenset(
    {"view", "t", "transpose", "permute", "expand", "unbind", "detach", "_unsafe_view", "unsqueeze"}
    | {"_record_function_enter_new", "_record_function_exit"}
)
_OF_NO_NAME = {"sum": "reduction", "mean": "reduction", "gelu": "transcendental", "gelu_backward": "transcendental"}
_OF_NO_NAME |= dict.fromkeys(("empty", "triu"), "copy")

Shape = tuple[int, ...]


@functools.cache
def cpu_steps() -> dict[str, MeasuredStep]:
    """The eight measured steps by model, fp32, in processor time of one thread."""
    found: dict[str, list[tuple[Work, float]]] = defaultdict(list)
    names: dict[str, list[str]] = defaultdict(list)
    for row in rows("cpu_zen5_torch213_train_step_ops"):
        work = _work(row)._replace(fresh_bytes=_fresh(row))
        found[row["model"]].append((work, 1e3 * float(row["cpu_time_us_median"])))
        names[row["model"]].append(row["op"])
    for model, ops in found.items():
        after = reuse(names[model], [work.nbytes for work, _ in ops])
        found[model] = [(work._replace(after_bytes=b), ns) for (work, ns), b in zip(ops, after, strict=True)]
    whole = {row["model"]: row for row in rows("cpu_zen5_torch213_train_step_totals")}
    return {
        model: MeasuredStep(
            samples(ZEN5, [work for work, _ in ops], [ns for _, ns in ops]),
            1e6 * float(whole[model]["step_cpu_ms_median"]),
        )
        for model, ops in found.items()
    }


def _work(row: dict[str, str]) -> Work:
    """Work of one row. FLOPs of products are counted from shapes, and an embedding reads the rows that it gathers."""
    name = row["op"].removeprefix("profiler.").rpartition(".")[0]
    base = name.removesuffix("_")
    if name in _VIEWS:
        return Work(VIEW)
    ins, outs = (_shapes(row[side]) for side in ("in_shapes", "out_shapes"))
    read, written = int(row["read_bytes"]), int(row["write_bytes"])
    if base == "embedding":
        read = written
    found = of_name(f"aten.{base}.default")
    family = _OF_NO_NAME.get(base, "pointwise") if found is None else found[0]
    if base in ("mm", "addmm", "bmm"):
        (*batch, m, k), (*_, n) = ins[-2:]
        dims = (math.prod(batch), m, n, k)
        small = "_small" if min(m, n, k) < SMALL else ""
        return Work(family + small, "float32", 2 * math.prod(dims), 0, read, written, dims)
    if base.startswith("convolution"):
        kind, dims, products = _convolution(ins, outs, backward="backward" in base)
        return Work(f"{family}_{kind}", "float32", 2 * products * math.prod(dims), 0, read, written, dims)
    largest = max((*ins, *outs), key=math.prod, default=())
    width = largest[-1] if largest else 1
    height = max(1, math.prod(largest) // max(1, width))
    return Work(family, "float32", 0, 0, read, written, (1, height, max(1, width), max(1, len(ins))))


def _fresh(row: dict[str, str]) -> int:
    """Bytes of large results that are no operands: all is fp32."""
    name = row["op"].rpartition(".")[0]
    in_place = name in _VIEWS or name.endswith("_")
    sizes = (4 * math.prod(shape) for shape in _shapes(row["out_shapes"]))
    return 0 if in_place else sum(size for size in sizes if size >= LARGE)


def _convolution(ins: list[Shape], outs: list[Shape], *, backward: bool) -> tuple[str, Dimensions, int]:
    """Kind and dimensions of a convolution, and the products that it takes."""
    weight = ins[2 if backward else 1]
    data, result = (ins[1], ins[0]) if backward else (ins[0], outs[0])
    groups = data[1] // weight[1]
    kind = "depthwise" if groups > 1 else "1x1" if math.prod(weight[2:]) == 1 else "kxk"
    dims = (groups, math.prod(result) // result[1], result[1] // groups, math.prod(weight[1:]))
    return kind, dims, 2 if backward and outs[0] == data else 1


def _shapes(text: str) -> list[Shape]:
    return [tuple(shape) for shape in ast.literal_eval(text)]
