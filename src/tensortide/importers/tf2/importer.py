"""SavedModels and functions of TensorFlow 2 as a row of the table of importers."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, SizedOptions

FILE = "saved_model.pb"


@dataclass(frozen=True)
class FunctionOptions(SizedOptions):
    """Options of reading a graph of TensorFlow 2. ``symbols`` are values of the symbols in its sizes, ``inputs`` the
    arguments, or TensorSpecs of them, that a live function is traced with."""

    signature: Annotated[str, "The signature to read: by default serving_default, or the only one."] = ""
    unused: Annotated[bool, "Keep ops whose results nobody reads; TensorFlow prunes them."] = False
    bind: Annotated[
        tuple[str, ...], "Sizes by name: PATTERN=b,s,2*h names the dims of inputs and variables, or constants."
    ] = ()
    inputs: tuple[Any, ...] = ()


def _sniff(path: Path) -> bool:
    """Look at the file of a SavedModel, in its folder or alone: its version, 1, and a graph that begins with what it
    says of itself."""
    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        start = opened.read(16)
    return re.match(rb"\x08\x01\x12[\x80-\xff]{0,9}[\x01-\x7f]\x0a", start, re.DOTALL) is not None


def _read(path: Path, options: FunctionOptions) -> Imported:
    from tensortide.importers.tensorflow.bindings import bindings
    from tensortide.importers.tf2.load import import_raw
    from tensortide.importers.tf2.saved import read_saved_model

    saved = read_saved_model(path, options.signature)
    note = f"the signature {saved.signature!r} of the SavedModel"
    return import_raw(
        saved.graph, saved.roots, name=path.name, bind=bindings(options.bind), settings=options.symbols, notes=(note,),
        unused=options.unused,
    )  # fmt: skip


def _accepts(value: object) -> bool:
    """A tf.function, also with a tuple of its inputs, or one concrete function of it: all know their TensorFlow by its
    module."""
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], tuple):
        value = value[0]
    ours = "tensorflow" in sys.modules and type(value).__module__.startswith("tensorflow.")
    return ours and (hasattr(value, "get_concrete_function") or hasattr(value, "captured_inputs"))


def _convert(target: Any, options: FunctionOptions) -> Imported:
    from tensortide.importers.tf2.live import import_function

    function, inputs = target if isinstance(target, tuple) else (target, options.inputs)
    return import_function(function, inputs, settings=options.symbols, unused=options.unused)


IMPORTER = Importer(
    "tf2", "a TensorFlow 2 SavedModel (its folder) or tf.function", _sniff, _read, FunctionOptions,
    accepts=_accepts, convert=_convert, modules=("tensorflow",), open_sizes=True, trips=True,
)  # fmt: skip
