"""Published transformers by name: the hyperparameters of their configurations, vocabularies padded as trained."""

from __future__ import annotations

_LLAMA = "gated=1,untied=1"
_LLAMA2 = f"{_LLAMA},seq=4096,vocab=32000"
_LLAMA3 = f"{_LLAMA},kv_heads=8,seq=8192,vocab=128256"
_MPT = "seq=2048,vocab=50368"

PUBLISHED = {
    "gpt3-175b": "layers=96,hidden=12288,heads=96,seq=2048,vocab=51200",
    "llama2-7b": f"layers=32,hidden=4096,heads=32,feedforward=11008,{_LLAMA2}",
    "llama2-13b": f"layers=40,hidden=5120,heads=40,feedforward=13824,{_LLAMA2}",
    "llama2-70b": f"layers=80,hidden=8192,heads=64,kv_heads=8,feedforward=28672,{_LLAMA2}",
    "llama3-8b": f"layers=32,hidden=4096,heads=32,feedforward=14336,{_LLAMA3}",
    "llama3-70b": f"layers=80,hidden=8192,heads=64,feedforward=28672,{_LLAMA3}",
    "llama3-405b": f"layers=126,hidden=16384,heads=128,feedforward=53248,{_LLAMA3}",
    "mpt-125m": f"layers=12,hidden=768,heads=12,{_MPT}",
    "mpt-350m": f"layers=24,hidden=1024,heads=16,{_MPT}",
    "mpt-760m": f"layers=24,hidden=1536,heads=12,{_MPT}",
    "mpt-1b": f"layers=24,hidden=2048,heads=16,{_MPT}",
    "mpt-3b": f"layers=32,hidden=2560,heads=20,{_MPT}",
    "mpt-7b": f"layers=32,hidden=4096,heads=32,{_MPT}",
    "mpt-13b": f"layers=40,hidden=5120,heads=40,{_MPT}",
    "mpt-30b": f"layers=48,hidden=7168,heads=56,{_MPT}",
    "mpt-70b": f"layers=80,hidden=8192,heads=64,{_MPT}",
}
"""Settings of each, as ``transformer`` reads them."""
