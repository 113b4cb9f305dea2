"""Does a step fit a device, how fast is it there, what dominates its memory, and what would make it fit.

``verdict`` answers the first three from one Graph. ``fit`` captures the step again, with changes, for the rest.
"""

from __future__ import annotations

from tensortide.studies.fit.results import Fit
from tensortide.studies.fit.study import fit
from tensortide.studies.fit.subject import Subject
from tensortide.studies.fit.verdict import OnDevice, Verdict, verdict

__all__ = ["Fit", "OnDevice", "Subject", "Verdict", "fit", "verdict"]
