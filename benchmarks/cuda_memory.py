"""Memory of CUDA steps, captured without a GPU, against published measurements.

    python benchmarks/cuda_memory.py [--write] [--device] [ROW ...]

Every published row of ``memory/`` in the reference data that can be built from what it states is captured for the GPU
it was measured on, and the counters of PyTorch's allocator are predicted: the most bytes allocated and reserved over
repeated steps. Slopes compare two batches of a model where what else was running is unknown. Constants come from
PyTorch's sources, none from these rows. Rows that cannot be built are listed with the reason. On a machine with a GPU,
``--device`` runs built-in workloads for ten steps instead, and compares its counters and ops with those predicted.
"""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Callable, Iterator
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


def captured(workload: Callable[[], Step], machine: str, *, libraries: bool = True, **settings: Any) -> Memory:
    """Counters of a step of ``workload`` on ``machine``; without ``libraries``, what BLAS keeps is left out."""
    from msgspec.structs import replace

    from tensortide import capture
    from tensortide.graph import Role
    from tensortide.memory import reserve

    graph = capture(workload, hyperparameters=settings, machine=machine)
    if not libraries:
        graph = replace(graph, storages=tuple(s for s in graph.storages if s.role is not Role.LIBRARY))
    found = reserve(graph)
    return Memory(found.peak_allocated, found.peak_reserved)


# -- models of transformers, trained as its Trainer does --------------------------------------------


def _trainer(model: Any, batch: dict[str, Any]) -> Step:
    import torch

    model, batch = model.cuda(), {name: value.cuda() for name, value in batch.items()}
    groups = [[p for p in model.parameters() if (p.dim() > 1) is decays] for decays in (True, False)]
    update = torch.optim.AdamW([{"params": group} for group in groups], lr=5e-5)

    def step() -> Any:
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update.step()
        model.zero_grad()
        return loss.detach()

    return step


def gpt2() -> Step:
    """GPT-2 small, with the mask that its attention kept as a buffer in 2024."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    model, ids = GPT2LMHeadModel(GPT2Config()), torch.randint(50257, (2, 16))
    for block in model.transformer.h:
        block.attn.register_buffer("bias", torch.ones(1, 1, 1024, 1024, dtype=torch.bool), persistent=False)
    return _trainer(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids})


def bert() -> Step:
    """BERT base with its masked-language head."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    ids = torch.randint(30522, (2, 16))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
    return _trainer(BertForMaskedLM(BertConfig()), {**batch, "labels": ids})


def vit() -> Step:
    """ViT-B/16 with 1000 labels."""
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    batch = {"pixel_values": torch.randn(2, 3, 224, 224), "labels": torch.randint(1000, (2,))}
    return _trainer(ViTForImageClassification(ViTConfig(num_labels=1000)), batch)


def vit_huge(fused: bool = True) -> Step:
    """ViT-H/14 with 45 labels under bf16 autocast, eager where the published step is compiled."""
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 1280, "num_hidden_layers": 32, "num_attention_heads": 16, "intermediate_size": 5120}
    model = ViTForImageClassification(ViTConfig(**sizes, patch_size=14, num_labels=45)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    images, labels = torch.randn(8, 3, 224, 224, device="cuda"), torch.randint(45, (8,), device="cuda")

    def step() -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(pixel_values=images, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


AMD = "MI250 (1 GCD of 2)"
EXACT: dict[str, tuple[Callable[[], Step], str]] = {
    "ob-gpt2-rocm": (gpt2, AMD),
    "ob-bert-rocm": (bert, AMD),
    "ob-vit-rocm": (vit, AMD),
}
"""Byte-exact reports. PyTorch of 2024 gave no workspace to AMD's BLAS: that of today is left out."""

# -- operations: forward and backward with the gradients of the call before still there --------------


def _call(function: Callable[..., Any], gradient: Any, *inputs: Any, beside: Any = None) -> Step:
    """The step of a script of Liger's: given a gradient it retains the graph. ``beside`` is what else it holds: each
    makes its own module and the ordinary one, whichever it measures."""

    def step() -> Any:
        function(*inputs).backward(gradient, retain_graph=gradient is not None)
        return beside

    return step


def _leaf(*shape: int, dtype: str = "float32") -> Any:
    import torch

    return torch.randn(*shape, dtype=getattr(torch, dtype.removeprefix("torch.")), device="cuda", requires_grad=True)


def _gradient_like(x: Any) -> Any:
    """The gradient that is made once, beside the input."""
    import torch

    return torch.randn_like(x, requires_grad=False)


def cross_entropy(V: int, B: int, T: int) -> Step:  # noqa: N803
    import torch

    loss, target = torch.nn.CrossEntropyLoss(), torch.randint(V, (B * T,), device="cuda")
    return _call(loss, None, _leaf(B * T, V), target)


def layer_norm(N: int, M: int, dtype: str, eps: float) -> Step:  # noqa: N803
    import torch

    x = _leaf(M, N, dtype=dtype)
    own, ordinary = (torch.nn.LayerNorm(N, eps=eps).cuda() for _ in range(2))
    return _call(ordinary, _gradient_like(x), x, beside=own)


def _llama_norm(width: int, eps: float) -> Any:
    import torch

    class Norm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(width))

        def forward(self, x: Any) -> Any:
            wide = x.to(torch.float32)
            wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
            return self.weight * wide.to(x.dtype)

    return Norm().cuda()


def rms_norm(H: int, M: int, dtype: str, eps: float) -> Step:  # noqa: N803
    x = _leaf(M, H, dtype=dtype)
    return _call(_llama_norm(H, eps), _gradient_like(x), x, beside=_llama_norm(H, eps))


def _gated(width: int, inner: int, dtype: str) -> Any:
    import torch

    class Gated(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = torch.nn.Linear(width, inner, bias=False)
            self.up = torch.nn.Linear(width, inner, bias=False)
            self.down = torch.nn.Linear(inner, width, bias=False)

        def forward(self, x: Any) -> Any:
            return self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))

    return Gated().cuda().to(getattr(torch, dtype.removeprefix("torch.")))


def swiglu(T: int, B: int, hidden_size: int, dtype: str, intermediate_size: int, hidden_act: str) -> Step:  # noqa: N803
    x = _leaf(B, T, hidden_size, dtype=dtype)
    return _call(_gated(hidden_size, intermediate_size, dtype), _gradient_like(x), x)


def fused_linear_cross_entropy(BT: int, H: int, V: int, mode: str, dtype: str) -> Step:  # noqa: N803
    import torch

    x, target = _leaf(BT, H, dtype=dtype), torch.randint(V, (BT,), device="cuda")
    own, head = (torch.nn.Linear(H, V, bias=False, device="cuda", dtype=x.dtype) for _ in range(2))
    return _call(lambda x: torch.nn.functional.cross_entropy(head(x), target), None, x, beside=own)


KERNELS: dict[tuple[str, str], Callable[..., Step]] = {
    ("cross_entropy", "huggingface"): cross_entropy,
    ("layer_norm", "huggingface"): layer_norm,
    ("rms_norm", "huggingface"): rms_norm,
    ("swiglu", "huggingface"): swiglu,
    ("fused_linear_cross_entropy", "huggingface"): fused_linear_cross_entropy,
}
"""Operations that are ordinary PyTorch, by kernel and provider; parameters are the swept size and the row's config."""


# -- the tables -------------------------------------------------------------------------------------


def _rows(name: str) -> list[dict[str, str]]:
    file = harness.reference() / "memory" / name
    if not file.exists():  # a clone has only what its licence lets it have
        return []
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def exact(name: str) -> dict[str, int]:
    build, machine = EXACT[name]
    return captured(build, machine, libraries=False)._asdict()


def totals(name: str) -> list[int]:
    """Bytes reserved by the loop of a script that classifies images, by batch."""
    from benchmarks.published.images import NETS, script

    net, optimizer = NETS[name]
    return [captured(lambda size=size: script(net(), size, optimizer), "A100-SXM-40GB").reserved for size in BATCHES]


def kernels(cases: list[tuple[str, str, dict[str, Any]]]) -> list[int]:
    """Bytes allocated by each operation."""

    def allocated(name: str, provider: str, given: dict[str, Any]) -> int:
        return captured(lambda: KERNELS[name, provider](**given), "A100-SXM-80GB").allocated

    return [allocated(*case) for case in cases]


def optimizer_state() -> dict[str, int]:
    return captured(vit_huge, "RTX 4090")._asdict()


UNLICENSED = ("ob-", "gmn")
"""Rows of data sets that state no licence: their figures are compared, and not recorded."""


SLOPE_MISSES = {
    "gmnt-regnety_040": "grouped convolutions, of 64 channels each",
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

    def figures(self) -> harness.Row:
        off = self.predicted / self.published - 1
        near = abs(off) <= self.target or (self.target == 0.001 and abs(self.predicted - self.published) <= MIB)
        verdict = "ok" if near else f"off: {self.remark or 'unexplained'}"
        kept = {"id": self.id, "what": self.what, "off": off, "verdict": verdict}
        if self.id.startswith(UNLICENSED):
            return {**kept, "published": "", "predicted": ""}
        return {**kept, "published": f"{self.published / MIB:.3f}", "predicted": f"{self.predicted / MIB:.3f}"}


def _steps(run: harness.Run) -> Iterator[Row]:
    published = {row["id"]: int(row["value_bytes"]) for row in _rows("cuda_peaks.csv")}
    for name in EXACT:
        if f"{name}-allocated" in published:
            found = run.child(exact, name)
            for kind, target in (("allocated", 0.01), ("reserved", 0.05)):
                yield Row(f"{name}-{kind}", kind, published[f"{name}-{kind}"], found[kind], target)
    if "ao-vith-fused" in published:
        remark = "eager activations; the published step is compiled"
        found = run.child(optimizer_state)
        yield Row("ao-vith-fused", "allocated", published["ao-vith-fused"], found["allocated"], 0.05, remark)


def _slopes(run: harness.Run) -> Iterator[Row]:
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
            yield Row(name, f"slope {few} to {many}", slope, predicted, 0.10, SLOPE_MISSES.get(name, ""))
    if left:
        middle = statistics.median(left)
        inside = sum(abs(rest - middle) <= 0.25 * GIB for rest in left)
        run.note(
            f"Beyond the bytes predicted the card holds, over {len(left)} totals, {middle / GIB:.2f} GiB (median), "
            f"from {min(left) / GIB:.2f} to {max(left) / GIB:.2f}, {inside} within 0.25 GiB of the median."
        )


def _kernels(run: harness.Run) -> Iterator[Row]:
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
    "lgrt lgch": "the sequence is an upper bound, and litgpt is not installed",
    "tt": "FSDP2 on 8 GPUs and more, compiled or checkpointed by torchtitan",
    "tune": "torchtune's recipe, packed sequences of unstated length",
    "cook fairscale densenet": "settings are open (confidence low)",
    "hfbert": "whole card: context and an optimizer of its own, PyTorch 1.10",
    "ao-vitg ao-l1b ao-vith-": "compiled, or optimizer states by custom kernels (torchao, bitsandbytes)",
    "gmn": "of the whole card only slopes count, and of bert-*-mlm there is one batch each",
    "mmseg": "mmsegmentation with SyncBN and DDP on PyTorch 1.5",
}
"""Families of rows that are not built, and why."""

COLUMNS = {
    "row": "{id}",
    "figure": "{what}",
    "published MiB": "{published}",
    "predicted MiB": "{predicted}",
    "off": "{off:+.3%}",
    "verdict": "{verdict}",
}


def measure(run: harness.Run) -> None:
    if run.options.device:
        _on_device(run)
        return
    table = run.table(COLUMNS, ("id",), "Operations")
    for row in _kernels(run):
        table.add(row.figures())
    if run.smallest:
        return
    table = run.table(COLUMNS, ("id",), "Steps")
    for row in (*_steps(run), *_slopes(run)):
        table.add(row.figures())
    for family, reason in NOT_BUILT.items():
        run.note(f"Not built, {family.replace(' ', ', ')}: {reason}.")
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
        have = run.child(real, name, settings)
        want = run.child(pretended, name, settings, torch.cuda.get_device_name())
        for kind, target in (("allocated", 0.03), ("reserved", 0.05)):
            row = Row(harness.named(name, settings), kind, have[kind], want[kind], target)
            table.add({**row.figures(), "same": str(have["ops"] == want["ops"])})


if __name__ == "__main__":
    harness.main(__doc__, measure, device={"action": "store_true", "help": "compare with the GPU of this machine"})
