"""Dtypes of a node's outputs, from its attributes: which attribute names the dtype, where it is not ``T``."""

from __future__ import annotations

from collections.abc import Mapping

from tensortide.importers.tf1.reading.raw import RawNode

__all__ = ["output_dtypes"]

_ATTRIBUTES = ("dtype", "out_type", "DstT", "T", "component_type", "output_type", "Tparams", "Tout", "elem_type")
"""The first that a node has names the dtype of its outputs, unless a table says otherwise."""

_FIXED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual", "LogicalAnd", "LogicalOr", "LogicalNot",
         "IsFinite", "IsNan", "IsInf", "LoopCond", "All", "Any", "InTopK", "InTopKV2", "IsVariableInitialized",
         "VarIsInitializedOp", "ApproximateEqual"), ("bool",)),
    "Where": ("int64",),
    "Rank": ("int32",),
    "ConcatOffset": ("int32",),
    "TensorArrayV3": ("resource", "float32"), "TensorArrayGradV3": ("resource", "float32"),
    "TensorArrayScatterV3": ("float32",), "TensorArrayWriteV3": ("float32",), "TensorArraySplitV3": ("float32",),
    "TensorArraySizeV3": ("int32",),
    "StackV2": ("resource",), "VarHandleOp": ("resource",), "FIFOQueueV2": ("resource",), "QueueSizeV2": ("int32",),
    "RandomShuffleQueueV2": ("resource",), "IteratorV2": ("resource",), "Iterator": ("resource",),
    "HashTableV2": ("resource",), "OneShotIterator": ("resource",),
    "LogUniformCandidateSampler": ("int64", "float32", "float32"), "UniformCandidateSampler": ("int64", "float32",
    "float32"),
    "LearnedUnigramCandidateSampler": ("int64", "float32", "float32"), "ComputeAccidentalHits": ("int32", "int64",
    "float32"),
    "ScalarSummary": ("string",), "MergeSummary": ("string",), "HistogramSummary": ("string",), "StringJoin":
    ("string",), "NoOp": (), "ControlTrigger": (), "Assert": (), }  # fmt: skip

_NAMED: Mapping[str, tuple[str, ...]] = {
    "ArgMax": ("output_type",), "ArgMin": ("output_type",), "Cast": ("DstT",), "Multinomial": ("output_dtype",),
    "RandomUniformInt": ("Tout",), "Range": ("Tidx",), "Gather": ("Tparams",), "GatherV2": ("Tparams",),
    "GatherNd": ("Tparams",), "ResourceGather": ("dtype",), "OneHot": ("T",), "Fill": ("T",),
    "BroadcastGradientArgs": ("T", "T"),
    "BroadcastArgs": ("T",), "TopK": ("T", ""), "TopKV2": ("T", ""), "Unique": ("T", "out_idx"), "UniqueV2": ("T",
    "out_idx"),
    "UniqueWithCounts": ("T", "out_idx", "out_idx"), "ListDiff": ("T", "out_idx"), "LookupTableFindV2": ("Tout",),
    "Bucketize": ("",), "Merge": ("T", ""), "RefMerge": ("T", ""), "TensorArrayReadV3": ("dtype",), "Select": ("T",),
    "FusedBatchNormV2": ("T", "U", "U", "U", "U"), "FusedBatchNormV3": ("T", "U", "U", "U", "U", "U"),
    "FusedBatchNormGradV2": ("T", "U", "U", "U", "U"), "FusedBatchNormGradV3": ("T", "U", "U", "U", "U"),
    "SparseToDense": ("T",), "SequenceMask": ("dtype",), "StackPopV2": ("elem_type",), "StackPushV2": ("T",),
    "Bitcast": ("type",), "MaxPoolWithArgmax": ("T", "Targmax"), "RandomStandardNormal": ("dtype",),
    "Size": ("out_type",),
}  # fmt: skip
"""The attribute of each output; "" is int32. The last repeats."""

_DEFAULTS = {
    "output_type": "int64", "output_dtype": "int64", "out_type": "int32", "out_idx": "int32", "T": "float32",
    "U": "float32",
}  # fmt: skip


def output_dtypes(node: RawNode, count: int) -> tuple[str, ...]:
    """The dtypes of ``count`` outputs; float32 where nothing says."""
    known = _FIXED.get(node.type)
    if known is None:
        known = _listed(node) or tuple(_named(node, name) for name in _NAMED.get(node.type, ())) or (_usual(node),)
    return (known + known[-1:] * count)[:count] if known else ("float32",) * count


def _listed(node: RawNode) -> tuple[str, ...]:
    for name in ("Tout", "output_types", "component_types", "dtypes", "Tcomponents"):
        value = node.attributes.get(name)
        if isinstance(value, tuple) and value:
            return tuple(str(dtype) for dtype in value)
    return ()


def _named(node: RawNode, name: str) -> str:
    value = node.attributes.get(name) if name else "int32"
    return value if isinstance(value, str) else _DEFAULTS.get(name, "float32")


def _usual(node: RawNode) -> str:
    if node.type in ("Shape", "ShapeN"):
        return _named(node, "out_type")
    return next((value for name in _ATTRIBUTES if isinstance(value := node.attributes.get(name), str)), "float32")
