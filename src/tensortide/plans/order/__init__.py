"""Orders of a step that need little memory, and proofs that none needs less."""

from __future__ import annotations
