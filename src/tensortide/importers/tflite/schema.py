"""The model in a TensorFlow Lite flat buffer: subgraphs of operators over tensors, constants as places in the file.

Numbers of fields, operators and types are those of ``schema.fbs``, version 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tensortide.dtypes import numbered, unpacked
from tensortide.gzipped import contents
from tensortide.importers.tflite.buffer import FlatBufferError, Reader, Table

IDENTIFIER = b"TFL3"
"""Bytes 4 to 8 of every file."""

MOST_ENTRIES = 1_000_000
"""Tensors and operators of a file; its tables may be listed again and again, so its size bounds them badly."""

MOST_AXES, MOST_INPUTS = 64, 10_000
"""Axes of a tensor; inputs and outputs of an operator or a subgraph."""

_NAMES = """
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION
LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH
CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER
BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE
BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM
ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE
EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR
ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE
RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND
COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE
NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL
PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE
HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE
BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1
UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR
RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE
STABLEHLO_CLAMP STABLEHLO_CONCATENATE STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE
STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL
STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER
STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_SCATTER STABLEHLO_COMPARE
STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA
STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE
DILATE STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT
STABLEHLO_CASE
"""
_OPERATORS = _NAMES.split()
"""Names of the built-in operators, by their codes."""

_CUSTOM, _EXTENDED = 32, 127
_DTYPES = numbered("tflite")

FUSED = ("", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
"""Activations that an operator may end with, by their codes."""

_ACTIVATION = {
    **dict.fromkeys(("ADD", "SUB", "MUL", "DIV", "FULLY_CONNECTED", "L2_NORMALIZATION", "LSTM", "RNN"), 0),
    **dict.fromkeys(("CONCATENATION", "SVDF", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN"), 1),
    **dict.fromkeys(("CONV_2D", "TRANSPOSE_CONV"), 3),
    **dict.fromkeys(("DEPTHWISE_CONV_2D", "CONV_3D", "CONV_3D_TRANSPOSE"), 4),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"), 5),
}
"""The field of an operator's options that says its activation."""

_STRIDES = {"stride_w": (1, "i", 0), "stride_h": (2, "i", 0)}
_WINDOW = {"filter_width": (3, "i", 1), "filter_height": (4, "i", 1)}
_OPTIONS: dict[str, dict[str, tuple[int, str, int]]] = {
    "CONV_2D": _STRIDES,
    "DEPTHWISE_CONV_2D": _STRIDES,
    "TRANSPOSE_CONV": _STRIDES,
    "AVERAGE_POOL_2D": _WINDOW,
    "MAX_POOL_2D": _WINDOW,
    "L2_POOL_2D": _WINDOW,
    "BATCH_MATMUL": {"adj_x": (0, "b", 0), "adj_y": (1, "b", 0)},
    "LOCAL_RESPONSE_NORMALIZATION": {"radius": (0, "i", 0)},
    "WHILE": {"cond": (0, "i", 0), "body": (1, "i", 0)},
    "IF": {"then": (0, "i", 0), "else": (1, "i", 0)},
    "CALL": {"body": (0, "I", 0)},
    "CALL_ONCE": {"body": (0, "i", 0)},
    "STABLEHLO_COMPOSITE": {"body": (1, "i", 0)},
    "STABLEHLO_WHILE": {"cond": (0, "i", 0), "body": (1, "i", 0)},
    "STABLEHLO_CONVOLUTION": {"features_axis": (9, "q", 0)},
    "STABLEHLO_SORT": {"dimension": (0, "q", 0)},
}
"""Options that the cost or the structure depends on: field, type and default."""

_LISTS: dict[str, dict[str, tuple[int, str]]] = {
    "BUCKETIZE": {"boundaries": (0, "f")},
    "STABLEHLO_CONVOLUTION": {"lhs_dilation": (2, "q"), "input_spatial": (7, "q"), "output_spatial": (13, "q")},
    "STABLEHLO_DOT_GENERAL": {"contracted": (2, "q")},
    "STABLEHLO_REDUCE_WINDOW": {"window": (0, "q")},
}
"""Options that are lists: field and type of an element."""
_OPTIONS_1, _OPTIONS_2 = 4, 12
"""The fields of an operator's options: newer operators have theirs apart."""


class Stored(NamedTuple):
    """A tensor of a subgraph. ``packed``: its elements take less than a byte in the file; ``span`` is where its values
    lie, of length 0 for one that is computed; ``dynamic`` are the axes whose size the file leaves open."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    packed: bool
    span: tuple[int, int]
    quantized: bool
    variable: bool
    dynamic: tuple[int, ...]


class Operator(NamedTuple):
    """An operator: its name, its inputs (-1: an optional one that is not there), outputs and options."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: dict[str, int | str | tuple[int, ...]]

    def number(self, key: str) -> int:
        """Return an option that is a number; 0 where it is not there."""
        value = self.options.get(key, 0)
        return value if isinstance(value, int) else 0


class Subgraph(NamedTuple):
    """Operators in the order in which they run, over ``tensors``."""

    name: str
    tensors: tuple[Stored, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]


class Model(NamedTuple):
    """A whole file; it runs its first subgraph."""

    file: Reader
    subgraphs: tuple[Subgraph, ...]
    description: str


def read_model(path: Path) -> Model:
    """Read a flat buffer. Raises FlatBufferError for a file that is damaged, or no model of TensorFlow Lite."""
    return parse_model(str(path), contents(path, FlatBufferError, unpack=False))


def parse_model(name: str, data: bytes) -> Model:
    """Read the bytes of a flat buffer, which errors call ``name``. Raises FlatBufferError as ``read_model``."""
    file = Reader(name, data)
    if data[4:8] != IDENTIFIER:
        raise file.fail("no flat buffer of TensorFlow Lite")
    root = file.root()
    if root.number(0, "I") != 3:
        raise file.fail(f"it has version {root.number(0, 'I')} of the schema; 3 is read")
    codes = [_code(file, table) for table in root.tables(1)]
    buffers = [_buffer(file, table) for table in root.tables(4)]
    left = [MOST_ENTRIES]
    subgraphs = tuple(_subgraph(file, table, codes, buffers, left) for table in root.tables(2))
    if not subgraphs:
        raise file.fail("it has no subgraph")
    return Model(file, subgraphs, root.text(3))


def _code(file: Reader, table: Table) -> str:
    """Return the name of an operator code; ``CUSTOM_`` and its own name for a custom one."""
    old, new = table.number(0, "b"), table.number(3, "i")
    number = max(old, new) if old != _EXTENDED or new else old
    if number == _CUSTOM:
        return "CUSTOM_" + (re.sub(r"\W", "_", table.text(1)) or "unnamed")
    if not 0 <= number < len(_OPERATORS):
        return f"BUILTIN_{number}"
    return _OPERATORS[number]


def _buffer(file: Reader, table: Table) -> tuple[int, int]:
    """Return where the bytes of a buffer lie: in its table, or for files of over 2 GB behind all tables."""
    offset, size = table.number(1, "Q"), table.number(2, "Q")
    if offset > 1:
        if offset + size > len(file.data):
            raise file.fail(f"it is cut: a buffer of {size} bytes at byte {offset} of {len(file.data)}")
        return offset, size
    return table.span(0)


def _take(file: Reader, tables: Iterator[Table], left: list[int]) -> Iterator[Table]:
    for table in tables:
        left[0] -= 1
        if left[0] < 0:
            raise file.fail(f"it has over {MOST_ENTRIES} tensors and operators")
        yield table


def _subgraph(
    file: Reader, table: Table, codes: list[str], buffers: list[tuple[int, int]], left: list[int]
) -> Subgraph:
    name = table.text(4)
    tensors = tuple(_tensor(file, one, buffers) for one in _take(file, table.tables(0), left))
    operators = tuple(_operator(file, one, codes) for one in _take(file, table.tables(3), left))
    inputs, outputs = table.numbers(1, "i", MOST_INPUTS), table.numbers(2, "i", MOST_INPUTS)
    used = [*inputs, *outputs, *(i for op in operators for i in (*op.inputs, *op.outputs))]
    if wrong := [i for i in used if not -1 <= i < len(tensors)]:
        raise file.fail(f"subgraph {name!r} has {len(tensors)} tensors, and something names number {wrong[0]}")
    return Subgraph(name, tensors, inputs, outputs, operators)


def _tensor(file: Reader, table: Table, buffers: list[tuple[int, int]]) -> Stored:
    shape, code, buffer, name = (
        table.numbers(0, "i", MOST_AXES),
        table.number(1, "b"),
        table.number(2, "I"),
        table.text(3),
    )
    if code not in _DTYPES:
        raise file.fail(f"tensor {name!r} has the unknown type {code}")
    if buffer >= len(buffers):
        raise file.fail(f"tensor {name!r} lies in buffer {buffer} of {len(buffers)}")
    if any(size < 0 for size in shape):
        raise file.fail(f"tensor {name!r} has the shape {shape}")
    signature = table.numbers(7, "i", MOST_AXES)
    dynamic = tuple(i for i, n in enumerate(signature) if n < 0) if len(signature) == len(shape) else ()
    quantization = table.table(4)
    quantized = quantization is not None and quantization.span(2)[1] > 0
    variable = bool(table.number(5, "b"))
    stored, dtype = _DTYPES[code], unpacked(_DTYPES[code])
    return Stored(name, shape, dtype, dtype != stored, buffers[buffer], quantized, variable, dynamic)


def _operator(file: Reader, table: Table, codes: list[str]) -> Operator:
    index = table.number(0, "I")
    if index >= len(codes):
        raise file.fail(f"an operator has code {index} of {len(codes)}")
    name = codes[index]
    options = table.table(_OPTIONS_2 if name.startswith("STABLEHLO") else _OPTIONS_1)
    found: dict[str, int | str | tuple[int, ...]] = {}
    if options is not None:
        for key, (field, form) in _LISTS.get(name, {}).items():
            found[key] = options.numbers(field, form, MOST_INPUTS)
        for key, (field, form, default) in _OPTIONS.get(name, {}).items():
            found[key] = options.number(field, form, default)
        if name in _ACTIVATION:
            fused = options.number(_ACTIVATION[name], "b")
            if not 0 <= fused < len(FUSED):
                raise file.fail(f"an operator {name} has the unknown activation {fused}")
            if fused:
                found["fused_activation"] = FUSED[fused]
    return Operator(name, table.numbers(1, "i", MOST_INPUTS), table.numbers(2, "i", MOST_INPUTS), found)
