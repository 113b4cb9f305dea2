"""The table of dtypes: names in every source, bytes and packing, rate of products, class under autocast.

A new dtype is a row of ``_ROWS``. Everything that tells dtypes apart asks this table.
"""

from __future__ import annotations

import difflib
import enum
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from tensortide.errors import TensortideError


class Kind(enum.Enum):
    """Kind of numbers that a dtype holds; ``OPAQUE`` for strings and handles, whose bytes no graph knows."""

    BOOL = enum.auto()
    INTEGER = enum.auto()
    FLOAT = enum.auto()
    COMPLEX = enum.auto()
    OPAQUE = enum.auto()


class Autocast(enum.Enum):
    """Treatment of operands of a dtype by ``torch.autocast``: left, cast, or what others are cast to."""

    KEPT = enum.auto()
    CAST = enum.auto()
    TARGET = enum.auto()


class Blocks(NamedTuple):
    """Scales stored beside the elements: one of dtype ``scale`` for every ``size`` elements of a row, the last of them
    for what is left of it; and one of dtype ``whole`` for the tensor, if named."""

    size: int
    scale: str
    whole: str = ""


class Dtype(NamedTuple):
    """A dtype under its name in Graphs, which is also the one of NumPy, ml_dtypes, JAX, Keras and TensorFlow.

    Elements of less than a byte are packed without gaps. ``rate`` is the figure of the catalogue that products of it
    run at, empty where none is known; ``needs`` is another that every device with units for it has. ``unpacked``: the
    dtype that runtimes without packed elements store it in. ``holds``: elements in what PyTorch shows as one.

    The names of the sources: ``numpy`` is the code of those that NumPy has without ml_dtypes, ``torch`` PyTorch's own
    number (``c10::ScalarType``), ``exported`` that of programs of torch.export; ``onnx``, ``tensorflow`` and ``tflite``
    are the numbers of these formats, ``inductor`` is the tag in dumps of PyTorch's compiler, ``cpp`` the types of C++
    in PyTorch's traces, ``nets`` the name in settings of layer placements, ``short`` the one that people write.
    """

    name: str
    bits: int
    kind: Kind
    rate: str = ""
    autocast: Autocast = Autocast.KEPT
    needs: str = ""
    blocks: Blocks | None = None
    holds: int = 1
    unpacked: str = ""
    numpy: str = ""
    torch: int | None = None
    exported: int | None = None
    onnx: int | None = None
    tensorflow: int | None = None
    tflite: int | None = None
    inductor: str = ""
    cpp: tuple[str, ...] = ()
    nets: str = ""
    short: str = ""

    @property
    def element_bytes(self) -> float:
        """Bytes of one element on average, with its share of the scale of a full block."""
        scale = DTYPES[self.blocks.scale].bits / self.blocks.size if self.blocks else 0
        return (self.bits / self.holds + scale) / 8


_B, _I, _F, _C, _O = Kind
_CAST, _TARGET = Autocast.CAST, Autocast.TARGET
_MX = Blocks(32, "float8_e8m0fnu")
"""Blocks of the microscaling formats of the Open Compute Project (MX 1.0)."""

_ROWS = (
    Dtype("float64", 64, _F, "fp64_tflops", numpy="f8", torch=7, exported=8, onnx=11, tensorflow=2, tflite=10,
          inductor="f64", cpp=("double",), nets="float64", short="fp64"),
    Dtype("float32", 32, _F, "fp32_tflops", _CAST, numpy="f4", torch=6, exported=7, onnx=1, tensorflow=1, tflite=0,
          inductor="f32", cpp=("float",), nets="float32", short="fp32"),
    Dtype("tf32", 32, _F, "tf32_tflops", nets="tfloat32"),
    Dtype("float16", 16, _F, "fp16_tflops", _TARGET, numpy="f2", torch=5, exported=6, onnx=10, tensorflow=19, tflite=1,
          inductor="f16", cpp=("c10::Half",), nets="float16", short="fp16"),
    Dtype("bfloat16", 16, _F, "bf16_tflops", _TARGET, torch=15, exported=13, onnx=16, tensorflow=14, tflite=18,
          inductor="bf16", cpp=("c10::BFloat16",), nets="bfloat16",
          short="bf16"),
    Dtype("float8_e4m3fn", 8, _F, "fp8_tflops", _CAST, torch=24, exported=29, onnx=17, tensorflow=25,
          inductor="f8e4m3fn", cpp=("c10::Float8_e4m3fn",), nets="float8", short="fp8"),
    Dtype("float8_e5m2", 8, _F, "fp8_tflops", _CAST, torch=23, exported=30, onnx=19, tensorflow=24, inductor="f8e5m2",
          cpp=("c10::Float8_e5m2",)),
    Dtype("float8_e4m3fnuz", 8, _F, "fp8_tflops", _CAST, torch=26, exported=31, onnx=18, tensorflow=26,
          inductor="f8e4m3fnuz", cpp=("c10::Float8_e4m3fnuz",)),
    Dtype("float8_e5m2fnuz", 8, _F, "fp8_tflops", _CAST, torch=25, exported=32, onnx=20, tensorflow=28,
          inductor="f8e5m2fnuz", cpp=("c10::Float8_e5m2fnuz",)),
    Dtype("float8_e8m0fnu", 8, _F, "", _CAST, torch=44, exported=33, onnx=24, inductor="f8e8m0fnu",
          cpp=("c10::Float8_e8m0fnu",)),
    Dtype("float8_e4m3b11fnuz", 8, _F, "fp8_tflops", tensorflow=27),
    Dtype("float8_e4m3", 8, _F, "fp8_tflops"),
    Dtype("float8_e3m4", 8, _F, "fp8_tflops"),
    Dtype("float6_e2m3fn", 6, _F, "fp8_tflops", needs="fp4_tflops", onnx=27, unpacked="float8_e4m3fn"),
    Dtype("float6_e3m2fn", 6, _F, "fp8_tflops", needs="fp4_tflops", onnx=28, unpacked="float8_e5m2"),
    Dtype("float4_e2m1fn", 4, _F, "fp4_tflops", onnx=23, unpacked="float8_e4m3fn", short="fp4"),
    Dtype("float4_e2m1fn_x2", 8, _F, "fp4_tflops", _CAST, holds=2, torch=45, inductor="f4e2m1fnx2",
          cpp=("c10::Float4_e2m1fn_x2",)),
    Dtype("mxfp8_e4m3", 8, _F, "fp8_tflops", needs="fp4_tflops", blocks=_MX),
    Dtype("mxfp8_e5m2", 8, _F, "fp8_tflops", needs="fp4_tflops", blocks=_MX),
    Dtype("mxfp6_e2m3", 6, _F, "fp8_tflops", needs="fp4_tflops", blocks=_MX),
    Dtype("mxfp6_e3m2", 6, _F, "fp8_tflops", needs="fp4_tflops", blocks=_MX),
    Dtype("mxfp4", 4, _F, "fp4_tflops", blocks=_MX),
    Dtype("nvfp4", 4, _F, "fp4_tflops", blocks=Blocks(16, "float8_e4m3fn", "float32")),
    Dtype("bool", 8, _B, numpy="b1", torch=11, exported=12, onnx=9, tensorflow=10, tflite=6, inductor="b8",
          cpp=("bool",)),
    Dtype("uint8", 8, _I, "int8_tops", numpy="u1", torch=0, exported=1, onnx=2, tensorflow=4, tflite=3, inductor="u8",
          cpp=("unsigned char",)),
    Dtype("int8", 8, _I, "int8_tops", numpy="i1", torch=1, exported=2, onnx=3, tensorflow=6, tflite=9, inductor="i8",
          cpp=("signed char",)),
    Dtype("int16", 16, _I, numpy="i2", torch=2, exported=3, onnx=5, tensorflow=5, tflite=7, inductor="i16",
          cpp=("short int", "short")),
    Dtype("uint16", 16, _I, numpy="u2", torch=27, exported=28, onnx=4, tensorflow=17, tflite=16, inductor="u16",
          cpp=("short unsigned int", "unsigned short")),
    Dtype("int32", 32, _I, numpy="i4", torch=3, exported=4, onnx=6, tensorflow=3, tflite=2, inductor="i32",
          cpp=("int",)),
    Dtype("uint32", 32, _I, numpy="u4", torch=28, exported=34, onnx=12, tensorflow=22, tflite=15, inductor="u32",
          cpp=("unsigned int",)),
    Dtype("int64", 64, _I, numpy="i8", torch=4, exported=5, onnx=7, tensorflow=9, tflite=4, inductor="i64",
          cpp=("long int", "long", "long long")),
    Dtype("uint64", 64, _I, numpy="u8", torch=29, exported=35, onnx=13, tensorflow=23, tflite=12, inductor="u64",
          cpp=("long unsigned int", "unsigned long", "unsigned long long")),
    Dtype("int4", 4, _I, unpacked="int8", onnx=22, tensorflow=29, tflite=17),
    Dtype("uint4", 4, _I, unpacked="uint8", onnx=21, tensorflow=30, tflite=20),
    Dtype("int2", 2, _I, unpacked="int8", onnx=26, tensorflow=31, tflite=19),
    Dtype("uint2", 2, _I, unpacked="uint8", onnx=25, tensorflow=32),
    Dtype("qint8", 8, _I, "int8_tops", torch=12, tensorflow=11, cpp=("c10::qint8",)),
    Dtype("quint8", 8, _I, "int8_tops", torch=13, tensorflow=12, cpp=("c10::quint8",)),
    Dtype("qint16", 16, _I, tensorflow=15),
    Dtype("quint16", 16, _I, tensorflow=16),
    Dtype("qint32", 32, _I, torch=14, tensorflow=13, cpp=("c10::qint32",)),
    Dtype("complex32", 32, _C, "fp32_tflops", torch=8, exported=9, inductor="c32", cpp=("c10::complex<c10::Half>",)),
    Dtype("complex64", 64, _C, "fp32_tflops", numpy="c8", torch=9, exported=10, onnx=14, tensorflow=8, tflite=8,
          inductor="c64", cpp=("c10::complex<float>",)),
    Dtype("complex128", 128, _C, "fp64_tflops", numpy="c16", torch=10, exported=11, onnx=15, tensorflow=18, tflite=11,
          inductor="c128", cpp=("c10::complex<double>",)),
    Dtype("string", 0, _O, onnx=8, tensorflow=7, tflite=5),
    Dtype("resource", 0, _O, tensorflow=20, tflite=13),
    Dtype("variant", 0, _O, tensorflow=21, tflite=14),
)  # fmt: skip

DTYPES = {row.name: row for row in _ROWS}
"""The rows by their names."""
ITEM_BYTES = {row.name: -(-row.bits // 8) for row in _ROWS}
"""Bytes of one element alone: a byte at least, and without scales. Strings and handles have none."""
_WHOLE = {name: nbytes for name, nbytes in ITEM_BYTES.items() if not (DTYPES[name].bits % 8 or DTYPES[name].blocks)}
"""Bytes per element of the dtypes that are neither packed nor scaled."""

_KINDS = {row.name: row.kind for row in _ROWS}


def storage_bytes(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of a dense tensor, with the scales of blocks, which lie along its last dimension.

        >>> storage_bytes("bfloat16", (3, 33)), storage_bytes("int4", (3, 33)), storage_bytes("nvfp4", (3, 33))
        (198, 50, 63)

    The last: 99 elements in 50 bytes, three scales of a byte for each row of 33, and four bytes for the tensor. Rows
    that kernels pad to tiles take more.
    """
    if (item := _WHOLE.get(dtype)) is not None:
        return math.prod(shape) * item
    row, count = DTYPES[dtype], math.prod(shape)
    nbytes = -(-count * row.bits // 8)
    if row.blocks is None or not count:
        return nbytes
    scales = math.prod(shape[:-1]) * -(-math.prod(shape[-1:]) // row.blocks.size)
    return nbytes + scales * ITEM_BYTES[row.blocks.scale] + ITEM_BYTES.get(row.blocks.whole, 0)


def is_packed(dtype: str) -> bool:
    """Tell whether elements of a dtype share bytes, or have scales beside them: none has an address of its own."""
    return dtype not in _WHOLE


def kind_of(dtype: str) -> Kind:
    """The kind of the dtype of this name; opaque if there is none."""
    return _KINDS.get(dtype, Kind.OPAQUE)


def is_float(dtype: str) -> bool:
    """Tell whether a dtype holds real floating-point numbers."""
    return kind_of(dtype) is Kind.FLOAT


def is_half(dtype: str) -> bool:
    """Tell whether a dtype is one of those that autocast computes products in."""
    row = DTYPES.get(dtype)
    return row is not None and row.autocast is Autocast.TARGET


def unpacked(dtype: str) -> str:
    """The dtype in which a runtime without packed elements stores one of less than a byte; any other as it is."""
    row = DTYPES.get(dtype)
    return dtype if row is None else row.unpacked or dtype


def numbered(source: Literal["torch", "exported", "onnx", "tensorflow", "tflite"]) -> dict[int, str]:
    """The dtypes that a source knows, by its numbers."""
    return {number: row.name for row in _ROWS if (number := getattr(row, source)) is not None}


def tagged(source: Literal["inductor", "nets", "short"]) -> dict[str, str]:
    """The dtypes that a source knows, by its names."""
    return {tag: row.name for row in _ROWS if (tag := getattr(row, source))}


def in_cpp() -> dict[str, str]:
    """The dtypes of PyTorch's traces, by their types in C++."""
    return {name: row.name for row in _ROWS for name in row.cpp}


def dtype_named(text: str) -> str:
    """The name of the dtype that a person means: its name, or the short one.

    Raises TensortideError, with near names, if there is none.

    Examples:
        >>> dtype_named("bf16"), dtype_named("nvfp4")
        ('bfloat16', 'nvfp4')
    """
    wanted, shorts = text.strip().lower(), tagged("short")
    found = shorts.get(wanted, wanted)
    if found in DTYPES:
        return found
    near = [name for name in DTYPES if wanted and name.startswith(wanted)]
    near = near or difflib.get_close_matches(wanted, [*shorts, *DTYPES], n=4, cutoff=0.5)
    raise TensortideError(
        f"no dtype is called {text!r}: it is {', '.join(near or shorts)} (docs/prediction.md has all)"
    )
