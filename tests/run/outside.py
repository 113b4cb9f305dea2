"""Memory of a process as it looks from outside: every byte of the heap, counted by a library that is loaded before
the C library, and the pages that the system has given it.

The library sees what PyTorch's allocators do not: other libraries' buffers, and the interpreter's own objects if
``PYTHONMALLOC=malloc``. It needs Linux with glibc, and a C compiler.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = r"""
#include <errno.h>
#include <malloc.h>
#include <stddef.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);
static long now, most;

static long size(void *p) { return p ? (long)malloc_usable_size(p) : 0; }

static void add(long n) {
  long at = __atomic_add_fetch(&now, n, __ATOMIC_RELAXED), top = __atomic_load_n(&most, __ATOMIC_RELAXED);
  while (at > top && !__atomic_compare_exchange_n(&most, &top, at, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

static void *made(void *p) {
  add(size(p));
  return p;
}

long heap_bytes(void) { return __atomic_load_n(&now, __ATOMIC_RELAXED); }
long heap_peak(void) { return __atomic_load_n(&most, __ATOMIC_RELAXED); }
void heap_reset(void) { __atomic_store_n(&most, heap_bytes(), __ATOMIC_RELAXED); }

void *malloc(size_t n) { return made(__libc_malloc(n)); }
void *calloc(size_t n, size_t m) { return made(__libc_calloc(n, m)); }
void *memalign(size_t a, size_t n) { return made(__libc_memalign(a, n)); }
void *aligned_alloc(size_t a, size_t n) { return made(__libc_memalign(a, n)); }
void *valloc(size_t n) { return made(__libc_memalign(4096, n)); }

int posix_memalign(void **out, size_t a, size_t n) {
  void *p = made(__libc_memalign(a, n));
  if (p) *out = p;
  return p ? 0 : ENOMEM;
}

void *realloc(void *p, size_t n) {
  long before = size(p);
  void *q = __libc_realloc(p, n);
  if (q || !n) add(size(q) - before);
  return q;
}

void free(void *p) {
  int error = errno;
  add(-size(p));
  __libc_free(p);
  errno = error;
}
"""


def watching() -> dict[str, str]:
    """Environment of a process that is watched; empty where that is not possible."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        return {}
    name = f"tensortide-heap-{hashlib.sha256(SOURCE.encode()).hexdigest()[:16]}.so"
    library = Path(tempfile.gettempdir()) / name
    if not library.exists():
        with tempfile.TemporaryDirectory() as folder:
            source, made = Path(folder) / "heap.c", Path(folder) / name
            source.write_text(SOURCE)
            subprocess.run([compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(made)], check=True)
            shutil.move(made, library)
    return {"LD_PRELOAD": str(library), "PYTHONMALLOC": "malloc"}


class Heap:
    """The heap of this process, if it is watched."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        for name in ("heap_bytes", "heap_peak"):
            getattr(self._library, name).restype = ctypes.c_long

    @staticmethod
    def counted() -> bool:
        """True if this process is watched."""
        return hasattr(ctypes.CDLL(None), "heap_bytes")

    def reset(self) -> int:
        """Begin anew; return the bytes in use."""
        self._library.heap_reset()
        return int(self._library.heap_bytes())

    @property
    def peak(self) -> int:
        """Most bytes in use at once since ``reset``."""
        return int(self._library.heap_peak())


class Pages:
    """The pages of this process, as the system counts them."""

    def reset(self) -> int:
        """Give free memory back and begin anew; return the bytes that are left."""
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        return self._read("VmRSS")

    @property
    def peak(self) -> int:
        """Most bytes at once since ``reset``."""
        return self._read("VmHWM")

    def _read(self, field: str) -> int:
        found = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
        assert found is not None
        return int(found[1]) << 10
