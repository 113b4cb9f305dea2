"""The cause of a difference in a few sentences: what changed, where, and what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, partial

from tensortide.cost.count import RECOMPUTE
from tensortide.differences import Pair, Values
from tensortide.graph.model import OUTSIDE_PATH, ROOT_PATH
from tensortide.graph.module_paths import ranged
from tensortide.measures.differences.causes import NAMED, Of, alike, culprits, inside, largest, total, unequal
from tensortide.measures.differences.memory import held
from tensortide.measures.differences.side import WHOLE, ModulePair, Side
from tensortide.measures.differences.step import StepDifference
from tensortide.reports.of_differences import change_text, signed_text
from tensortide.reports.of_records import fields
from tensortide.timelines.module_figures import WORDS, ModuleFigures

FIRST = ("flops", "peak_bytes", "parameters", "saved_bytes")
FIGURES = {name: WORDS[name] for name in (*FIRST, *WORDS)}
"""Figures in the order in which a cause is looked for, in words."""
STATED = ("flops", "peak_bytes", "parameters", "time_ns")
"""Those that are always stated."""
UNITS = {name: field.unit for name, field in fields(ModuleFigures).items()}
PERSISTENT = ("parameter", "gradient", "optimizer_state", "buffer")
ROLES = {"optimizer_state": "optimizer state", "temporary": "temporaries", "library": "workspace of libraries"}
MULTIPLES = {"doubled": 2.0, "tripled": 3.0, "quadrupled": 4.0, "halved": 0.5}
SMALL = 0.02
"""Part by which a figure may change without having grown or shrunk."""


def headline(found: StepDifference) -> tuple[str, ...]:
    """Say in one to three sentences what changed and what it costs."""
    known = [name for name in FIGURES if name != "time_ns" or _timed(found)]
    differing = [name for name in known if found.root.values(name).difference]
    if not differing:
        return (_equal(found),)
    return tuple(filter(None, (_cause(found, differing), _at_peak(found), _replaced(found))))


def _timed(found: StepDifference) -> bool:
    """Tell whether the times of all ops are known: stand-ins say nothing of a difference."""
    sides = (found.a.durations, found.b.durations)
    return all(durations is not None and not durations.unknown for durations in sides)


def _equal(found: StepDifference) -> str:
    """Say that nothing differs but names, or sizes that add up to the same."""
    ops, renamed = len(found.b.graph), found.matching.renamed
    text = f"No difference: both have the same {ops:,} ops, sizes and memory"
    if any(pair.own[0] != pair.own[1] for pair in found.root.walk()):
        where = _names([*unequal(found.root)])
        text = f"The totals are equal, of {ops:,} ops each, and the modules are not" + f": {where}" * bool(where)
    if renamed:
        (a, b), several = renamed[0], len(renamed) > 1
        have = f"{len(renamed)} module{'s have' if several else ' has'}"
        text += f"; {have} another name ({a} → {b}{', ...' * several})"
    return f"{text}."


# -- the cause --------------------------------------------------------------------------------------


def _cause(found: StepDifference, differing: Sequence[str]) -> str:
    """Name the cause of the first figure that differs, then all figures that do."""
    causes = "; ".join(filter(None, (*_circumstances(found), _where(found, differing[0]))))
    stated = [name for name in differing if name in (*STATED, differing[0])]
    least = {"flops": "(lower bounds) "} if any(side.unknown_ops for side in found.root.whole) else {}
    figures = [
        f"{FIGURES[name]} {least.get(name, '')}{change_text(found.root.values(name), UNITS[name])}" for name in stated
    ]
    return ". ".join([*filter(None, [causes]), f"Whole step: {', '.join(figures)}."])


def _circumstances(found: StepDifference) -> Iterator[str]:
    """Name the settings, the dtype and the device that differ, and recomputation that one side has alone."""
    one, other = found.a.graph.meta.hyperparameters, found.b.graph.meta.hyperparameters
    changed = [f"{key} {one[key]} → {other[key]}" for key in one if key in other and one[key] != other[key]]
    if changed:
        yield ", ".join(changed[:NAMED]) + f" and {len(changed) - NAMED} more" * (len(changed) > NAMED)
    dtypes = tuple(map(_dtype, (found.a, found.b)))
    if dtypes[0] != dtypes[1] and all(dtypes) and not any(dtypes[1] in text for text in changed):
        yield f"parameters {dtypes[0]} → {dtypes[1]}"
    devices = [side.graph.index.main_device.partition(":")[0] for side in (found.a, found.b)]
    if devices[0] != devices[1]:
        yield f"captured for {devices[0]} → {devices[1]}"
    phase = next((phase for phase in found.phases if phase.name == RECOMPUTE), None)
    if phase is not None and (more := phase.difference).ops:
        a, b = phase.values("ops")
        verb = "recomputes" if b else "no longer recomputes"
        ops = f"{a:,} → {b:,} ops" if a and b else f"{abs(more.ops):,} ops"
        yield f"{found.letters[1]} {verb} {ops}" + f" ({signed_text(more.flops, 'flops')})" * bool(more.flops)


def _dtype(side: Side) -> str:
    """Return the dtype that most bytes of parameters have."""
    sums: Counter[str] = Counter()
    for named in side.graph.named:
        if named.role == "parameter":
            tensor = side.graph.tensors[named.tensor]
            sums[tensor.dtype] += tensor.region_bytes
    return sums.most_common(1)[0][0] if sums else ""


def _where(found: StepDifference, name: str) -> str:
    """Name the modules that the difference of a figure is in, with what became of them."""
    of: Of = partial(Pair.values, name=name)
    if not found.matching.joined:
        return "the models hardly match"
    if alike(found.root, name):
        return "all modules scale alike"
    pairs = culprits(found.root, of)
    if not pairs or pairs == [found.root] or pairs[0].path == ROOT_PATH:
        return _spread(found.root, name, of)
    groups = [[pair for pair in pairs if (of(pair).difference > 0) is grown] for grown in (True, False)]
    groups.sort(key=lambda group: -abs(total(group, of)))
    text = _and([f"{_names(group)} {_became(group, of, FIGURES[name])}" for group in groups if group])
    inner = _mostly(pairs[0], of) if len(pairs) == 1 else ""
    return text + f", mostly {inner}" * bool(inner)


def _spread(root: ModulePair, name: str, of: Of) -> str:
    """Name the modules with the largest parts of a difference that many have."""
    while len(root.children) == 1 or root.path == WHOLE:
        root = largest(root.children, of)[0]
    parts = [part for part in largest(root.children, of)[:NAMED] if of(part).difference]
    listed = [f"{_names(culprits(part, of) or [part])} {signed_text(total([part], of), UNITS[name])}" for part in parts]
    return f"over many modules, the most in {', '.join(listed)}" if listed else ""


def _names(pairs: Sequence[ModulePair]) -> str:
    """Name modules by their paths, those that differ in one number as a range."""
    texts = ranged(["ops outside modules" if pair.path == OUTSIDE_PATH else pair.label for pair in pairs])
    return _and(texts if len(texts) <= NAMED + 1 else [*texts[:NAMED], f"{len(texts) - NAMED} more"])


def _and(texts: Sequence[str]) -> str:
    """Join texts in a sentence."""
    return ", ".join(texts[:-1]) + " and " * (len(texts) > 1) + "".join(texts[-1:])


def _became(pairs: Sequence[ModulePair], of: Of, figure: str) -> str:
    """Say what became of modules in a ``figure``, summed up."""
    before, after = map(sum, zip(*map(of, pairs), strict=True))
    kinds, was = {pair.kind for pair in pairs}, "were" if len(pairs) > 1 else "was"
    if kinds in ({"added"}, {"removed"}):
        return f"{was} {min(kinds)}"
    if not before or not after:
        return f"{'grew' if after else 'shrank'} in {figure}"
    ratio = after / before
    if abs(ratio - 1) < SMALL:
        return f"{was} changed"
    grown = f"grew {ratio:.2f}x" if ratio > 1 else f"shrank to {ratio:.2f}x"
    became = next((words for words, value in MULTIPLES.items() if abs(ratio / value - 1) < SMALL), grown)
    return f"{became} in {figure}"


def _mostly(pair: ModulePair, of: Of) -> str:
    """Name the one or two modules inside that have most of the difference; numbered ones count as one."""
    prefix, shares = inside(pair, of)
    listed = [f"{name} ({share:.0%})" for name, share in shares[:2] if share >= 0.2]
    return _and(listed) * (sum(share for _, share in shares[:2]) >= 0.75) or prefix.rstrip(".")


# -- memory and ops ---------------------------------------------------------------------------------


def _at_peak(found: StepDifference) -> str:
    """Split the difference of the peak by role, and say where the largest part is."""
    whole = found.root.difference.peak_bytes
    if not whole:
        return ""
    sums: Counter[str] = Counter()
    for tensor in found.peak:
        sums[held(tensor).role] += tensor.difference.bytes
    lasting = [ROLES.get(role, f"{role}s") for role in PERSISTENT if sums[role]]
    persistent = sum(sums.pop(role, 0) for role in PERSISTENT)
    parts: list[tuple[str, tuple[str, ...], int]] = [
        *((ROLES.get(role, f"{role}s"), (role,), nbytes) for role, nbytes in sums.items()),
        (_and(lasting), PERSISTENT, persistent),
    ]
    large = [part for part in parts if part[2] and abs(part[2]) >= 0.1 * abs(whole)]
    words, told = [], {""}
    for name, roles, nbytes in sorted(large, key=lambda part: -abs(part[2]))[:NAMED]:
        place = _in_modules(found, roles) if found.matching.joined else ""
        words.append(f"{signed_text(nbytes, 'bytes')} {name}{'' if place in told else place}")
        told.add(place)
    at = [side.phases[side.peak_op : side.peak_op + 1] for side in (found.a, found.b)]
    moved = f"; it moves from {at[0][0]} to {at[1][0]}" if at[0] != at[1] and all(at) else ""
    return f"Peak {signed_text(whole, 'bytes')}{': ' * bool(words)}{', '.join(words)}{moved}."


def _in_modules(found: StepDifference, roles: Sequence[str]) -> str:
    """Name the modules that most of the difference of roles at the peak is in."""
    sums: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for side, own in zip((found.a, found.b), sums, strict=True):
        for one in side.at_peak:
            own[one.module] += one.size_bytes * (one.role in roles)

    @cache
    def of(pair: ModulePair) -> Values:
        mine = [own[node.path] if node else 0 for node, own in zip((pair.a, pair.b), sums, strict=True)]
        return Values(*map(sum, zip(mine, *map(of, pair.children), strict=True)))

    pairs = [pair for pair in culprits(found.root, of) if pair.path not in (WHOLE, ROOT_PATH)]
    if not pairs:
        return ""
    return f" of {_names(pairs)}" if pairs[0].path != OUTSIDE_PATH else " outside all modules"


def _replaced(found: StepDifference) -> str:
    """Name the ops that matched modules gained and lost."""
    if not found.matching.joined:
        return ""
    changes = [one for one in found.ops if OUTSIDE_PATH not in one.modules and one.phase != RECOMPUTE]
    changes = [one for one in changes if one.kind != "changed"]
    costly = [one for one in changes if one.difference.flops or one.difference.accessed_bytes]
    counts: dict[str, Counter[str]] = {"added": Counter(), "removed": Counter()}
    for one in costly or (changes if found.root.difference.accessed_bytes == 0 else ()):
        counts[one.kind][one.op.removeprefix("aten.")] += one.count
    added, removed = counts.values()
    only = {"added": added - removed, "removed": removed - added}
    texts = [f"{side.total():,} {kind} ({_listed(side)})" for kind, side in only.items() if side]
    return f"Ops in matched modules: {' and '.join(texts)}." if texts else ""


def _listed(counts: Counter[str]) -> str:
    most = [f"{name} x{count}" for name, count in counts.most_common(NAMED)]
    return ", ".join(most) + ", ..." * (len(counts) > NAMED)


def ops_without_rule(found: StepDifference) -> str:
    """Say how many ops of each side have no cost rule, so that costs are lower bounds; nothing if all have one."""
    sides = found.root.whole
    counts = " and ".join(
        f"{side.unknown_ops:,} of {side.ops:,} ops of {name}" for side, name in zip(sides, found.letters, strict=True)
    )
    return f"Costs are lower bounds: {counts} have no cost rule." if any(one.unknown_ops for one in sides) else ""
