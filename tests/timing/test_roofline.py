"""Estimated durations against rooflines worked out by hand, and what must hold of all of them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.cost import Cost
from tensortide.cost.evaluate import How
from tensortide.graph import TENSOR, Call, Graph, Op, OpView, Phase, Role, Storage, Tensor
from tensortide.graph.model import Value
from tensortide.timing import Device, catalogue, device, estimate, identity
from tensortide.timing.roofline import VIEW_NS
from tests.graphs import graphs

A100 = device("A100-SXM-80GB")
PLAIN = Device(name="plain", fp32_tflops=10.0, bf16_tflops=100.0, fp64_tflops=5.0, memory_gbytes_per_s=1000.0)
GENERIC = (0.71, 0.77, 3400.0)
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
    return estimate(graph, on, tf32=tf32).ns[0]


# -- by hand ----------------------------------------------------------------------------------------


def test_a_large_product_takes_its_flops_at_the_share_of_peak_that_a100_reaches() -> None:
    # 2 * 4096^3 = 137,438,953,472 FLOP at 0.73 * 312 TFLOP/s are 603,438 ns; the launch takes 5,000
    assert time(product(4096, 4096, 4096, "bfloat16"), A100) == 608438


def test_fp32_products_take_the_plain_rate_unless_tf32_is_asked_for() -> None:
    # the same at 0.73 * 19.5 and at 0.73 * 156 TFLOP/s
    assert time(product(4096, 4096, 4096, "float32"), A100) == pytest.approx(5000 + 9655002, abs=2)
    assert time(product(4096, 4096, 4096, "float32"), A100, tf32=True) == pytest.approx(5000 + 1206875, abs=2)


def test_an_addition_takes_its_bytes() -> None:
    # 3 * 4 * 2^24 bytes at 0.66 * 2039 GB/s are 149,603 ns
    assert time(addition(2**24), A100) == pytest.approx(5000 + 149603, abs=2)


def test_a_thin_product_takes_its_bytes_too() -> None:
    # 8192^2 + 2 * 8192 elements of 2 bytes at 0.66 * 2039 GB/s, more than 2 * 8192^2 FLOP at 0.73 * 312 TFLOP/s
    assert time(product(1, 8192, 8192, "bfloat16"), A100) == pytest.approx(5000 + 99760, abs=2)


def test_a_tiny_op_takes_its_launch() -> None:
    assert time(addition(1), A100) == 5000
    assert time(addition(1), device("H100-SXM-80GB")) == 3300
    assert time(addition(1), device("L40S")) == 2400
    assert time(addition(1), PLAIN) == GENERIC[2]


def test_int8_products_take_the_int8_rate() -> None:
    graph = one(
        "aten._int_mm.default", [(4096, 4096), (4096, 4096)], (4096, 4096), "int8", to="int32", names="self mat2"
    )
    assert time(graph, A100) == pytest.approx(5000 + 301718, abs=2)  # half of the time of bf16


def test_halves_on_a_card_without_units_for_them_run_as_fp32() -> None:
    graph = product(4096, 4096, 4096, "bfloat16")
    expected = 3400 + 137438953472 / (0.71 * 14030)
    assert time(graph, device("V100-PCIe-32GB")) == pytest.approx(expected, abs=2)
    p4 = product(4096, 4096, 4096, "float16")  # its rate for halves is a 64th of that for fp32
    assert time(p4, device("P4")) == pytest.approx(3400 + 137438953472 / (0.71 * 5700), abs=2)


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

    products, softmax = 4 * 8 * 16 * 2048 * 2048 * 64 / 312000, 8 * 16 * 2048 * (6 * 2048 - 2) / 19500
    assert time(attention(False), A100) == pytest.approx(5000 + (products + softmax) / 0.73, abs=1)
    left = (2048 + 1) / (2 * 2048)  # of the pairs, under the mask
    assert time(attention(True), A100) == pytest.approx(5000 + (products * left + softmax) / 0.73, abs=1)


# -- what is not known ------------------------------------------------------------------------------

ODD = one("my.odd.default", [(1000, 1000)], (1000, 1000), "float32", names="x")


def test_an_op_without_a_rule_takes_its_bytes_and_is_counted() -> None:
    found = estimate(ODD, A100)
    assert found.unknown == 1
    assert found.ns[0] == pytest.approx(5000 + 8e6 / (0.66 * 2039), abs=1)


def test_a_resolver_is_asked_for_it() -> None:
    def resolver(op: OpView) -> tuple[Cost, How] | None:
        return Cost(macs=10**9), "framework"

    found = estimate(ODD, A100, resolver=resolver)
    assert found.unknown == 0
    assert found.ns[0] == pytest.approx(5000 + 2e9 / (0.73 * 19500), abs=1)


def test_an_op_whose_rate_the_catalogue_has_not_takes_its_bytes_and_is_counted() -> None:
    tpu = device("TPU v4")
    found = estimate(product(512, 512, 512, "float32"), tpu)
    assert found.unknown == 1
    assert found.ns[0] == pytest.approx(3400 + 3 * 4 * 512 * 512 / (0.77 * 1200), abs=1)
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


@given(st.integers(1, 10**9), st.integers(2, 50), st.sampled_from(catalogue()))
def test_memory_bound_ops_scale_with_bandwidth(n: int, times: int, on: Device) -> None:
    on = msgspec.structs.replace(on, fp32_tflops=1e9)
    faster = msgspec.structs.replace(on, memory_gbytes_per_s=on.memory_gbytes_per_s * times)
    launch = time(addition(0), on)
    assert time(addition(n), on) - launch == pytest.approx(times * (time(addition(n), faster) - launch), abs=times + 1)


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 3000), st.sampled_from(sorted(SIZES)))
def test_no_product_is_faster_than_its_rooflines_nor_than_a_smaller_one(m: int, k: int, n: int, dtype: str) -> None:
    taken = time(product(m, k, n, dtype), PLAIN)
    rate = {"float64": 5000.0, "float32": 10000.0, "bfloat16": 100000.0, "float16": 10000.0}.get(dtype)
    if rate is not None:
        assert taken >= 2 * m * k * n / rate
    assert taken >= SIZES[dtype] * (m * k + k * n + m * n) / 1000
    for more in ((m + 1, k, n), (m, k + 1, n), (m, k, n + 1)):
        assert time(product(*more, dtype), PLAIN) >= taken


# -- what it says -----------------------------------------------------------------------------------


def test_the_source_names_device_figures_and_constants() -> None:
    text = estimate(ODD, A100).source
    assert text.startswith("estimated: roofline of NVIDIA A100-SXM-80GB (datasheet: bf16 312 TFLOP/s")
    assert "2039 GB/s; 73% and 66% of it, 5 us per op: as bf16 matrix products on A100" in text
    assert "tf32" not in text
    assert "tf32 156 TFLOP/s" in estimate(ODD, A100, tf32=True).source


def test_the_source_owns_up_to_what_it_rests_on() -> None:
    assert "not of this device" in estimate(ODD, device("MI300X")).source
    assert "from memory" in estimate(ODD, device("GTX 1080")).source
    assert "figures of your own" in estimate(ODD, PLAIN).source
    assert "uncalibrated" in estimate(ODD, device("Intel i9-13900K")).source
    assert "at 70 W it may not hold its clock" in estimate(ODD, device("T4")).source
