"""The version of tensortide."""

from __future__ import annotations

VERSION = "0.1.0"
