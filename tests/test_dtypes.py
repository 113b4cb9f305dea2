"""The table of dtypes is complete, and says what the frameworks that are installed say."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from tensortide import count
from tensortide.dtypes import (
    DTYPES,
    ITEM_BYTES,
    Autocast,
    Dtype,
    Kind,
    dtype_named,
    in_cpp,
    is_packed,
    numbered,
    storage_bytes,
    tagged,
)
from tensortide.errors import GraphError, TensortideError
from tensortide.graph.builder import GraphBuilder
from tensortide.graph.file import load, save
from tensortide.graph.model import Tensor
from tensortide.graph.signatures import signatures_of
from tensortide.importers.inductor.types import parse_type, type_text
from tensortide.importers.kineto.calls import Given
from tensortide.importers.kineto.linking import Result, results_of
from tensortide.parallelism.analysis import analyzed
from tensortide.recorder.torch_dtypes import torch_dtype
from tensortide.timing.catalogue import Device, device
from tensortide.timing.predict import predict
from tensortide.timing.rates import matrix_tflops
from tensortide.timing.work import product

PACKED = [name for name in DTYPES if is_packed(name)]
pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch warns of dtypes that are new to it or go
rows = pytest.mark.parametrize("row", DTYPES.values(), ids=list(DTYPES))


def of_torch(row: Dtype) -> torch.dtype | None:
    """The dtype of this PyTorch, which may be older than it; None for what PyTorch names but does not pack."""
    found = getattr(torch, row.name, None)
    return found if isinstance(found, torch.dtype) and not row.unpacked else None


IN_TORCH = [(row, dtype) for row in DTYPES.values() if (dtype := of_torch(row)) is not None]
in_torch = pytest.mark.parametrize(("row", "dtype"), IN_TORCH, ids=[row.name for row, _ in IN_TORCH])


# -- rows -------------------------------------------------------------------------------------------


@rows
def test_a_row_is_complete(row: Dtype) -> None:
    assert bool(row.bits) is (row.kind is not Kind.OPAQUE)
    assert row.blocks is None or {row.blocks.scale, row.blocks.whole or "float32"} <= DTYPES.keys()
    if row.unpacked:
        assert DTYPES[row.unpacked].kind is row.kind
        assert row.bits < DTYPES[row.unpacked].bits == 8
    assert {row.rate, row.needs} - {""} <= set(Device.__struct_fields__)
    assert (row.torch is None) is (not row.cpp), "PyTorch's traces give the number of what they name"
    assert row.autocast is Autocast.KEPT or row.torch is not None
    assert row.holds == 1 or row.bits // row.holds * row.holds == row.bits


def test_no_source_has_a_name_twice() -> None:
    for source in ("numpy", "torch", "exported", "onnx", "tensorflow", "tflite", "inductor", "nets"):
        given = Counter(value for row in DTYPES.values() if (value := getattr(row, source)) not in (None, ""))
        assert given.total() == len(given), source
    in_c = Counter(name for row in DTYPES.values() for name in row.cpp)
    assert in_c.total() == len(in_c) == len(in_cpp())
    assert len(DTYPES) == len({row.name for row in DTYPES.values()})


# -- frameworks -------------------------------------------------------------------------------------


def test_every_dtype_of_pytorch_has_a_row() -> None:
    known = {value for name in dir(torch) if isinstance(value := getattr(torch, name), torch.dtype)}
    names = {str(dtype).removeprefix("torch.") for dtype in known}
    placeholders = {f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)}  # which no kernel computes with
    without = {name for name in names if name.startswith("bits")} | {"quint4x2", "quint2x4"} | placeholders
    assert names - without <= DTYPES.keys()


@in_torch
def test_sizes_and_kinds_are_those_of_pytorch(row: Dtype, dtype: torch.dtype) -> None:
    assert (row.bits, ITEM_BYTES[row.name]) == (8 * dtype.itemsize, dtype.itemsize)
    assert (row.kind is Kind.FLOAT) is dtype.is_floating_point
    assert (row.kind is Kind.COMPLEX) is dtype.is_complex
    assert storage_bytes(row.name, (3, 5)) == torch.empty((3, 5), dtype=dtype).untyped_storage().nbytes()


def test_numbers_and_types_in_traces_are_those_that_pytorch_writes(tmp_path: Path) -> None:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as traced:
        for _, dtype in IN_TORCH:
            torch.empty(3, dtype=dtype).view(3)
    traced.export_chrome_trace(str(tmp_path / "trace.json"))
    events = [event for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if "args" in event]
    made = [int(event["args"]["Concrete Inputs"][1]) for event in events if event["name"] == "aten::empty"]
    seen = [event["args"]["Input type"][0] for event in events if event["name"] == "aten::view"]
    assert [numbered("torch")[number] for number in made] == [row.name for row, _ in IN_TORCH]
    assert [in_cpp()[name] for name in seen] == [row.name for row, _ in IN_TORCH]


def test_numbers_of_exported_programs_are_those_of_pytorch() -> None:
    serialize = pytest.importorskip("torch._export.serde.serialize")
    theirs = {int(number): str(dtype)[6:] for dtype, number in serialize._TORCH_TO_SERIALIZE_DTYPE.items()}
    assert theirs.items() <= numbered("exported").items()
    assert {name for _, name in numbered("exported").items() - theirs.items() if hasattr(torch, name)} == set()


def test_tags_are_those_of_pytorch() -> None:
    known = pytest.importorskip("torch.utils._dtype_abbrs").dtype_abbrs
    theirs = {tag: str(dtype)[6:] for dtype, tag in known.items() if not str(dtype)[6:].startswith("bits")}
    assert theirs.items() <= tagged("inductor").items()
    assert {name for _, name in tagged("inductor").items() - theirs.items() if hasattr(torch, name)} == set()


class Casts(TorchDispatchMode):
    """Notes the dtypes that operands are cast to."""

    def __init__(self) -> None:
        super().__init__()
        self.to: set[torch.dtype] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is torch.ops.aten._to_copy.default:
            self.to.add(kwargs["dtype"])
        return func(*args, **(kwargs or {}))


@in_torch
def test_autocast_treats_operands_as_the_table_says(row: Dtype, dtype: torch.dtype) -> None:
    cast: set[torch.dtype] = set()
    for target in (torch.bfloat16, torch.float16):
        # a dtype that no kernel multiplies is refused only then
        with Casts() as casts, torch.autocast("cpu", dtype=target), contextlib.suppress(RuntimeError):
            torch.mm(torch.empty(4, 4, dtype=dtype), torch.empty(4, 4, dtype=dtype))
        cast |= casts.to
    with torch.autocast("cpu", dtype=dtype):  # turns itself off for what it does not cast to
        is_target = torch.is_autocast_enabled("cpu")
    assert (row.autocast is not Autocast.KEPT) is bool(cast)
    assert (row.autocast is Autocast.TARGET) is is_target


@rows
def test_names_and_bits_are_those_of_numpy(row: Dtype) -> None:
    if row.numpy:
        assert np.dtype(row.numpy) == np.dtype(row.name)
        assert np.dtype(row.numpy).itemsize * 8 == row.bits
        return
    ml_dtypes = pytest.importorskip("ml_dtypes")
    found = getattr(ml_dtypes, row.name, None)
    if found is None:
        pytest.skip("NumPy has no such dtype")
    assert np.dtype(found).itemsize == ITEM_BYTES[row.name]
    if row.kind is not Kind.COMPLEX:
        limits = ml_dtypes.iinfo(found) if row.kind is Kind.INTEGER else ml_dtypes.finfo(found)
        assert limits.bits == row.bits


def test_every_dtype_of_onnx_has_its_number() -> None:
    onnx = pytest.importorskip("onnx")
    for kind, number in onnx.TensorProto.DataType.items():
        if kind not in ("UNDEFINED", "STRING"):
            assert numbered("onnx")[number] == onnx.helper.tensor_dtype_to_np_dtype(number).name, kind
    assert numbered("onnx")[onnx.TensorProto.STRING] == "string"


@pytest.mark.parametrize("shape", [(0,), (1,), (3,), (3, 5), (7, 9, 2), (4, 4)])
@pytest.mark.parametrize("name", [name for name in numbered("onnx").values() if name != "string"])
def test_onnx_stores_tensors_in_as_many_bytes(name: str, shape: tuple[int, ...]) -> None:
    onnx = pytest.importorskip("onnx")
    numbers = {dtype: number for number, dtype in numbered("onnx").items()}
    values = np.zeros(shape, onnx.helper.tensor_dtype_to_np_dtype(numbers[name]))
    assert len(onnx.numpy_helper.from_array(values).raw_data) == storage_bytes(name, shape)


def test_numbers_are_those_of_tensorflow() -> None:
    tensorflow = pytest.importorskip("tensorflow")
    for number, name in numbered("tensorflow").items():
        try:
            assert tensorflow.dtypes.as_dtype(number).name == name
        except TypeError:  # this TensorFlow is older than the dtype
            assert number > 23


# -- bytes ------------------------------------------------------------------------------------------

rows_of = st.lists(st.integers(0, 4), max_size=2).map(tuple)


@given(st.sampled_from([*PACKED, "bfloat16", "bool", "complex128", "string"]), rows_of, st.integers(0, 70))
def test_bytes_are_those_that_its_bits_and_scales_touch(dtype: str, outer: tuple[int, ...], width: int) -> None:
    row, shape = DTYPES[dtype], (*outer, width)
    elements = range(math.prod(shape))
    touched = {(i * row.bits + bit) // 8 for i in elements for bit in range(row.bits)}
    expected = len(touched)
    if row.blocks is not None and elements:
        blocks = {(i // width, i % width // row.blocks.size) for i in elements}
        expected += len(blocks) * ITEM_BYTES[row.blocks.scale] + 4 * (row.blocks.whole == "float32")
    assert storage_bytes(dtype, shape) == expected
    assert Tensor(0, dtype, shape, (0,) * len(shape)).nbytes == expected


@pytest.mark.parametrize("shape", [(128, 64), (1, 16), (3, 48)])
def test_nvfp4_takes_what_its_tensors_in_pytorch_take(shape: tuple[int, int]) -> None:
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this PyTorch is older than the dtype")
    m, k = shape
    parts = (
        torch.empty((m, k // 2), dtype=torch.float4_e2m1fn_x2),
        torch.empty((m, k // 16), dtype=torch.float8_e4m3fn),
        torch.empty((), dtype=torch.float32),
    )
    assert storage_bytes("nvfp4", shape) == sum(part.nbytes for part in parts)


@rows
def test_the_bytes_of_an_element_are_the_average_of_full_blocks(row: Dtype) -> None:
    whole = 4 if row.blocks and row.blocks.whole == "float32" else 0
    count = 96 if row.blocks is None else 3 * row.blocks.size
    assert row.element_bytes * count * row.holds == storage_bytes(row.name, (count,)) - whole


def test_the_page_has_every_dtype_of_products_with_its_rate_and_bytes() -> None:
    page = (Path(__file__).parents[1] / "docs" / "prediction.md").read_text()
    lines = re.findall(r"^\| (`float64`.*|`\w+`.*) \| `(\w+_t(?:fl)?ops)` \| (?:`(\w+)`)? ?\|$", page, re.MULTILINE)
    said = {
        name: (short, nbytes, rate, needs)
        for names, rate, needs in lines
        for name, short, nbytes in re.findall(r"`(\w+)`(?: \(`(\w+)`\))? ([\d.]+)", names)
    }
    assert said == {
        row.name: (row.short, f"{row.element_bytes:g}", row.rate, row.needs) for row in DTYPES.values() if row.rate
    }


@pytest.mark.parametrize(("text", "name"), [("bf16", "bfloat16"), ("FP8", "float8_e4m3fn"), ("nvfp4", "nvfp4")])
def test_a_dtype_goes_by_its_short_name_too(text: str, name: str) -> None:
    assert dtype_named(text) == name


def test_no_short_name_is_that_of_another_dtype() -> None:
    assert not tagged("short").keys() & DTYPES.keys()
    for text, near in (("bf61", "bf16"), ("float8", "float8_e4m3"), ("zzz", "fp64, fp32, fp16, bf16, fp8, fp4")):
        with pytest.raises(TensortideError, match=f"no dtype is called '{text}': it is .*{near}"):
            dtype_named(text)


# -- an older PyTorch -------------------------------------------------------------------------------


def test_where_pytorch_is_older_than_a_dtype_its_shapes_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    name, given = "float8_e8m0fnu", Given("float8_e8m0fnu", (8, 3), None)
    (clone,) = signatures_of("aten.clone")
    if hasattr(torch, name):
        assert results_of(clone, (given, None)) == (Result(name, (8, 3), (3, 1)),)
        monkeypatch.delattr(torch, name)
    results_of.cache_clear()
    assert results_of(clone, (given, None)) is None
    with pytest.raises(GraphError, match=r"PyTorch \S+ has no dtype float8_e8m0fnu: ops on it can be counted"):
        torch_dtype(name)


# -- one row is enough ------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "nbytes"), [("nvfp4", 64 * 33 // 2 + 64 * 3 + 4), ("float8_e8m0fnu", 64 * 33)])
def test_a_graph_has_tensors_of_a_new_dtype(dtype: str, nbytes: int, tmp_path: Path) -> None:
    builder = GraphBuilder()
    x = builder.input("x", (8, 33), "bfloat16")
    weight = builder.parameter("weight", (64, 33), dtype)
    builder.op("aten.linear", x, weight, out=(8, 64))
    graph = builder.build()
    save(graph, tmp_path / "step.tide")
    again = load(tmp_path / "step.tide")
    assert again == graph
    assert {storage.name: storage.nbytes for storage in again.storages}["weight"] == nbytes
    assert count(again).total.macs == 8 * 33 * 64


def test_a_packed_weight_is_whole_on_every_rank() -> None:
    builder = GraphBuilder()
    x, weight = builder.input("x", (8, 64), "bfloat16"), builder.parameter("weight", (64, 64), "nvfp4")
    builder.op("aten.mm", x, weight, out=(8, 64))
    found = analyzed(builder.build())
    assert {next(found.reasons(axis)) for axis in found.leaves(weight.index)} == {"elements of nvfp4 share bytes"}
    assert not any(found.reasons(found.leaves(x.index)[0]))


def test_products_of_nvfp4_run_at_the_rate_of_fp4() -> None:
    b200, h100 = device("B200"), device("H100-SXM-80GB")
    assert matrix_tflops(b200, "nvfp4") == b200.fp4_tflops
    assert matrix_tflops(b200, "mxfp6_e2m3") == b200.fp8_tflops
    assert matrix_tflops(h100, "nvfp4") is matrix_tflops(h100, "mxfp8_e4m3") is None
    assert matrix_tflops(b200, "float8_e8m0fnu") is None, "scales are not multiplied"
    narrow, wide = predict([product(8192, 8192, 8192, dtype=dtype) for dtype in ("nvfp4", "bfloat16")], b200)
    assert narrow.work.read_bytes == 2 * 8192 * 8192 * 9 // 16
    assert narrow.ns < wide.ns


def test_dumps_name_a_new_dtype() -> None:
    assert parse_type(type_text("float8_e8m0fnu", (8, 3))) == parse_type("f8e8m0fnu[8, 3]")
    assert type_text("nvfp4", (8, 16)) == "u8[76]"  # without a tag, its bytes
