"""Figures of every verb: the command lines that are asked, and the lines of what they answer."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import tensortide
from scripts.freeze.command import command
from scripts.freeze.lines import Recorder, digest_of
from scripts.freeze.settings import (
    BUDGETS,
    CHEAP,
    CROSSED,
    DATA,
    INPUTS,
    LIMITS,
    PLACE_CLUSTERS,
    SCALE_CLUSTERS,
    SHORT,
    SINGLE,
    Subject,
)
from tensortide.formulas import save_formulas
from tests.formulas.samples import transformer, word_lm

EXPRIMO = DATA / "placement" / "inputs" / "exprimo"
"""Published networks and device graphs."""

TRANSFORMER, WORD_LM = "transformer.formulas.json", "word_lm.formulas.json"
"""Files of formulas."""


class Ask(NamedTuple):
    """A command line of ``verb``, and what its figures are called: ``case``, such as ``gpt2@85%``."""

    verb: str
    case: str
    arguments: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """All of the command line, with the limits of its search."""
        verb = self.verb.split()
        limits = LIMITS.get(self.verb, LIMITS.get(verb[0], ()))
        if self.arguments[:1] in ((TRANSFORMER,), (WORD_LM,)):  # nothing is searched in formulas
            limits = ()
        return (*verb, *self.arguments, *limits)


def record_verbs(into: Recorder, verbs: Collection[str] = ()) -> None:
    """Add the figures of all verbs, or of ``verbs`` and what they need; the current folder takes files."""
    for path in INPUTS.glob("*"):
        shutil.copy(path, path.name)
    for subject in (*CROSSED, SHORT, *SINGLE):
        _answer(into, Ask("capture", subject.name, (subject.example, *subject.options, "-o", f"{subject.name}.tide")))
    for subject in CROSSED:
        step = f"{subject.name}.tide"
        _write_times(step)
        given = (step, "--from", "own_times.csv", "-o", f"{subject.name}.durations.json")
        _answer(into, Ask("time", f"{subject.name}@list", given))
    save_formulas(transformer(), Path(TRANSFORMER))
    save_formulas(word_lm(), Path(WORD_LM))
    asks = [*map(crossed, CROSSED), *map(single, SINGLE), others()]
    for ask in itertools.chain(*asks):
        if not verbs or ask.verb in verbs:
            _answer(into, ask)
    if not verbs:
        _record_files(into)


def _answer(into: Recorder, ask: Ask) -> None:
    found = command(*ask.words)
    into.document(ask.verb.replace(" ", "_"), ask.case, found.document, found.status)


def _write_times(step: str) -> None:
    """Write the committed times of the ops that ``step`` has."""
    names = {op.name for op in tensortide.open(step).graph}
    head, *rows = Path("times.csv").read_text("utf-8").splitlines()
    own = [row for row in rows if row.partition(",")[0] in names]
    Path("own_times.csv").write_text("\n".join([head, *own]), "utf-8")


def crossed(subject: Subject) -> Iterator[Ask]:
    """What is asked about each of ``CROSSED``."""
    name, step = subject.name, f"{subject.name}.tide"
    yield from _seen(name, step)
    yield from _made_to_fit(subject, step)
    yield from _compared(subject, step)
    yield from _replayed(name, step)


def _seen(name: str, step: str) -> Iterator[Ask]:
    yield Ask("report", name, (step,))
    yield Ask("count", name, (step,))
    yield Ask("count", f"{name}@explain", (step, "--explain", "0"))
    yield Ask("count", f"{name}@missing", (step, "--missing"))
    for allocator in ("exact", "cpu", "cuda", "pages"):
        yield Ask("memory", f"{name}@{allocator}", (step, "--allocator", allocator))
    yield Ask("memory", f"{name}@idle", (step, "--idle", "--link", "25GB/s,10us"))
    yield Ask("memory", f"{name}@idle_compat", (step, "--idle", "--mode", "compat"))
    yield Ask("metrics", name, (step, "--layers", "module"))
    yield Ask("time", name, (step,))
    for machine in ("large", "small"):
        yield Ask("time", f"{name}@{machine}", (step, "--machine", f"{machine}.json"))
    yield Ask("draw", name, (step, "-o", f"{name}.svg"))


def _made_to_fit(subject: Subject, step: str) -> Iterator[Ask]:
    name = subject.name
    machine = ("--machine", "small.json")
    for memory in ("100KiB", "1MiB", "10MiB", "100MiB"):
        yield Ask("fit", f"{name}@{memory}", (step, *machine, "--memory", memory))
    if name in CHEAP:
        yield Ask("fit", f"{name}@live", (subject.example, *subject.options, "--memory", "20MiB"))
        yield Ask("plan", f"{name}@policies", (step, "--budget", "75%", "--policies", "all"))
    for cluster, (machine_file, devices) in SCALE_CLUSTERS.items():
        yield Ask("scale", f"{name}@{cluster}", (step, "--machine", machine_file, "--devices", devices))
    for budget in BUDGETS:
        yield Ask("plan", f"{name}@{budget}", (step, "--budget", budget))
    yield Ask("plan", f"{name}@85%+free_order", (step, "--budget", "85%", "--order", "free"))
    for tiers in ("host", "host,ssd"):
        link = ("--host-link", "25GB/s,10us", "--offload", tiers)
        yield Ask("plan", f"{name}@75%+{tiers}", (step, "--budget", "75%", *link))
    yield Ask("plan frontier", name, (step, "--points", "3"))
    yield Ask("plan order", name, (step,))
    for cluster in PLACE_CLUSTERS:
        yield Ask("place", f"{name}@{cluster}", (step, "--machine", f"{cluster}_cluster.json"))
    pipeline = ("--machine", "four_cluster.json", "--micro-batches", "2", "--schedule", "1f1b")
    yield Ask("place", f"{name}@pipeline", (step, *pipeline))
    yield Ask("place", f"{name}@data", (step, "--machine", "pair_cluster.json", "--data", "2"))
    yield Ask("place compare", name, (step, "--machine", "pair_cluster.json"))


def _compared(subject: Subject, step: str) -> Iterator[Ask]:
    name = subject.name
    yield Ask("compare", f"{name}@mlp", (step, "mlp.tide"))
    yield Ask("compare", f"{name}@itself", (step, step, "--threshold", "peak=+2%"))
    rules = ("peak <= 1MiB", "no recomputation", "coverage == 100%", "flops <= 1 MFLOP")
    asked = [word for rule in rules for word in ("--assert", rule)]
    yield Ask("check", name, (step, *asked))
    settings = tuple(f"--set={key}={value}" for key, value in subject.settings.items())
    yield Ask("formulas show", name, (subject.example, *settings, "--symbols", "batch"))


def _replayed(name: str, step: str) -> Iterator[Ask]:
    budgets = ",".join(BUDGETS)
    for budget in BUDGETS:
        yield Ask("remat simulate", f"{name}@{budget}", (step, "--budget", budget))
    yield Ask("remat simulate", f"{name}@lru", (step, "--budget", "85%", "--policy", "lru", "--deallocation", "banish"))
    for verb in ("sweep", "ablation", "banishing", "accesses"):
        yield Ask(f"remat {verb}", name, (step, "--budgets", budgets))
    yield Ask("remat sweep", f"{name}@compat", (step, "--budgets", budgets, "--compat"))


def single(subject: Subject) -> Iterator[Ask]:
    """What is asked about each of ``SINGLE``."""
    name, step = subject.name, f"{subject.name}.tide"
    yield Ask("report", name, (step,))
    yield Ask("count", name, (step,))
    yield Ask("metrics", name, (step,))
    yield Ask("fit", name, (step, "--machine", "small.json", "--memory", "1MiB"))
    yield Ask("remat simulate", name, (step, "--budget", "90%"))
    yield Ask("plan order", name, (step,))
    if name != "unrolled_gan":  # its optimizers step within the backward pass: it cannot be placed
        yield Ask("place", name, (step, "--machine", "pair_cluster.json"))


def others() -> Iterator[Ask]:
    """What is asked about no captured step."""
    model = ("--model", "layers=24,hidden=2048,heads=16", "--batch", "64")
    for cluster, (machine, devices) in SCALE_CLUSTERS.items():
        yield Ask("scale", f"transformer@{cluster}", (*model, "--machine", machine, "--devices", devices))
    divided = ("--machine", "large.json", "--devices", "16", "--zero", "3", "--overlap")
    yield Ask("scale", "transformer@nodes+zero", (*model, *divided))
    yield from _on_formulas()
    yield from _on_nets()
    budgets = ",".join(BUDGETS)
    yield Ask("remat contenders", SHORT.name, (f"{SHORT.name}.tide", "--budgets", budgets))
    yield Ask("remat growth", "linear", ("--sizes", "8,16,32"))
    few = ("--policies", "dtr", "--sizes", "8", "--budgets", "0.9", "--format", "svg")
    yield Ask("remat figures", "short", ("short.tide", "--out", "figures", *few))


def _on_formulas() -> Iterator[Ask]:
    yield Ask("formulas show", "transformer", (TRANSFORMER,))
    yield Ask("formulas sweep", "transformer", (TRANSFORMER, "--over", "hidden=192:3072:*2", "--over", "batch=1,8"))
    yield Ask("formulas solve", "transformer", (TRANSFORMER, "--for", "batch", "--where", "peak_bytes <= 24GiB"))
    yield Ask("formulas solve", "word_lm", (WORD_LM, "--for", "b", "--where", "flops/bytes >= 19.9"))
    yield Ask("formulas growth", "word_lm", (WORD_LM, "--growth", "h", "--set", "s=80"))
    domain = ("--domain", "word_lm", "--growth", "h", "--batch", "b", "--set", "s=80")
    yield Ask("formulas project", "word_lm", (WORD_LM, *domain))


def _on_nets() -> Iterator[Ask]:
    net, server = str(EXPRIMO / "nets/alex_v2.json"), str(EXPRIMO / "device_graphs/malvik-4gpu-reduced-alexnet.json")
    on = ("--machine", server)
    yield Ask("place", "alexnet_net", (net, *on, "--out", "placed.json"))
    yield Ask("place", "alexnet_net@compat", (net, *on, "--compat", "--batches", "2", "--in-flight", "2"))
    yield Ask("place", "resnet50_net", (str(EXPRIMO / "nets/resnet50.json"), *on, "--groups", "block"))
    placements = [f"placement_{number}.json" for number in range(4)]
    yield Ask("place score", "alexnet_net", (net, "placed.json", *placements, *on))
    yield Ask("place compare", "alexnet_net", (net, *on))
    yield Ask("place validate", "alexnet_net", (net, *placements, *on, "--times", "measured.json"))
    config = str(EXPRIMO / "configs/sa-malvik-alexnet.json")
    yield Ask("place run", "alexnet_net", (config, "--out", "configured"))
    yield Ask("place paleo", "alexnet_net", (net,))
    yield Ask("place algorithms", "all", ())
    yield Ask("place examples", "all", ("--out", "examples"))


def _record_files(into: Recorder) -> None:
    """Add digests of files that verbs have written."""
    for path in sorted(Path("examples").iterdir()):
        into.add("place_examples/file", path.stem, digest_of(json.loads(path.read_text("utf-8"))))
    for path in sorted(Path("figures").glob("*.csv")):
        into.add("remat_figures/file", path.stem, digest_of(path.read_text("utf-8")))
    for subject in CROSSED:
        picture = Path(f"{subject.name}.svg").read_text("utf-8")
        drawn = {kind: len(re.findall(f"<{kind} ", picture)) for kind in ("rect", "path", "text")}
        into.facts("draw", subject.name, drawn)
