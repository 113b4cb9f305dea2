"""The table of kernel workspaces against what PyTorch's CPU allocator hands out while the same step really runs."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tensortide.expr import conditions, sized, symbol
from tensortide.graph import TENSOR, Call, Graph, Op, Phase, Role, Storage, Tensor
from tensortide.graph.roles import WORKSPACE
from tensortide.memory import workspace_bytes
from tensortide.memory.layout import contiguous_copy, is_channels_last, is_dense
from tensortide.memory.workspace import WORKSPACE_RULES
from tensortide.timelines import timeline

if TYPE_CHECKING:
    import torch

Step = Callable[[], Any]
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

SCRATCH = 256 * 1024
"""Bytes of per-thread scratch at the sizes below, which no rule counts."""


def conv(
    shape: tuple[int, ...],
    out: int,
    kernel: int,
    *,
    transposed: bool = False,
    last: bool = False,
    dtype: str = "float32",
    first: bool = False,
    **options: Any,
) -> Callable[[], Step]:
    """Forward and backward of one convolution; without a gradient of the input where it is the ``first`` layer."""

    def workload() -> Step:
        import torch

        kind = torch.nn.ConvTranspose2d if transposed else torch.nn.Conv2d
        layer = kind(shape[1], out, kernel, dtype=getattr(torch, dtype), **options)
        x = torch.randn(shape, dtype=getattr(torch, dtype))
        x = x.to(memory_format=torch.channels_last) if last else x
        x.requires_grad_(not first)

        def step() -> None:
            y = layer(x)
            y.backward(y)
            layer.zero_grad()
            x.grad = None

        return step

    return workload


def batch_norm() -> Step:
    import torch

    layer, x = torch.nn.BatchNorm2d(32), torch.randn(4, 32, 32, 32, requires_grad=True)
    return _loop(lambda: layer(x), x)


def layer_norm() -> Step:
    import torch

    layer, x = torch.nn.LayerNorm(256), torch.randn(64, 8, 256, requires_grad=True)
    return _loop(lambda: layer(x).transpose(0, 1).contiguous(), x)


def attention() -> Step:
    import torch

    x = torch.randn(2, 4, 128, 32, requires_grad=True)
    return _loop(lambda: torch.nn.functional.scaled_dot_product_attention(x, x, x), x)


def masked_softmax() -> Step:
    import torch

    x = torch.randn(8, 64, 1024)

    def step() -> None:
        torch.ops.aten._safe_softmax(x, -1)

    return step


def embedding() -> Step:
    import torch

    layer, ids = torch.nn.Embedding(100, 512), torch.randint(0, 100, (64, 16))
    return _loop(lambda: layer(ids).transpose(0, 1).contiguous(), layer.weight)


def losses() -> Step:
    import torch

    x, y = torch.randn(64, 4096), torch.randn(64, 4096)

    def step() -> None:
        torch.nn.functional.mse_loss(x, y)
        torch.nn.functional.smooth_l1_loss(x, y)

    return step


def promoted() -> Step:
    import torch

    x = torch.randn(64, 4096)
    others = x.bfloat16(), x > 0, torch.randint(0, 9, (64, 1))

    def step() -> None:
        for other in others:
            for op in (torch.add, torch.mul, torch.div):
                op(other, x)

    return step


def dropout() -> Step:
    import torch

    x = torch.randn(64, 4096, requires_grad=True)
    return _loop(lambda: torch.ops.aten.native_dropout(x, 0.1, True)[0], x)


def lstm() -> Step:
    import torch

    layer, x = torch.nn.LSTM(64, 256, 2), torch.randn(20, 8, 64)
    return _loop(lambda: layer(x)[0], *layer.parameters())


def _loop(forward: Callable[[], torch.Tensor], *leaves: torch.Tensor) -> Step:
    """A step that runs ``forward``, sends its result back as the gradient, and drops the gradients."""

    def step() -> None:
        y = forward()
        y.backward(y.detach())
        for leaf in leaves:
            leaf.grad = None

    return step


def summed(shape: tuple[int, ...], forward: Callable[[Any, Any], Any]) -> Callable[[], Step]:
    """The gradient of a sum, one number that is repeated, given to what makes ``forward`` of a tensor."""

    def workload() -> Step:
        import torch

        x = torch.randn(shape, requires_grad=True)

        def step() -> None:
            forward(torch.nn.functional, x).sum().backward()
            x.grad = None

        return step

    return workload


IMAGES = (8, 64, 32, 32)
SUMMED: dict[str, Callable[[], Step]] = {
    "layer norm": summed((512, 512), lambda f, x: f.layer_norm(x, (512,))),
    "softmax": summed((512, 512), lambda f, x: f.softmax(x, -1)),
    "log softmax": summed((512, 512), lambda f, x: f.log_softmax(x, -1)),
    "gelu": summed((512, 512), lambda f, x: f.gelu(x)),
    "max pool": summed(IMAGES, lambda f, x: f.max_pool2d(x, 2)),
    "mean pool": summed(IMAGES, lambda f, x: f.avg_pool2d(x, 2)),
    "adaptive pool": summed(IMAGES, lambda f, x: f.adaptive_avg_pool2d(x, 16)),
    "sampled": summed(IMAGES, lambda f, x: f.grid_sample(x, x.new_zeros(8, 32, 32, 2), align_corners=False)),
    "reflected": summed(IMAGES, lambda f, x: f.pad(x, (1, 1, 1, 1), "reflect")),
    "replicated": summed(IMAGES, lambda f, x: f.pad(x, (1, 1, 1, 1), "replicate")),
}
STEPS: dict[str, Callable[[], Step]] = {
    **{f"sum of {name}": step for name, step in SUMMED.items()},
    "pointwise": conv((16, 64, 16, 16), 128, 1),
    "same": conv((4, 64, 32, 32), 128, 3, padding=1),
    "strided": conv((4, 64, 32, 32), 128, 3, padding=1, stride=2),
    "dilated": conv((4, 64, 32, 32), 128, 3, padding=2, dilation=2),
    "depthwise": conv((4, 64, 32, 32), 64, 3, padding=1, groups=64),
    "depthwise strided": conv((4, 64, 32, 32), 64, 3, padding=1, groups=64, stride=2),
    "grouped": conv((4, 64, 32, 32), 64, 3, padding=1, groups=4),
    "odd channels": conv((4, 20, 64, 64), 50, 5),
    "image": conv((4, 3, 64, 64), 64, 7, stride=2, padding=3, first=True),
    "upsampling": conv((4, 64, 32, 32), 32, 2, stride=2, transposed=True),
    "channels last": conv((4, 64, 32, 32), 128, 3, padding=1, last=True),
    "batch of one": conv((1, 32, 16, 16), 64, 3, padding=1),
    "float64": conv((4, 32, 16, 16), 64, 3, padding=1, dtype="float64"),
    "batch norm": batch_norm,
    "layer norm": layer_norm,
    "attention": attention,
    "masked softmax": masked_softmax,
    "embedding": embedding,
    "dropout": dropout,
    "promoted": promoted,
    "losses": losses,
    "lstm": lstm,
}


def real_peak(step: Step) -> tuple[int, int]:
    """Peak and net of the bytes that PyTorch's CPU allocator hands out in ``step``, by its own record."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        step()
    events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    level = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        level += event.nbytes()
        peak = max(peak, level)
    return peak, level


@needs_torch
@pytest.mark.parametrize("name", STEPS)
def test_predicted_and_real_peak_of_single_layers(name: str) -> None:
    import torch

    from tensortide.recorder import capture

    if STEPS[name] not in (*SUMMED.values(), promoted) and torch.backends.cpu.get_cpu_capability() not in (
        "AVX512",
        "DEFAULT",
    ):
        pytest.skip("the blocked layouts are those of AVX-512")
    line = timeline(capture(STEPS[name]))
    step = STEPS[name]()
    step()
    peak, net = real_peak(step)
    assert net == line.end_bytes - line.persistent_bytes
    predicted = line.peak_bytes - line.persistent_bytes
    assert predicted <= peak + 4096
    assert peak <= predicted + SCRATCH
    without = timeline(line.graph, workspace=False)
    assert without.peak_bytes < line.peak_bytes
    assert WORKSPACE in line.by_role
    assert WORKSPACE not in without.by_role


def batch_norm_backward(device: str) -> Graph:
    """One op whose kernel allocates its 1024 bytes twice on a CPU."""
    layout = ("float32", (2, 8, 4, 4), (128, 16, 4, 1))
    arguments = (("grad_out", TENSOR), ("input", TENSOR), ("output_mask", (True, True, True)))
    call = Call("aten.native_batch_norm_backward.default", arguments, 2, (), (TENSOR,))
    storages = (Storage(1024, device, Role.INPUT, None, None), Storage(1024, device, Role.TEMPORARY, 0, 1))
    tensors = (Tensor(0, *layout), Tensor(1, *layout))
    return Graph((Op(0, (0, 0), (1,), Phase.BACKWARD),), (call,), tensors, storages)


def test_workspaces_are_known_for_cpus_only() -> None:
    assert workspace_bytes(batch_norm_backward("cpu"), "cpu").tolist() == [1024]
    assert workspace_bytes(batch_norm_backward("cuda:0"), "cuda:0").tolist() == [0]
    assert workspace_bytes(batch_norm_backward("cuda:0"), "cpu").tolist() == [0]


def test_operands_that_are_not_contiguous_are_copied_one_by_one() -> None:
    call = Call("aten.native_layer_norm_backward.default", (("grad_out", TENSOR), ("input", TENSOR)), 2)
    storages = (Storage(96, "cpu", Role.INPUT, None, None), Storage(96, "cpu", Role.TEMPORARY, 0, 1))
    plain, turned = ("float32", (4, 6), (6, 1)), ("float32", (4, 6), (1, 4))
    for gradient, x, copied in ((plain, plain, 0), (turned, plain, 96), (plain, turned, 96), (turned, turned, 192)):
        tensors = (Tensor(0, *gradient), Tensor(0, *x), Tensor(1, *plain))
        graph = Graph((Op(0, (0, 1), (2,), Phase.BACKWARD),), (call,), tensors, storages)
        assert workspace_bytes(graph, "cpu").tolist() == [copied]


def test_the_workspace_is_a_role_of_its_own() -> None:
    line = timeline(batch_norm_backward("cpu"))
    assert {role: series.tolist() for role, series in line.by_role.items()} == {
        Role.INPUT: [1024],
        Role.TEMPORARY: [1024],
        WORKSPACE: [1024],
    }
    assert line.peak_bytes == 3072


def test_every_rule_is_exercised_above() -> None:
    assert len(WORKSPACE_RULES) == 56, "add a step here, or a kernel to test_dense_operands, with each new rule"


@pytest.mark.parametrize(
    ("shape", "strides", "dense", "last"),
    [
        ((2, 3, 4, 5), (60, 20, 5, 1), True, False),
        ((2, 3, 4, 5), (60, 1, 15, 3), False, True),
        ((2, 3, 4, 5), (120, 20, 5, 1), False, False),
        ((2, 1, 4, 5), (20, 1, 5, 1), True, False),
        ((2, 3), (1, 2), False, False),
        ((), (), True, False),
        ((0, 3), (9, 9), True, False),
    ],
)
def test_layouts(shape: tuple[int, ...], strides: tuple[int, ...], dense: bool, last: bool) -> None:
    tensor = Tensor(0, "float32", shape, strides)
    assert (is_dense(tensor), is_channels_last(tensor)) == (dense, last)
    assert contiguous_copy(tensor) == (0 if dense else 4 * tensor.numel)


@pytest.mark.parametrize(("transposed", "relied_on"), [(False, set()), (True, {"rows != 1", "columns != 1"})])
def test_layouts_of_unknown_sizes(transposed: bool, relied_on: set[str]) -> None:
    """Rows after rows are dense at all sizes; columns after columns are not, unless there is one of either."""
    rows, columns = sized(symbol("rows"), 5), sized(symbol("columns"), 7)
    with conditions() as asked:
        assert is_dense(Tensor(0, "float32", (rows, columns), (1, rows) if transposed else (columns, 1))) != transposed
    assert set(map(str, asked)) == relied_on


@needs_torch
def test_a_mask_has_the_places_of_its_elements_on_a_gpu() -> None:
    import torch

    from tensortide import capture

    def workload() -> Any:
        x, keep = torch.randn(8, 4, 2, device="cuda", requires_grad=True), torch.ones(8, 4, device="cuda") > 0
        rows = torch.tensor([1, 1, 5], device="cuda")

        def step() -> None:
            (x[keep].sum() + x[rows].sum()).backward()

        return step

    graph = capture(workload, device="cuda")
    extra = workspace_bytes(graph, "cuda:0").tolist()
    found = [(op.name, op.inputs[1].dtype, extra[i]) for i, op in enumerate(graph) if "index" in op.name]
    places, sort = 2 * 8, 6 * 8  # bytes per element: a number per dimension of the mask; to sort a number
    assert found == [
        ("aten.index.Tensor", "bool", 32 * places),
        ("aten.index.Tensor", "int64", 0),
        ("aten.index_put.default", "int64", 3 * sort),
        ("aten.index_put.default", "bool", 32 * (places + sort)),
    ]


def attention_backward(kind: str, query: tuple[int, ...], key_heads: int, dtype: str) -> Graph:
    """One op on the gradient, the query, keys and values of attention."""
    name = f"aten._scaled_dot_product_{kind}_attention_backward.default"
    call = Call(name, tuple((given, TENSOR) for given in ("grad_out", "query", "key", "value")), 4, (), (TENSOR,))
    shapes = (query, query, (query[0], key_heads, *query[2:]), (query[0], key_heads, *query[2:]), query)
    size = 2 if dtype == "float16" else 4
    strides = [tuple(math.prod(shape[axis + 1 :]) for axis in range(4)) for shape in shapes]
    tensors = tuple(Tensor(i, dtype, *layout) for i, layout in enumerate(zip(shapes, strides, strict=True)))
    storages = tuple(
        Storage(size * math.prod(shape), "cuda:0", Role.INPUT if i < 4 else Role.TEMPORARY, None if i < 4 else 0, None)
        for i, shape in enumerate(shapes)
    )
    return Graph((Op(0, (0, 1, 2, 3), (4,), Phase.BACKWARD),), (call,), tensors, storages)


@pytest.mark.parametrize(
    ("kind", "rows", "width", "key_heads", "dtype", "bytes_"),
    [
        # flash: rows up to a multiple of 128, widths to one of 32 (256 above 192); in fp32, and a number per row
        ("flash", 128, 32, 3, "float16", 4 * 2 * 3 * 128 * (32 + 1)),
        ("flash", 129, 33, 3, "float16", 4 * 2 * 3 * 256 * (64 + 1)),
        ("flash", 1, 192, 3, "float16", 4 * 2 * 3 * 128 * (192 + 1)),
        ("flash", 127, 193, 3, "float16", 4 * 2 * 3 * 128 * (256 + 1)),
        ("flash", 128, 32, 1, "float16", 4 * 2 * 3 * 128 * (32 + 1) + 2 * 2 * (2 * 3 * 128 * 32)),
        # efficient: a number per row, up to a multiple of 32; the gradient of the query in fp32 where it has 2 bytes
        ("efficient", 32, 8, 3, "float32", 4 * 2 * 3 * 32),
        ("efficient", 33, 8, 3, "float32", 4 * 2 * 3 * 64),
        ("efficient", 31, 8, 3, "float16", 4 * 2 * 3 * 32 + 4 * (2 * 3 * 31 * 8)),
    ],
)
def test_attention_backward_pads_its_rows_on_a_gpu(
    kind: str, rows: int, width: int, key_heads: int, dtype: str, bytes_: int
) -> None:
    graph = attention_backward(kind, (2, 3, rows, width), key_heads, dtype)
    assert workspace_bytes(graph, "cuda:0").tolist() == [bytes_]
