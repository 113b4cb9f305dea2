"""Vocabularies of ops: how the complete list of one is told by the package that defines it, and what covers an op."""

from __future__ import annotations

import gc
import importlib
import inspect
import pkgutil
import warnings
from collections.abc import Callable, Collection, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from tensortide.cost.evaluate import rule_for
from tensortide.importers.jax import compat
from tensortide.importers.jax.flatten import _SPECIAL as JAX_CONTROL
from tensortide.importers.keras.layers import LAYERS
from tensortide.importers.onnx.control import CONTROL
from tensortide.importers.onnx.shapes.base import SHAPES
from tensortide.importers.shapes import said
from tensortide.importers.tflite.convert import CALLING
from tensortide.importers.tflite.schema import _OPERATORS

LISTS = Path(__file__).parent / "lists"
_JAX_SKIPPED = ("test", "pallas", "mosaic", "triton", "tpu", "cuda", "jax2tf", "colab", "profile", "serial", "slurm")
"""Parts of names of modules of JAX that have no primitives of programs: kernel languages, tools."""


class Vocabulary(NamedTuple):
    """Ops of one kind: the ``package`` that has them, their names by it, the name that a rule has, and the names that
    need none: what an importer takes for structure, and reads by the ops inside. ``shaped``: it tells the shape."""

    name: str
    title: str
    package: str
    listed: Callable[[], Collection[str]]
    key: Callable[[str], str]
    structure: Callable[[], Collection[str]] = tuple
    shaped: Callable[[str], bool] = lambda name: True

    @property
    def path(self) -> Path:
        """The committed list."""
        return LISTS / f"{self.name}.txt"

    def installed(self) -> str:
        """Return the version of the package, or what else the list is of; empty where the package is not installed."""
        if not self.package:
            return self.path.read_text("utf-8").partition("\n")[0].removeprefix("# ")
        try:
            return f"{self.package} {version(self.package)}"
        except PackageNotFoundError:
            return ""

    def names(self) -> list[str]:
        """Return the names of the committed list."""
        return [line for line in self.path.read_text("utf-8").splitlines() if not line.startswith("#")]

    def written(self) -> str:
        """Return the list as the installed package has it."""
        return "\n".join([f"# {self.installed()}", *sorted(self.listed())]) + "\n"

    def lacking(self) -> Iterator[str]:
        """Yield the names that no rule prices and no importer reads as structure, or whose shape nothing tells."""
        structure = set(self.structure())
        for name in self.names():
            if name not in structure and (rule_for(self.key(name)) is None or not self.shaped(name)):
                yield name


def _onnx() -> Collection[str]:
    from onnx import defs

    return {f"{schema.domain}::{schema.name}".removeprefix("::") for schema in defs.get_all_schemas_with_history()}


def _onnx_key(name: str) -> str:
    domain, _, kind = name.rpartition("::")
    return f"{domain.replace('.', '::', 1)}::{kind}" if domain else f"onnx::{kind}"


def _jax() -> Collection[str]:
    """Every primitive that some module of JAX has made."""
    import jax
    from jax.extend.core import Primitive

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in pkgutil.walk_packages(jax.__path__, "jax.", onerror=lambda name: None):
            if not any(part in module.name for part in _JAX_SKIPPED):
                importlib.import_module(module.name)
    return {found.name for found in gc.get_objects() if issubclass(type(found), Primitive)}


def _jax_structure() -> Collection[str]:
    return {*JAX_CONTROL, *compat.CALLS, *compat.RENAMED}


def _keras() -> Collection[str]:
    """Layers by their class, operations as ``ops_Name``, activations as ``activation_name``."""
    import keras
    import keras.src.ops
    from keras.src.ops.operation import Operation

    for module in pkgutil.iter_modules(keras.src.ops.__path__, "keras.src.ops."):
        if not module.name.endswith("_test"):
            importlib.import_module(module.name)
    layers = {
        layer.__name__ for _, layer in inspect.getmembers(keras.layers, inspect.isclass)
        if issubclass(layer, keras.layers.Layer)
    }  # fmt: skip
    made = {f"ops_{kind.__name__}" for kind in _kinds(Operation) if kind.__module__.startswith("keras.src.ops.")}
    other = ("get", "serialize", "deserialize", "linear")
    functions = {f"activation_{name}" for name in dir(keras.activations) if name[0].islower() and name not in other}
    return layers | made | functions


def _kinds(kind: type[Any]) -> Iterator[type[Any]]:
    inner: type[Any]
    for inner in kind.__subclasses__():
        yield inner
        yield from _kinds(inner)


def _keras_shaped(name: str) -> bool:
    """Operations and activations have the shapes that a file states, or those of their inputs."""
    return name.startswith(("ops_", "activation_")) or name in LAYERS


def _of_files() -> Collection[str]:
    """Op types that the files read here have; the registry of TensorFlow has many that no training step uses."""
    return TENSORFLOW.names()


TENSORFLOW = Vocabulary("tensorflow", "TensorFlow", "", _of_files, lambda name: f"tf::{name}")
VOCABULARIES = (
    Vocabulary(
        "onnx", "ONNX", "onnx", _onnx, _onnx_key,
        structure=lambda: CONTROL, shaped=lambda name: name in SHAPES or bool(said(f"onnx.{name}")),
    ),
    Vocabulary(
        "tflite", "TensorFlow Lite", "", lambda: _OPERATORS, lambda name: f"tflite::{name}",
        structure=lambda: CALLING,
    ),
    Vocabulary("jax", "JAX", "jax", _jax, lambda name: f"jax::{name}", structure=_jax_structure),
    Vocabulary(
        "keras", "Keras", "keras", _keras, lambda name: f"keras::{name}",
        structure=lambda: LAYERS, shaped=_keras_shaped,
    ),
    TENSORFLOW,
)  # fmt: skip
