"""Hyperparameters that change the structure of a step, and not only its sizes: which they are."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from tensortide.formulas.far_settings import generic_from, some_far
from tensortide.formulas.lift import difference
from tensortide.formulas.sampler import Sample, Sampler
from tensortide.formulas.space import SMALL, Setting, Space

_NEAR = 64
"""Values of a hyperparameter that are looked at for a legal one."""


def structural(sampler: Sampler, one: Sample, other: Sample) -> dict[str, str]:
    """The hyperparameters that change more than sizes, and how.

    Small ones are changed one at a time, to the workload's own value too where the step is another one at these; those
    that change nothing then, and large ones, which seldom do, several at once: of any two, each without the other. What
    differs there is changed alone, and what cannot be changed alone with others that only change sizes.
    """
    space, alike = sampler.space, one.skeleton == other.skeleton
    found: dict[str, Sample] = {}
    is_calm = not (alike or space.turns) and _one_alone(sampler, one, other, found)
    tried = {} if alike or space.turns or is_calm else _small_steps(sampler, one, found)
    rest = [name for name in space.over if name not in found]
    same, differ = _same_when_large(sampler, one, rest, is_calm=is_calm)
    if alike and not differ and not space.turns:
        return {}
    bound: list[str] = []
    for name in [name for name in rest if name not in same]:
        sampler.clock.check()
        changed = _changed(sampler, one, name, tried)
        if changed is None:
            bound.append(name)
        elif changed.skeleton != one.skeleton:
            found[name] = changed
    for name in sorted(bound, key=lambda name: name not in space.turns):
        fixed = {n: one.setting[n] for n in found}
        for value in space.candidates(name, one.setting, 4):
            changed = sampler.generic([n for n in space.over if n not in (*found, name)], {**fixed, name: value})
            if value != one.setting[name] and changed is not None:
                if changed.skeleton != one.skeleton:
                    found[name] = changed
                break
    sizes = frozenset(space.over) - found.keys()
    return {
        name: str(difference(one.graph, changed.graph))
        for name, changed in found.items()
        if not _same_where_large(sampler, one, changed, name, sizes)
    }


def missed(sampler: Sampler, sizes: Sequence[str], samples: Sequence[Sample]) -> dict[str, str]:
    """Return those of the ``sizes`` that change more than sizes in one of the ``samples``, and how: what comes with
    every ``every``-th layer is the same for each value of it where there are two layers."""
    found: dict[str, str] = {}
    for one, name in itertools.product(samples, sizes):
        changed = None if name in found else _changed(sampler, one, name, {})
        if changed is not None and changed.skeleton != one.skeleton:
            found[name] = str(difference(one.graph, changed.graph))
    return found


def _changed(sampler: Sampler, one: Sample, name: str, tried: Mapping[str, Sample | None]) -> Sample | None:
    """A capture with another value of a hyperparameter, of another structure if one is found; None if that is
    illegal. ``tried`` are captures with another small value of each."""
    changed = _enlarged(sampler, one, [name])
    if changed is None or changed.skeleton == one.skeleton:
        changed = (tried[name] if name in tried else _stepped(sampler, one, name)) or changed
    return changed or _beside(sampler, one, name)


def _beside(sampler: Sampler, one: Sample, name: str) -> Sample | None:
    """A capture with the nearest legal value of a hyperparameter that leaves no quotient 1, as a divisor of another one
    has few; it counts for nothing else."""
    space, value = sampler.space, one.setting[name]
    near = ({**one.setting, name: n} for n in (*range(value + 1, value + _NEAR), *range(value - 1, 1, -1)))
    setting = next((s for s in near if space.meets(s, space.sides) and not space.undivided(s)), None)
    if setting is None:
        return None
    sample = sampler.at(setting)
    sampler.forget(setting)
    return sample


def _same_where_large(sampler: Sampler, one: Sample, changed: Sample, name: str, sizes: frozenset[str]) -> bool:
    """Return whether the value that a hyperparameter has in ``changed`` leaves the structure as it is where the
    ``sizes`` are large: it may only have made another size 1, as ``heads`` makes that of a head where ``hidden`` is
    small."""
    if changed.setting[name] > one.setting[name] and len(changed.graph) > len(one.graph):
        return False  # no size becomes 1: it repeats something
    space, before = sampler.space, sampler.space.sizes
    space.sizes = sizes
    fixed = {other: value for other, value in one.setting.items() if other not in sizes}
    values = (one.setting[name], changed.setting[name])
    pair = [sampler.generic(sorted(sizes), {**fixed, name: value}, large=True) for value in values]
    space.sizes = before
    return None not in pair and len({sample.skeleton for sample in pair if sample is not None}) == 1


def _one_alone(sampler: Sampler, one: Sample, other: Sample, found: dict[str, Sample]) -> bool:
    """Return whether all that differs in ``other`` but the last small hyperparameter leaves the structure as it is, so
    that this one changes it; it is added to ``found``. Not so if the workload's own sizes make another step."""
    defaults = sampler.space.defaults
    small = [name for name in sampler.space.over if defaults[name] <= SMALL][-1:]
    kept = {name: one.setting[name] for name in small}
    settings = [{**other.setting, **kept}, {**defaults, **kept}]
    for sample in (sampler.at(s) if small and sampler.space.beside(s) else None for s in settings):
        if sample is None or sample.skeleton != one.skeleton:
            return False
    found |= dict.fromkeys(small, other)
    return True


def _small_steps(sampler: Sampler, one: Sample, found: dict[str, Sample]) -> dict[str, Sample | None]:
    """Captures with another value of each small hyperparameter; those that change the structure are added to ``found``.

    Where the step with the workload's own values is another one, these are tried too."""
    defaults = sampler.space.defaults
    tried = {name: _stepped(sampler, one, name) for name in sampler.space.over if defaults[name] <= SMALL}
    found |= {n: changed for n, changed in tried.items() if changed is not None and changed.skeleton != one.skeleton}
    home = sampler.at({**defaults, **{name: one.setting[name] for name in found}}) if tried else None
    if home is not None and home.skeleton != one.skeleton:
        for name in [name for name in tried if name not in found and defaults[name] > 1]:
            changed = sampler.at({**one.setting, name: defaults[name]})
            if changed is not None and changed.skeleton != one.skeleton:
                found[name] = changed
    return tried


def _same_when_large(sampler: Sampler, one: Sample, names: Sequence[str], *, is_calm: bool) -> tuple[set[str], bool]:
    """The hyperparameters that leave the structure as it is where they are large, and whether some did not; ``is_calm``
    if somewhat larger ones are known to leave it."""
    space, same, differ = sampler.space, set[str](), False
    if not is_calm:
        # far above the defaults what repeats something would take long: all are made larger first, by different factors
        setting = _larger(space, one.setting, names)
        larger = sampler.at(setting) if not space.turns and space.beside(setting) else None
        is_calm = larger is not None and larger.skeleton == one.skeleton
    for several, far in some_far(space, names, one.setting, space.sides):
        changed = _aside(sampler, far) if is_calm else None
        sampler.far[several] = far
        if changed is None or changed.skeleton != one.skeleton:
            changed = _enlarged(sampler, one, several)
        if changed is not None and changed.skeleton == one.skeleton:
            same.update(several)
        differ = differ or (changed is not None and changed.skeleton != one.skeleton)
    return same, differ


def _stepped(sampler: Sampler, one: Sample, name: str) -> Sample | None:
    """A capture with another small value of a hyperparameter, the smallest that no other has if possible; None if none
    is legal."""
    known = {sample.setting[name] for sample in sampler.legal}
    value = next((v for v in sampler.space.candidates(name, one.setting, 4) if v not in known), one.setting[name])
    setting = {**one.setting, name: value}
    sample = sampler.at(setting) if sampler.space.beside(setting) and value != one.setting[name] else None
    return sample or sampler.generic([name], one.setting, [one])


def _enlarged(sampler: Sampler, one: Sample, names: Sequence[str]) -> Sample | None:
    """A capture with larger values of ``names`` that counts for nothing else; None if that is illegal."""
    return _aside(sampler, _larger(sampler.space, one.setting, names))


def _larger(space: Space, setting: Setting, names: Sequence[str]) -> Setting:
    """A setting with several times as large values of ``names``, each another number of times."""
    larger = dict(setting)
    for index, name in enumerate(names):
        unit = space.unit(name, larger)
        larger[name] = unit * generic_from((2 + index) * setting[name] // unit)
    return larger


def _aside(sampler: Sampler, setting: Setting) -> Sample | None:
    """A capture that counts for nothing else; None if the setting is illegal or beyond a threshold."""
    sample = sampler.at(setting) if sampler.space.beside(setting) else None
    sampler.forget(setting)
    return sample
