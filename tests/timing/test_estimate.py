"""Predicted durations against physics worked out by hand, and what must hold of all of them."""

from __future__ import annotations

from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tensortide.cost import Cost
from tensortide.cost.evaluate import How
from tensortide.graph import TENSOR, Call, Graph, Op, OpView, Phase, Role, Storage, Tensor
from tensortide.graph.model import Value
from tensortide.graph.precision import InTf32
from tensortide.timing import Device, catalogue, device, estimate, identity, load_durations, save_durations
from tensortide.timing.attention import with_kernel
from tensortide.timing.estimates import Provenance
from tensortide.timing.families import works
from tensortide.timing.prediction import VIEW_NS
from tests.graphs import graphs

A100 = device("A100-SXM-80GB")
PLAIN = Device(name="plain", fp32_tflops=10.0, bf16_tflops=100.0, fp64_tflops=5.0, memory_gbytes_per_s=1000.0)
SIZES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "int8": 1, "int32": 4, "int64": 8}


def dense(storage: int, shape: tuple[int, ...], dtype: str) -> Tensor:
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= n
    return Tensor(storage, dtype, shape, tuple(strides))


def one(
    name: str, inputs: list[tuple[int, ...]], output: tuple[int, ...], dtype: str, *, to: str = "", names: str = ""
) -> Graph:
    """A graph of one op with tensor arguments only."""
    tensors = [dense(i, shape, dtype) for i, shape in enumerate(inputs)] + [dense(len(inputs), output, to or dtype)]
    storages = [Storage(t.numel * SIZES[t.dtype], "cpu", Role.INPUT, None, None) for t in tensors]
    arguments: tuple[tuple[str, Value], ...] = tuple((n, TENSOR) for n in names.split())
    call = Call(name, arguments, len(arguments))
    op = Op(0, tuple(range(len(inputs))), (len(inputs),), Phase.FORWARD)
    return Graph((op,), (call,), tuple(tensors), tuple(storages))


def product(m: int, k: int, n: int, dtype: str) -> Graph:
    return one("aten.mm.default", [(m, k), (k, n)], (m, n), dtype, names="self mat2")


def addition(n: int, dtype: str = "float32") -> Graph:
    return one("aten.add.Tensor", [(n,), (n,)], (n,), dtype, names="self other")


def time(graph: Graph, on: Device, *, tf32: bool = False) -> int:
    return estimate(in_tf32(graph, "products") if tf32 else graph, on).ns[0]


def in_tf32(graph: Graph, *ops: InTf32) -> Graph:
    return msgspec.structs.replace(graph, meta=msgspec.structs.replace(graph.meta, tf32=ops))


# -- by hand ----------------------------------------------------------------------------------------


def test_a_large_product_takes_between_its_arithmetic_and_half_of_the_peak_rate() -> None:
    # 2 * 4096^3 = 137,438,953,472 FLOP at 312 TFLOP/s are 440,509 ns
    assert 440_509 <= time(product(4096, 4096, 4096, "bfloat16"), A100) <= 2 * 440_509


def test_fp32_products_take_the_plain_rate_unless_tf32_is_asked_for() -> None:
    plain, fast = (time(product(4096, 4096, 4096, "float32"), A100, tf32=tf32) for tf32 in (False, True))
    assert plain >= 137438953472 / 19500
    assert 137438953472 / 156000 <= fast <= plain / 4


def test_an_addition_takes_its_bytes() -> None:
    # 3 * 4 * 2^24 bytes at 2039 GB/s are 98,738 ns
    assert 98_738 <= time(addition(2**24), A100) <= 1.5 * 98_738


def test_a_tiny_op_takes_its_launch() -> None:
    for on in (A100, device("H100-SXM-80GB"), device("L40S"), PLAIN):
        assert 1000 <= time(addition(1), on) <= 20_000


def test_int8_products_take_the_int8_rate() -> None:
    graph = one(
        "aten._int_mm.default", [(4096, 4096), (4096, 4096)], (4096, 4096), "int8", to="int32", names="self mat2"
    )
    assert 137438953472 / 624000 <= time(graph, A100) <= 2 * 137438953472 / 624000


def test_convolutions_of_fp32_compute_in_tf32_unless_the_program_says_otherwise() -> None:
    """ResNet-50's took 0.60 and ResNeXt-101's 0.50 of the fp32 times on an A100: published TF32 steps of both."""
    graph = one(
        "aten.convolution.default", [(64, 256, 14, 14), (256, 256, 3, 3)], (64, 256, 14, 14), "float32",
        names="input weight",
    )  # fmt: skip
    plain, usual = time(in_tf32(graph), A100), time(graph, A100)
    assert 0.5 < usual / plain < 0.6
    assert time(in_tf32(graph, "convolutions"), A100) == time(in_tf32(graph, "products", "convolutions"), A100) == usual
    v100 = device("V100-PCIe-32GB")  # it has no units for TF32
    assert time(graph, v100) == time(in_tf32(graph), v100)
    fp32 = product(4096, 4096, 4096, "float32")
    assert time(fp32, A100) == time(in_tf32(fp32), A100)


def attention(kernel: str, *, backward: bool, seq: int = 4096) -> Graph:
    shape = (4, 16, seq, 128)
    name = f"aten._scaled_dot_product_{kernel}_attention{'_backward' * backward}.default"
    names = "grad_out query key value out logsumexp" if backward else "query key value"
    whole = one(name, [shape] * (6 if backward else 3), shape, "bfloat16", names=names)
    arguments = (*whole.calls[0].arguments, ("dropout_p", 0.0), ("is_causal", True))
    call = msgspec.structs.replace(whole.calls[0], arguments=arguments, positional=len(arguments))
    return msgspec.structs.replace(whole, calls=(call,))


def test_attention_takes_the_speed_of_the_kernel_that_the_op_names() -> None:
    """2.5 times the forward FLOPs at 17 % of an H100's peak for FlashAttention-2, 55 % for cuDNN's, less what short
    sequences lose; or at the speed of the kernel that is asked for."""
    h100 = device("H100-SXM-80GB")
    flops = 2.5 * 4 * 4 * 16 * 4096**2 * 128 / 2
    for kernel, share in (("flash", 0.169), ("cudnn", 0.55)):
        expected = flops / (989e3 * share * 4096 / (4096 + 330))
        assert abs(time(attention(kernel, backward=True), h100) / expected - 1) < 0.02
    other = with_kernel(attention("cudnn", backward=True), "flash2")
    assert time(other, h100) == time(attention("flash", backward=True), h100)
    assert "attention by flash2, at 21% of the 16-bit peak" in estimate(other, h100).source
    assert time(attention("flash", backward=False), h100) > 2 * time(attention("cudnn", backward=False), h100)


def test_heads_stand_before_the_sequence_or_after_it() -> None:
    """PyTorch's ops beneath ``scaled_dot_product_attention`` have (batch, tokens, heads, head size)."""
    names = "query key value"
    scaled = one(
        "aten._scaled_dot_product_flash_attention.default",
        [(2, 8, 1024, 64)] * 3,
        (2, 8, 1024, 64),
        "bfloat16",
        names=names,
    )
    beneath = one(
        "aten._flash_attention_forward.default", [(2, 1024, 8, 64)] * 3, (2, 1024, 8, 64), "bfloat16", names=names
    )
    found = [works(graph)[0][0] for graph in (scaled, beneath)]
    assert [(work.dims, work.kernel) for work in found] == [((16, 1024, 1024, 64), "flash2")] * 2


def test_halves_on_a_card_without_units_for_them_run_as_fp32() -> None:
    graph = product(4096, 4096, 4096, "bfloat16")
    assert time(graph, device("V100-PCIe-32GB")) >= 137438953472 / 14030
    p4 = product(4096, 4096, 4096, "float16")  # its rate for halves is a 64th of that for fp32
    assert time(p4, device("P4")) >= 137438953472 / 5700


def test_a_view_is_a_small_constant() -> None:
    tensors = (dense(0, (8, 8), "float32"), Tensor(0, "float32", (8, 8), (1, 8)))
    call = Call("aten.t.default", (("self", TENSOR),), 1, tags=("view",))
    storages = (Storage(256, "cpu", Role.INPUT, None, None),)
    graph = Graph((Op(0, (0,), (1,), Phase.FORWARD),), (call,), tensors, storages)
    for on in (A100, PLAIN):
        assert estimate(graph, on).ns == (VIEW_NS,)


def test_a_causal_attention_computes_half_the_products() -> None:
    def attention(causal: bool) -> Graph:
        shape = (8, 16, 2048, 64)
        whole = one(
            "aten._scaled_dot_product_flash_attention_for_cpu.default", [shape] * 3, shape, "bfloat16",
            names="query key value",
        )  # fmt: skip
        arguments = (*whole.calls[0].arguments, ("dropout_p", 0.0), ("is_causal", causal))
        call = msgspec.structs.replace(whole.calls[0], arguments=arguments, positional=5)
        return msgspec.structs.replace(whole, calls=(call,))

    whole, causal = time(attention(False), A100), time(attention(True), A100)
    assert whole >= 4 * 8 * 16 * 2048 * 2048 * 64 / 312000
    assert 0.5 * whole < causal < 0.9 * whole


# -- what is not known ------------------------------------------------------------------------------

ODD = one("my.odd.default", [(1000, 1000)], (1000, 1000), "float32", names="x")


def test_an_op_without_a_rule_takes_its_bytes_and_is_counted() -> None:
    found = estimate(ODD, A100)
    assert found.unknown == 1
    assert 8e6 / 2039 <= found.ns[0] <= 4 * 8e6 / 2039


def test_a_resolver_is_asked_for_it() -> None:
    def resolver(op: OpView) -> tuple[Cost, How] | None:
        return Cost(macs=10**9), "framework"

    found = estimate(ODD, A100, resolver=resolver)
    assert found.unknown == 0
    assert found.ns[0] >= 2e9 / 19500


def test_an_op_whose_rate_the_catalogue_has_not_takes_its_bytes_and_is_counted() -> None:
    tpu = device("TPU v4")
    found = estimate(product(512, 512, 512, "float32"), tpu)
    assert found.unknown == 1
    assert found.ns[0] >= 3 * 4 * 512 * 512 / 1200
    assert estimate(product(512, 512, 512, "bfloat16"), tpu).unknown == 0


# -- what always holds ------------------------------------------------------------------------------


@given(graphs(), st.sampled_from(catalogue()))
def test_there_is_one_positive_duration_per_op(graph: Graph, on: Device) -> None:
    found = estimate(graph, on)
    assert len(found.ns) == len(graph)
    assert all(type(ns) is int and ns >= 1 for ns in found.ns)
    assert found.kind == "estimated"
    assert found.unknown == sum(not op.is_view for op in graph)  # the ops of these graphs have no rule
    assert found.graph == identity(graph)
    found.check(graph)


# -- what it says -----------------------------------------------------------------------------------


def test_the_source_names_device_and_figures() -> None:
    text = estimate(ODD, A100).source
    assert text.startswith("predicted for NVIDIA A100-SXM-80GB (datasheet: bf16 312 TFLOP/s")
    assert "2039 GB/s" in text
    assert "tf32" not in text
    assert "tf32 156 TFLOP/s" in estimate(in_tf32(ODD, "products"), A100).source


def test_the_source_owns_up_to_what_it_rests_on() -> None:
    assert "by models of other devices" in estimate(ODD, device("MI300X")).source
    assert "by models of other devices" not in estimate(product(64, 64, 64, "bfloat16"), A100).source
    assert "unverified" in estimate(ODD, device("GTX 1080")).source
    assert "figures of your own" in estimate(ODD, PLAIN).source
    assert "uncalibrated" in estimate(ODD, device("Intel i9-13900K")).source
    assert "at 70 W it may not hold its clock" in estimate(ODD, device("T4")).source


def test_each_op_has_an_interval_and_a_provenance() -> None:
    found = estimate(product(4096, 4096, 4096, "bfloat16"), A100)
    assert found.forecast is not None
    (row,) = found.forecast.rows
    assert (row.family, row.provenance, row.bound) == ("mm", Provenance.INTERPOLATED, "compute")
    total = row.estimate(found.ns[0])
    assert total.low_ns < found.ns[0] < total.high_ns


def test_a_forecast_is_kept_in_the_file_of_durations(tmp_path: Path) -> None:
    graph = product(64, 64, 64, "float32")
    found = estimate(graph, A100)
    assert load_durations(save_durations(found, tmp_path / "x.durations.json"), graph) == found
