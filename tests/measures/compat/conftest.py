"""What scripts log."""

from __future__ import annotations

import io
import logging

import pytest


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is logged."""
    text = io.StringIO()
    monkeypatch.setattr(logging.root, "handlers", [logging.StreamHandler(text)])
    monkeypatch.setattr(logging.root, "level", logging.INFO)
    return text
