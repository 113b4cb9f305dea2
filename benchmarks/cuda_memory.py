"""Memory of CUDA steps, captured without a GPU, against published measurements.

    python benchmarks/cuda_memory.py [--write] [--device] [PART ...]

Every published row of ``memory/`` in the reference data that can be built from what it states is captured for the GPU
it was measured on, and the counters of PyTorch's allocator are predicted: the most bytes allocated and reserved over
repeated steps. Differences of two rows of one table check states, batches, weights, shards and checkpoints by
themselves. Of whole cards, slopes compare two batches of a net, and one row has what is left of all totals. Constants
come from PyTorch's sources, none from a row; that the gradient of a convolution's weight takes two copies of its
operands is inferred from ten of the nets together. Rows that cannot be built are listed with the reason.

On a machine with a GPU, ``--device`` runs built-in workloads for ten steps instead, and compares its counters and ops
with those predicted.
"""

from __future__ import annotations

import csv
import importlib
import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import harness

MIB, GIB = 2**20, 2**30
BATCHES = (32, 64, 128)
"""Batches of GPUMemNet's rows."""
Step = Callable[[], Any]


class Memory(NamedTuple):
    """Predicted counters of a step."""

    allocated: int
    reserved: int


def captured(
    workload: Callable[[], Step], machine: str, *, libraries: bool = True, ranks: int | None = None, **settings: Any
) -> Memory:
    """Counters of a step of ``workload`` on ``machine``; without ``libraries``, what BLAS keeps is left out."""
    from msgspec.structs import replace

    from tensortide import capture
    from tensortide.graph import Role
    from tensortide.memory import reserve

    graph = capture(workload, hyperparameters=settings, machine=machine, ranks=ranks)
    if not libraries:
        graph = replace(graph, storages=tuple(s for s in graph.storages if s.role is not Role.LIBRARY))
    found = reserve(graph)
    return Memory(found.peak_allocated, found.peak_reserved)


# -- the tables -------------------------------------------------------------------------------------


def _rows(name: str) -> list[dict[str, str]]:
    file = harness.reference() / "memory" / name
    if not file.exists():  # a clone has only what its licence lets it have
        return []
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def exact(name: str) -> dict[str, int]:
    from benchmarks.published.trainer import EXACT

    build, machine = EXACT[name]
    return captured(build, machine, libraries=False)._asdict()


def totals(name: str) -> list[int]:
    """Bytes reserved by the loop of a script that classifies images, by batch."""
    from benchmarks.published.images import NETS, script

    net, optimizer = NETS[name]
    return [captured(lambda size=size: script(net(), size, optimizer), "A100-SXM-40GB").reserved for size in BATCHES]


def kernels(cases: list[tuple[str, str, dict[str, Any]]]) -> list[int]:
    """Bytes allocated by each operation."""
    from benchmarks.published.operations import KERNELS

    def allocated(name: str, provider: str, given: dict[str, Any]) -> int:
        return captured(lambda: KERNELS[name, provider](**given), "A100-SXM-80GB").allocated

    return [allocated(*case) for case in cases]


def built(name: str) -> dict[str, int]:
    """Counters of a step that ``benchmarks.published`` builds."""
    from benchmarks.published import decoders, updates

    if name in decoders.TITAN:
        *sizes, some, early, ranks = decoders.TITAN[name]
        return captured(lambda: decoders.titan(*sizes, some=some, early=early), "H100-SXM-80GB", ranks=ranks)._asdict()
    if name in decoders.LITGPT:
        sizes, batch, length, adapters = decoders.LITGPT[name]
        return captured(lambda: decoders.litgpt(sizes, batch, length, **adapters), "A100-SXM-40GB")._asdict()
    machine = "V100-SXM2-16GB" if name in updates.BERT else "RTX 4090"
    return captured({**updates.BERT, **updates.VIT}[name], machine)._asdict()


UNLICENSED = ("ob-", "gmn")
"""Rows of data sets that state no licence: their figures are compared, and not recorded."""


class Family(NamedTuple):
    """Rows whose ids begin with ``start``: the counter, the share it may be below or above, why it may be further off,
    and a published row whose bytes are added, that of the context."""

    start: str
    counter: str
    below: float
    above: float
    remark: str
    context: str = ""


FAMILIES = (
    Family("ao-vith", "allocated", 0.05, 0.05, "eager activations; the published step is compiled"),
    Family("hfbert", "reserved", 0.08, 0.08, "kernels of PyTorch 1.10", "hfbert-context"),
    Family("lgrt", "allocated", 0.05, 0.05, "bitsandbytes takes more than codes, scales and inputs"),
    Family(
        "lgch",
        "allocated",
        0.02,
        0.10,
        "the length is an upper bound: samples may be shorter, but nothing may be missing",
    ),
    Family(
        "tt",
        "reserved",
        0.10,
        0.10,
        "one pool, where FSDP's streams have their own; what was kept of ops in 2024 is not sure",
    ),
)
DIFFERENCES = (
    ("ao-vith-fused", "ao-vith-ao8", 0.05), ("ao-vith-fused", "ao-vith-bnb8", 0.05),
    ("ao-vith-fused", "ao-vith-ao4", 0.05), ("hfbert-b4", "hfbert-b1ga4", 0.10),
    ("hfbert-b1ga4", "hfbert-b1ga4gc", 0.10),
    ("lgrt-phi15-b4", "lgrt-phi15-b1", 0.10), ("lgrt-l2_7-b2", "lgrt-l2_7-b1", 0.10),
    ("lgrt-l2_7-b1", "lgrt-l2_7-b1-nf4", 0.10), ("lgrt-l2_13-b1", "lgrt-l2_13-b1-nf4", 0.10),
    ("tt-1d8-eager", "tt-1d128-eager", 0.10), ("tt-pr165-fsdp2-sac-active", "tt-pr165-fsdp2-ac-active", 0.10),
    ("tt-pr165-fsdp2-sac-reserved", "tt-pr165-fsdp2-ac-reserved", 0.10),
)  # fmt: skip
"""Rows of one table, and the share that their difference may be off: states, batches, weights, shards, checkpoints."""

MISSES = {
    "lgch-llama-2-7b-qlora": "bitsandbytes takes more than codes, scales and inputs",
    "lgch-gemma-2b-lora": "norms and gates are Llama's; the length is an upper bound, so nothing may be missing",
    "gmnt-regnety_040": "grouped convolutions of 64 channels each",
    "gmnt-vit_small_patch16_224": "timm's ViT is not installed; the built-in one keeps more",
}


class Row(NamedTuple):
    """A published figure, what is predicted, and the share that it may be off."""

    id: str
    what: str
    published: float
    predicted: float
    target: float
    remark: str = ""
    below: float | None = None

    def figures(self) -> harness.Row:
        off = self.predicted / self.published - 1
        near = -(self.target if self.below is None else self.below) <= off <= self.target or (
            self.target == 0.001 and abs(self.predicted - self.published) <= MIB
        )
        verdict = "ok" if near else f"off: {self.remark or 'unexplained'}"
        kept = {"id": self.id, "what": self.what, "off": off, "verdict": verdict}
        if self.id.startswith(UNLICENSED):
            return {**kept, "published": "", "predicted": ""}
        return {**kept, "published": f"{self.published / MIB:.3f}", "predicted": f"{self.predicted / MIB:.3f}"}


class Rest(NamedTuple):
    """What rows have in common beyond what is predicted; no target."""

    id: str
    what: str
    verdict: str

    def figures(self) -> harness.Row:
        return {**self._asdict(), "published": "", "predicted": "", "off": None}


def _steps(run: harness.Run) -> Iterator[Row]:
    from benchmarks.published.trainer import EXACT

    published = {row["id"]: int(row["value_bytes"]) for row in _rows("cuda_peaks.csv")}
    for name in EXACT:
        if f"{name}-allocated" in published:
            found = run.child(exact, name)
            for kind, target in (("allocated", 0.01), ("reserved", 0.05)):
                yield Row(f"{name}-{kind}", kind, published[f"{name}-{kind}"], found[kind], target)


def _built(rows: Mapping[str, Any], run: harness.Run) -> Iterator[Row]:
    """Steps built from their settings, and differences of two; rows of one setting share a step."""
    published, found = {row["id"]: int(row["value_bytes"]) for row in _rows("cuda_peaks.csv")}, {}
    counters: dict[str, dict[str, int]] = {}
    for name, setting in ((name, str(rows[name])) for name in rows if name in published):
        if setting not in counters:
            counters[setting] = run.child(built, name)
        family = next(family for family in FAMILIES if name.startswith(family.start))
        counter = "allocated" if name.endswith("-active") else family.counter
        context = published.get(family.context, 0)
        found[name] = counters[setting][counter] + context
        what = counter + (" + context" if context else "")
        yield Row(name, what, published[name], found[name], family.above, MISSES.get(name, family.remark), family.below)
    for more, less, target in DIFFERENCES:
        if more in found and less in found:
            remark = next(family.remark for family in FAMILIES if more.startswith(family.start))
            want, got = published[more] - published[less], found[more] - found[less]
            yield Row(f"{more} - {less}", "difference", want, got, target, remark)


def _published(module: str, table: str) -> Callable[[harness.Run], Iterator[Row]]:
    """The part of the steps in a table of ``benchmarks.published``, which is imported when they run."""

    def rows(run: harness.Run) -> Iterator[Row]:
        return _built(getattr(importlib.import_module(f"benchmarks.published.{module}"), table), run)

    return rows


def _slopes(run: harness.Run) -> Iterator[Row | Rest]:
    """Bytes per image between two batches, and what is left of each total: the context, which is the same for all."""
    from benchmarks.published.images import NETS

    published, left = {row["id"]: int(row["value_bytes"]) for row in _rows("cuda_peaks.csv")}, []
    for name in NETS:
        if f"{name}-b{BATCHES[0]}" in published:
            found = run.child(totals, name)
            have = [published[f"{name}-b{size}"] for size in BATCHES]
            left += [want - got for want, got in zip(have, found, strict=True)]
            _, few, many = BATCHES
            slope, predicted = (have[2] - have[1]) / (many - few), (found[2] - found[1]) / (many - few)
            yield Row(name, f"slope {few} to {many}", slope, predicted, 0.10, MISSES.get(name, ""))
    if left:
        middle = statistics.median(left)
        inside = sum(abs(rest - middle) <= 0.25 * GIB for rest in left)
        spread = f"from {min(left) / GIB:.2f} to {max(left) / GIB:.2f} GiB, {inside} within 0.25 GiB of the median"
        what = f"rest of {len(left)} totals: context, libraries"
        yield Rest("gmn*", what, f"median {middle / GIB:.2f} GiB, {spread}")


def _kernels(run: harness.Run) -> Iterator[Row]:
    from benchmarks.published.operations import KERNELS

    listed = [row for row in _rows("kernel_memory.csv") if (row["kernel"], row["provider"]) in KERNELS]
    listed = [row for row in listed if row["mode"] == "full"][: 1 if run.smallest else None]
    cases = [
        (row["kernel"], row["provider"], {**json.loads(row["config"]), row["x_name"]: int(row["x_value"])})
        for row in listed
    ]
    for row, found in zip(listed, run.child(kernels, cases), strict=True):
        what = f"{row['kernel']}/{row['provider']} {row['x_name']}={row['x_value']} ({row['library_version']})"
        yield Row(what, "allocated", int(row["value_bytes"]), found, 0.001)


NOT_BUILT = {
    "tt-*-compile, tt-*-c, tt-*-f8, tt-cp*, tt-ao-pre-*": "compiled by Inductor, float8, or context parallel",
    "tt-996-*": "compilation not stated",
    "tt-pr165-fsdp1-*, lgrt-l2_7-f2-*, lgch-*-4gpu": "FSDP1: its flat parameters are not built on fake tensors",
    "lgch-*-full of Llama 3.2": "rejected: below the bytes of weights, gradients and states",
    "lgch-tiny-llama-qlora, lgch-gemma-2b-qlora, lgch-phi-2-qlora, lgch-llama-3.2-3B-qlora": "published near or "
    "above LoRA with weights of 16 bits, which states and weights do not explain",
    "tune-*": "lengths not stated, compiled, or offloaded; torchtune is not installed",
    "ao-vitg-*, ao-l1b-*": "the model's definition (timm, a script of that time) is not at hand",
    "cook-*, fairscale-*, densenet-*": "settings are open (confidence low)",
    "mmseg-*": "fp32 convolutions of a V100 and PyTorch 1.5, whose algorithms are unknown",
    "hfbert-weights": "weights alone, no step",
    "gmn-bert-*": "whole card at one batch: no slope",
}
"""Rows that are not built, and why."""

COLUMNS = {
    "row": "{id}",
    "figure": "{what}",
    "published MiB": "{published}",
    "predicted MiB": "{predicted}",
    "off": "{off:+.3%}",
    "verdict": "{verdict}",
}


PARTS: dict[str, Callable[[harness.Run], Iterator[Any]]] = {
    "operations": _kernels,
    "steps": _steps,
    "optimizers": _published("updates", "VIT"),
    "bert": _published("updates", "BERT"),
    "litgpt": _published("decoders", "LITGPT"),
    "torchtitan": _published("decoders", "TITAN"),
    "slopes": _slopes,
}
"""Parts of the benchmark, as they are named on the command line."""


def measure(run: harness.Run) -> None:
    from benchmarks.published.operations import KERNELS

    if run.options.device:
        _on_device(run)
        return
    parts = {"operations": _kernels} if run.smallest else PARTS
    chosen = run.cases(parts)
    for title, named in (("Operations", ["operations"]), ("Steps", [*list(PARTS)[1:]])):
        table = run.table(COLUMNS, ("id",), title)
        for name in named:
            if name in chosen:
                for row in chosen[name](run):
                    table.add(row.figures())
    for family, reason in NOT_BUILT.items():
        run.note(f"Not built, {family}: {reason}.")
    others = {row["kernel"] for row in _rows("kernel_memory.csv")} - {name for name, _ in KERNELS}
    run.note(f"Not built, operations by Liger's own kernels or modules: provider liger; {', '.join(sorted(others))}.")


# -- a real GPU -------------------------------------------------------------------------------------

WORKLOADS: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", {"batch": 4, "seq": 512}),
    ("gpt2", {"batch": 4, "seq": 512, "dtype": "bfloat16"}),
    ("bert", {"batch": 8, "seq": 128}),
    ("resnet50", {"batch": 32}),
    ("vit", {"batch": 8}),
    ("unet", {"batch": 2}),
    ("lstm", {"batch": 32}),
    ("llama", {"batch": 2, "dtype": "bfloat16"}),
]


def real(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Counters of ten steps on the GPU, and the names of the ops of the last."""
    import torch

    from tensortide.examples import find
    from tensortide.recorder.recorder import Recorder

    torch.set_default_device("cuda")
    step = find(name).load()(**settings)
    torch.set_default_device(None)  # as where a model is moved: the optimizer's step counters stay on the CPU
    for _ in range(10):
        step()
    torch.cuda.synchronize()
    counters = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
    with Recorder() as recorder:
        step()
    return {**counters, "ops": [op.name for op in recorder.graph()]}


def pretended(name: str, settings: dict[str, Any], machine: str) -> dict[str, Any]:
    from tensortide import capture

    graph = capture(name, hyperparameters=settings, machine=machine)
    return {**captured(name, machine, **settings)._asdict(), "ops": [op.name for op in graph]}  # type: ignore[arg-type]


def _on_device(run: harness.Run) -> None:
    import torch

    table = run.table({**COLUMNS, "ops equal": "{same}"}, ("id",), "Ten steps on a GPU")
    for name, settings in WORKLOADS:
        if run.options.names and name not in run.options.names:
            continue
        have = run.child(real, name, settings)
        want = run.child(pretended, name, settings, torch.cuda.get_device_name())
        for kind, target in (("allocated", 0.03), ("reserved", 0.05)):
            row = Row(harness.named(name, settings), kind, have[kind], want[kind], target)
            table.add({**row.figures(), "same": _differing(have["ops"], want["ops"])})


def _differing(have: list[str], want: list[str]) -> str:
    """``yes``, or how many ops each has more of than the other."""
    more, fewer = Counter(have) - Counter(want), Counter(want) - Counter(have)
    counts = [f"{sign}{count} {name}" for sign, ops in (("+", more), ("-", fewer)) for name, count in ops.items()]
    return "yes" if have == want else ", ".join(counts[:6]) or "in another order"


if __name__ == "__main__":
    harness.main(__doc__, measure, device={"action": "store_true", "help": "compare with the GPU of this machine"})
