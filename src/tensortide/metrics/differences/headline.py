"""The cause of a difference in a few sentences: what changed, where, and what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from tensortide.cost.count import RECOMPUTE
from tensortide.metrics.differences.changes import change_text, signed
from tensortide.metrics.differences.join import Pair
from tensortide.metrics.differences.paths import folded
from tensortide.metrics.differences.side import OUTSIDE, Amounts, Side
from tensortide.metrics.differences.step import StepDifference
from tensortide.units import format_bytes, format_count, format_seconds

MOST = 0.75
"""Share of a difference that a module must have for the search for its cause to go on inside it."""
NAMED = 3
"""Most modules that are named as a cause."""
APART = 0.5
"""The modules that are named as a cause have each twice as much of the difference as any other."""
ALIKE = 0.2
"""Modules scale alike if their changes differ from that of the whole by no more than this part of it."""

SMALL = 0.02
"""Part by which a figure may change without having grown or shrunk."""

Values: TypeAlias = Callable[[Pair], tuple[int, int]]
"""A figure of a pair with the modules inside it, on both sides."""


class _Figure(NamedTuple):
    """A figure of Amounts in a sentence."""

    key: str
    title: str
    text: Callable[[float], str]

    def of(self, pair: Pair) -> tuple[int, int]:
        """Return it on both sides."""
        return getattr(pair.whole[0], self.key), getattr(pair.whole[1], self.key)


FIGURES = (
    _Figure("flops", "FLOPs", lambda n: format_count(n, "FLOP")),
    _Figure("peak", "peak memory", format_bytes),
    _Figure("parameters", "parameters", format_count),
    _Figure("saved", "saved activations", format_bytes),
    _Figure("bytes", "bytes accessed", format_bytes),
    _Figure("ops", "ops", lambda n: f"{n:,}"),
    _Figure("time", "time of the ops", lambda n: format_seconds(n / 1e9)),
)
"""Figures in the order in which a cause is looked for; the first four are always stated."""
STATED = ("flops", "peak", "parameters", "time")


def headline(found: StepDifference) -> tuple[str, ...]:
    """Say in one to three sentences what changed and what it costs."""
    differing = [one for one in FIGURES if _changed(one.of(found.root)) and (one.key != "time" or _timed(found))]
    if not differing:
        return (_equal(found),)
    return tuple(filter(None, (_cause(found, differing[0]), _at_peak(found), _replaced(found))))


def _timed(found: StepDifference) -> bool:
    """Tell whether the times of all ops are known: stand-ins say nothing of a difference."""
    sides = (found.a.durations, found.b.durations)
    return all(durations is not None and not durations.unknown for durations in sides)


def _equal(found: StepDifference) -> str:
    """Say that nothing differs but names, or sizes that add up to the same."""
    ops, renamed = len(found.b.graph), found.matching.renamed
    text = f"No difference: both have the same {ops:,} ops, sizes and memory"
    if any(pair.own[0] != pair.own[1] for pair in found.root.walk()):
        where = _names([*_unequal(found.root)])
        text = f"The totals are equal, of {ops:,} ops each, and the modules are not" + f": {where}" * bool(where)
    if renamed:
        (a, b), more = renamed[0], len(renamed) - 1
        text += (
            f"; {len(renamed)} module{'s have' if more else ' has'} another name ({a} → {b}{', ...' if more else ''})"
        )
    return f"{text}."


def _unequal(root: Pair) -> Iterator[Pair]:
    """Yield the outermost modules whose figures, with those of the modules inside, differ."""
    if root.whole[0] != root.whole[1]:
        yield root
    else:
        for child in root.children:
            yield from _unequal(child)


# -- the cause --------------------------------------------------------------------------------------


def _cause(found: StepDifference, first: _Figure) -> str:
    """Name the cause of the first figure that differs, then all figures that do."""
    why = "; ".join(_circumstances(found))
    where = _where(found, first)
    figures = ", ".join(_stated(found, first))
    return ": ".join(filter(None, ("; ".join(filter(None, (why, where))), figures))) + "."


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
    phase = next((group for group in found.phases if group.name == RECOMPUTE), None)
    if phase is not None and (more := phase.difference).ops:
        ops = f"{phase.a.ops:,} → {phase.b.ops:,} ops" if phase.a.ops and phase.b.ops else f"{abs(more.ops):,} ops"
        verb = "recomputes" if phase.b.ops else "no longer recomputes"
        yield f"{found.letters[1]} {verb} {ops} ({signed(more.flops, _count)})"


def _count(value: float) -> str:
    return format_count(value, "FLOP")


def _dtype(side: Side) -> str:
    """Return the dtype that most bytes of parameters have."""
    sums: Counter[str] = Counter()
    for named in side.graph.named:
        if named.role == "parameter":
            tensor = side.graph.tensors[named.tensor]
            sums[tensor.dtype] += tensor.region_bytes
    return sums.most_common(1)[0][0] if sums else ""


def _where(found: StepDifference, figure: _Figure) -> str:
    """Name the modules that the difference of ``figure`` is in, with what became of them."""
    if not found.matching.joined:
        return "the models hardly match"
    if _alike(found.root, figure):
        return "all modules scale alike"
    pairs = culprits(found.root, figure.of)
    if not pairs or pairs == [found.root] or not pairs[0].path:
        return _spread(found.root, figure)
    more, less = ([pair for pair in pairs if (_sum((pair,), figure.of) > 0) is grown] for grown in (True, False))
    groups = [less, more] if abs(_sum(less, figure.of)) > _sum(more, figure.of) else [more, less]
    text = _and([f"{_names(group)} {_became(group, figure.of)}" for group in groups if group])
    if len(pairs) == 1 and (inner := _largest(pairs[0], figure.of)):
        text += f", mostly {inner}"
    return text


def culprits(root: Pair, of: Values) -> list[Pair]:
    """Find the modules that a difference is in: into the one with most of it, as long as there is one; then the few
    inside it that have most of it together, unless they are most of it anyway. Modules that were added, or removed, are
    the cause if they have most of it, however many there are. Empty if it is spread over many."""
    if root.kind in ("added", "removed"):
        return [root]
    before, after = of(root)
    whole, parts = after - before, _parts(root, of)
    for kind in ("added", "removed"):
        alone = [pair for pair in _outermost(root, kind) if _sum((pair,), of)]
        if alone and _apart(root, alone, of) <= (1 - MOST) * abs(whole):
            return alone
    for count in range(1, min(NAMED, len(parts)) + 1 if whole else 0):
        chosen = parts[:count]
        apart = count == len(parts) or abs(_sum(parts[count:][:1], of)) < APART * abs(_sum(chosen[-1:], of))
        if apart and _sum(chosen, of) / whole >= MOST and not _whole(root, chosen, of):
            return [inner for pair in chosen for inner in (culprits(pair, of) or [pair])]
    return [] if root.path in ("", "(step)") else [root]


def _apart(root: Pair, alone: Sequence[Pair], of: Values) -> int:
    """Sum the differences of modules but ``alone``, whatever their sign."""
    if root in alone:
        return 0
    own = _sum((root,), of) - _sum(root.children, of)
    return abs(own) + sum(_apart(child, alone, of) for child in root.children)


def _outermost(root: Pair, kind: str) -> Iterator[Pair]:
    """Yield the modules of a kind that stand in none of this kind."""
    for child in root.children:
        if child.kind == kind:
            yield child
        else:
            yield from _outermost(child, kind)


def _parts(root: Pair, of: Values) -> list[Pair]:
    """List the modules inside one that have part of a difference, the largest part first."""
    return sorted((child for child in root.children if _sum((child,), of)), key=lambda one: -abs(_sum((one,), of)))


def _spread(root: Pair, figure: _Figure) -> str:
    """Name the modules with the largest parts of a difference that many have."""
    while len(root.children) == 1 or root.path == "(step)":
        root = max(root.children, key=lambda one: abs(_sum((one,), figure.of)))
    parts = sorted(root.children, key=lambda one: -abs(_sum((one,), figure.of)))[:NAMED]
    sums = [(culprits(part, figure.of) or [part], _sum((part,), figure.of)) for part in parts]
    listed = [f"{_names(inside)} {signed(value, figure.text)}" for inside, value in sums if value]
    return f"over many modules, the most in {', '.join(listed)}" if listed else ""


def _whole(root: Pair, parts: Sequence[Pair], of: Values) -> bool:
    """True if ``parts`` are several, and nearly all that ``root`` was: it changed as a whole."""
    most = sum(of(pair)[0] for pair in parts) > 0.9 * of(root)[0] > 0
    return bool(len(parts) > 1 and most)


def _sum(pairs: Sequence[Pair], of: Values) -> int:
    return sum(of(pair)[1] - of(pair)[0] for pair in pairs)


def _names(pairs: Sequence[Pair]) -> str:
    """Name modules by their paths, those that differ in one number as a range."""
    texts = folded(["ops outside modules" if pair.path == OUTSIDE else pair.label for pair in pairs])
    return _and(texts if len(texts) <= NAMED + 1 else [*texts[:NAMED], f"{len(texts) - NAMED} more"])


def _and(texts: Sequence[str]) -> str:
    """Join texts in a sentence."""
    return ", ".join(texts[:-1]) + " and " * (len(texts) > 1) + "".join(texts[-1:])


def _became(pairs: Sequence[Pair], of: Values) -> str:
    """Say what became of a figure of modules, summed up."""
    before, after = (sum(of(pair)[side] for pair in pairs) for side in (0, 1))
    kinds = {pair.kind for pair in pairs}
    was = "were" if len(pairs) > 1 else "was"
    if kinds in ({"added"}, {"removed"}):
        return f"{was} {min(kinds)}"
    if not before or not after:
        return f"{'grew' if after else 'shrank'}"
    ratio = after / before
    if abs(ratio - 1) < SMALL:
        return f"{was} changed"
    for words, value in (("doubled", 2.0), ("tripled", 3.0), ("quadrupled", 4.0), ("halved", 0.5)):
        if abs(ratio / value - 1) < 0.02:
            return words
    return f"grew {ratio:.2f}x" if ratio > 1 else f"shrank to {ratio:.2f}x"


def _largest(pair: Pair, of: Values) -> str:
    """Name the one or two modules inside that have most of the difference; numbered ones count as one."""
    whole, inside, prefix = _sum((pair,), of) or 1, [pair], ""
    while (ordered := _named_parts(inside, of)) and _sum(ordered[0][1], of) / whole >= MOST:
        name, inside = ordered[0]
        prefix += f"{name}." if name else ""
    shares = [(prefix + name, _sum(some, of) / whole) for name, some in ordered[:2] if name]
    listed = [f"{name} ({share:.0%})" for name, share in shares if share >= 0.2]
    return _and(listed) * (sum(share for _, share in shares) >= MOST) or prefix.rstrip(".")


def _named_parts(inside: Sequence[Pair], of: Values) -> list[tuple[str, list[Pair]]]:
    """Group the modules inside several by name, numbered ones together; the largest part of a difference first."""
    groups: dict[str, list[Pair]] = {}
    for child in (child for one in inside for child in one.children):
        groups.setdefault("" if child.name.isdigit() else child.name, []).append(child)
    return sorted(groups.items(), key=lambda group: -abs(_sum(group[1], of)))


def _alike(root: Pair, figure: _Figure) -> bool:
    """True if nearly all of the figure is in modules that scale like the whole."""
    a, b = figure.of(root)
    if not a or not b:
        return False
    own = [(getattr(pair.own[0], figure.key), getattr(pair.own[1], figure.key)) for pair in root.walk()]
    close = sum(x for x, y in own if x and abs(y / x - b / a) <= ALIKE * min(abs(b / a - 1), b / a))
    return bool(close >= 0.9 * a)


# -- figures ----------------------------------------------------------------------------------------


def _stated(found: StepDifference, first: _Figure) -> Iterator[str]:
    for figure in FIGURES:
        before, after = figure.of(found.root)
        timed = figure.key != "time" or _timed(found)
        if figure.key in (*STATED, first.key) and timed and _changed((before, after)):
            least = figure.key == "flops" and any(side.unknown for side in found.root.whole)
            yield f"{figure.title} {'(lower bounds) ' * least}{change_text(before, after, figure.text)}"


def _changed(values: tuple[int, int]) -> bool:
    return values[0] != values[1]


# -- memory and ops ---------------------------------------------------------------------------------

PERSISTENT = ("parameter", "gradient", "optimizer_state", "buffer")
WORDS = {"optimizer_state": "optimizer state", "activation": "activations", "temporary": "temporaries"}


def _at_peak(found: StepDifference) -> str:
    """Split the difference of the peak by role, and say where the largest part is."""
    whole = found.root.difference.peak
    if not whole:
        return ""
    sums: Counter[str] = Counter()
    for tensor in found.peak:
        sums[tensor.held.role] += tensor.difference
    held = [WORDS.get(role, f"{role}s") for role in PERSISTENT if sums[role]]
    persistent = sum(sums.pop(role, 0) for role in PERSISTENT)
    parts = [(WORDS.get(role, f"{role}s"), role, value) for role, value in sums.items() if value]
    parts += [(_and(held), "", persistent)] * bool(persistent)
    parts.sort(key=lambda part: -abs(part[2]))
    large = [part for part in parts if abs(part[2]) >= 0.1 * abs(whole)][:NAMED]
    places = [_in_module(found, role) if found.matching.joined else "" for _, role, _ in large]
    places = ["" if place in places[:n] else place for n, place in enumerate(places)]
    words = [f"{signed(n, format_bytes)} {name}{at}" for (name, _, n), at in zip(large, places, strict=True)]
    moved = found.a.phases[found.a.peak_op : found.a.peak_op + 1], found.b.phases[found.b.peak_op : found.b.peak_op + 1]
    text = f"Peak {signed(whole, format_bytes)}: {', '.join(words)}" if words else f"Peak {signed(whole, format_bytes)}"
    return (
        text + (f"; it moves from {moved[0][0]} to {moved[1][0]}" if moved[0] != moved[1] and all(moved) else "") + "."
    )


def _in_module(found: StepDifference, role: str) -> str:
    """Name the modules that most of the difference of a role at the peak is in."""
    roles = (role,) if role else PERSISTENT
    own: list[Counter[str]] = [Counter(), Counter()]
    for side, sums in zip((found.a, found.b), own, strict=True):
        for held in side.at_peak:
            if held.role in roles:
                sums[held.module] += held.nbytes

    def of(pair: Pair) -> tuple[int, int]:
        if pair not in known:
            sides = ((pair.a, own[0]), (pair.b, own[1]))
            mine = [sums[node.path] if node else 0 for node, sums in sides]
            inner = [of(child) for child in pair.children]
            known[pair] = mine[0] + sum(a for a, _ in inner), mine[1] + sum(b for _, b in inner)
        return known[pair]

    known: dict[Pair, tuple[int, int]] = {}
    pairs = [pair for pair in culprits(found.root, of) if pair.path not in ("(step)", "")]
    if not pairs:
        return ""
    return f" of {_names(pairs)}" if pairs[0].path != OUTSIDE else " outside all modules"


def _replaced(found: StepDifference) -> str:
    """Name the ops that matched modules gained and lost."""
    if not found.matching.joined:
        return ""
    counts: dict[str, Counter[str]] = {"added": Counter(), "removed": Counter()}
    inside = [one for one in found.ops if one.module != OUTSIDE and one.phase != RECOMPUTE and one.kind != "resized"]
    costly = [one for one in inside if one.flops or one.bytes]
    for change in costly or (inside if found.root.difference.bytes == 0 else ()):
        counts[change.kind][change.op.removeprefix("aten.")] += change.count
    for name in counts["added"].keys() & counts["removed"].keys():
        both = min(counts["added"][name], counts["removed"][name])
        for side in counts.values():
            side[name] -= both
    texts = [f"{side.total():,} {kind} ({_listed(+side)})" for kind, side in counts.items() if (+side).total()]
    return f"Ops in matched modules: {' and '.join(texts)}." if texts else ""


def _listed(counts: Counter[str]) -> str:
    most = [f"{name} x{count}" for name, count in counts.most_common(NAMED)]
    return ", ".join(most) + ", ..." * (len(counts) > NAMED)


def ops_without_rule(found: StepDifference) -> str:
    """Say how many ops of each side have no cost rule, so that costs are lower bounds; nothing if all have one."""
    sides: tuple[Amounts, Amounts] = found.root.whole
    if not any(side.unknown for side in sides):
        return ""
    counts = " and ".join(
        f"{side.unknown:,} of {side.ops:,} ops of {name}" for side, name in zip(sides, found.letters, strict=True)
    )
    return f"Costs are lower bounds: {counts} have no cost rule."
