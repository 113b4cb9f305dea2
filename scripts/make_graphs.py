"""Capture the small graphs that tests take, and write them to ``tests/graphs``.

    python -m scripts.make_graphs              # all
    python -m scripts.make_graphs gpt2 lstm    # some

``tests.graphs.stored`` reads them. A test captures all anew and compares (``tests/graph/test_stored.py``).
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

import tensortide
from tensortide.graph import Graph, save
from tests.examples.tiny import TINY
from tests.graphs.files import path_of

ROOT = Path(__file__).resolve().parents[1]
A100 = "A100-SXM-80GB"
_GPT2 = {"layers": 2, "hidden": 32, "heads": 2, "seq": 16, "batch": 2, "vocab": 100, "positions": 16}


class Row(NamedTuple):
    """What a stored graph is captured from: an example, or a function of ``tests/graphs/programs.py``."""

    target: str
    settings: Mapping[str, int | float | str | bool] | None = None
    machine: str | None = None
    ranks: int | None = None


def example(name: str, machine: str | None = A100) -> Row:
    """An example at the small settings of its own tests."""
    return Row(name, TINY[name], machine)


def program(name: str, machine: str | None = None, ranks: int | None = None) -> Row:
    """A function of ``programs.py`` at its defaults."""
    return Row(f"tests.graphs.programs:{name}", None, machine, ranks)


ROWS = {
    "accumulated": program("accumulated"),
    "bert": example("bert"),
    "collectives": program("collectives", ranks=4),
    "conditional": program("conditional"),
    "conv": example("resnet18_cifar"),
    "diffusion": example("diffusion"),
    "gpt2": Row("gpt2", _GPT2, A100),
    "gpt2_cpu": Row("gpt2", {**_GPT2, "layers": 3, "seq": 32, "batch": 8, "positions": 32}),
    "hf_gpt2": example("hf_gpt2"),
    "llama": example("llama"),
    "loop": program("loop"),
    "lstm": example("lstm", None),
    "mixed_precision": program("mixed_precision", A100),
    "mixtral": example("mixtral"),
    "mlp": example("mlp", None),
    "mlp_activations": Row("mlp", {"batch": 256, "inputs": 8, "hidden": 32, "classes": 4, "layers": 4}),
    "mlp_a100": Row("mlp", {"batch": 512, "inputs": 64, "hidden": 32, "layers": 4}, A100),
    "recomputed": program("recomputed"),
    "transformer": example("transformer"),
    "two_devices": program("two_devices", A100),
    "two_optimizers": program("two_optimizers"),
    "unet": example("unet"),
    "unrolled_gan": example("unrolled_gan", None),
    "vgg": example("vgg"),
    "vit": example("vit"),
    "word2vec": example("word2vec", None),
}
"""Graphs that are captured."""
EXPRESSIONS = "expressions"
"""A graph whose sizes are expressions: a model of TensorFlow, read from its file."""


def made(name: str) -> Graph:
    """Capture the graph ``name`` anew; lines of its sources are named from the root of the repository."""
    if name == EXPRESSIONS:
        return _expressions()
    row = ROWS[name]
    graph = tensortide.capture(row.target, hyperparameters=row.settings, machine=row.machine, ranks=row.ranks)
    sources = [msgspec.structs.replace(line, file=line.file.removeprefix(f"{ROOT}/")) for line in graph.sources]
    return msgspec.structs.replace(graph, sources=tuple(sources))


def _expressions() -> Graph:
    packed = ROOT / "tests/data/catamount/graphs/simple_example.meta.gz"
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder, packed.stem)
        unpacked.write_bytes(gzip.decompress(packed.read_bytes()))
        return tensortide.open(unpacked).graph


def main() -> None:
    """Write the graphs that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*ROWS, EXPRESSIONS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(names)} (default: all)")
    asked = parser.parse_args().names
    if unknown := sorted({*asked} - {*names}):
        parser.error(f"there is no graph {', '.join(unknown)}: add a row to ROWS")
    for name in asked or names:
        graph = made(name)
        save(graph, path_of(name))
        print(f"{name:20}{len(graph):7,} ops{path_of(name).stat().st_size:9,} bytes")


if __name__ == "__main__":
    main()
