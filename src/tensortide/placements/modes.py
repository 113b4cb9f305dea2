"""Modes of prediction: the published model with its faults, and the corrected one."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Mode:
    """The corrections that a prediction has; each field is one fault of the originals, corrected where it is True.

    Results carry the ``name`` of their mode, and results of different modes are not to be compared unsaid.

    Examples:
        >>> from dataclasses import replace
        >>> ACCURATE.name, replace(ACCURATE, roofline=False).name, Mode(decimal=True).name
        ('accurate', 'accurate without roofline', 'compat with decimal')
    """

    filter_gradient: bool = False
    """The backward part of a layer computes the gradient of its weights, too."""
    algorithmic: bool = False
    """FLOPs and bytes are those of the arithmetic: no inserted zeros, no padding."""
    inputs_by_graph: bool = False
    """A layer computes no gradient of its data where nothing upstream of it has weights; not where its parent is
    called ``data``."""
    every_layer: bool = False
    """Layers that only move data take the time of their bytes; biases are read; every op has a launch cost and every
    link a latency."""
    training_memory: bool = False
    """Gradients of weights and optimizer state are resident, and so are outputs that nothing reads, until backward."""
    decimal: bool = False
    """A gigabyte of bandwidth is 1e9 bytes, not 2^30."""
    routed: bool = False
    """Full-duplex channels have a queue for each direction, and data find a route where no link leads."""
    update: bool = False
    """The optimizer's update of the weights takes time, after the backward parts."""
    roofline: bool = False
    """Computing and moving data overlap, each with a utilisation of its own; else the two add up, at one."""

    @property
    def name(self) -> str:
        """``compat``, ``accurate``, or the one that it is closer to and what differs."""
        on = [field.name for field in fields(self) if getattr(self, field.name)]
        off = [field.name for field in fields(self) if field.name not in on]
        if len(on) < len(off):
            return f"compat with {', '.join(on)}" if on else "compat"
        return f"accurate without {', '.join(off)}" if off else "accurate"


COMPAT = Mode()
"""The published model, its faults included."""
ACCURATE = Mode(*(True,) * len(fields(Mode)))
"""All corrections: what predictions use unless asked otherwise."""
MODES = {mode.name: mode for mode in (COMPAT, ACCURATE)}
