# make report      one GPT-2 training step: report/gpt2.html and report/gpt2.trace.json
# make quick       lint, and the tests of the rooms changed since the last commit (BASE=main: since main) and of those
#                  that import them
# make test        lint, types, layering, sizes of rooms, and the fast tests of all rooms
# make test-all    make test, then everything else: slow tests, properties on 100 examples, frameworks
# make test-slow   the slow tests
# make test-properties   properties alone, on more examples
# make test-frameworks   tests of importers that need JAX, Keras and TensorFlow, in .venv-frameworks
# make test-launches   commands of training stacks, installed in .launches; tests/launches/passed.csv has the last time
#                  that each passed
# make freeze      record what the program answers in tests/frozen.txt; five minutes
# make freeze-compare   print what differs from that, and fail if anything does
# make test-torch VERSION=2.6.0   tests of what depends on PyTorch, on another version of it, in .venv-torch-VERSION
#
# All set up .venv themselves (Python 3.11 or newer) and set it up again when pyproject.toml changes.

SHELL := /bin/bash
BIN := .venv/bin
WORKERS ?= 2

# Workers take neighbouring tests, which share fixtures, and at the end those that others have left.
PYTEST := pytest -n $(WORKERS) --dist worksteal

# Bytecode is kept even where it usually is not: two workers and hundreds of processes would each compile all sources.
unexport PYTHONDONTWRITEBYTECODE

# Types of unchanged files are not checked again, in a fresh clone neither.
export MYPY_CACHE_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tensortide/mypy

# After errors one process checks again, without a cache: on a busy machine workers do not start in time, and a cache
# may hold what follows from another order of imports.
TYPES := $(BIN)/mypy -n $(WORKERS) || $(BIN)/mypy --cache-dir=/dev/null

.PHONY: help report quick test test-all test-slow test-properties test-frameworks test-launches test-torch freeze \
    freeze-compare format clean browser kernels
.DELETE_ON_ERROR:

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

report: .venv/.installed
	mkdir -p report
	$(BIN)/tensortide report gpt2 --set batch=8 --set seq=1024 --html report/gpt2.html --trace report/gpt2.trace.json

quick: .venv/.installed-dev kernels
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python -m scripts.quick $(BASE)

test: .venv/.installed-dev browser kernels
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(TYPES)
	$(BIN)/lint-imports
	$(BIN)/python -m scripts.room_sizes --check
	$(BIN)/$(PYTEST) --cpu-budget=fast
	@test "$(COUNT)" = no || $(BIN)/python -m scripts.slow_tests --count

test-all: test test-properties test-frameworks
	$(BIN)/$(PYTEST) -m "slow and not frameworks" --cpu-budget=slow --cpu-report=.pytest_cache/slow.csv
	$(BIN)/python -m scripts.slow_tests --record .pytest_cache/slow.csv

test-slow: .venv/.installed-dev browser kernels
	$(BIN)/$(PYTEST) -m "slow and not frameworks" --durations 20

test-launches: .venv/.installed-dev .launches/.installed
	$(BIN)/pytest -m launches tests/launches

test-properties: .venv/.installed-dev kernels
	$(BIN)/$(PYTEST) -m "property and not frameworks"

# TensorFlow's builds for the CPU alone are another package.
test-frameworks: .venv-frameworks/.installed
	.venv-frameworks/bin/$(PYTEST) -m frameworks tests/importers

TORCH_TESTS := tests/recorder tests/cost tests/timelines tests/profile tests/run

test-torch: .venv/.created
	@test -n "$(VERSION)" || { echo "name a version of PyTorch: make test-torch VERSION=2.6.0" >&2; exit 2; }
	$(BIN)/python scripts/torch_environment.py $(VERSION)
	.venv-torch-$(VERSION)/bin/python -m pytest $(TORCH_TESTS)

freeze: .venv/.installed-dev kernels
	$(BIN)/python -m scripts.freeze

freeze-compare: .venv/.installed-dev kernels
	$(BIN)/python -m scripts.freeze --compare

format: .venv/.installed-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf report dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# --- setting up ------------------------------------------------------------------------------------

# A .venv that works is kept, whoever made it.
.venv/.created:
	@set -e; \
	new_enough='import sys; sys.exit(sys.version_info < (3, 11))'; \
	if $(BIN)/python -c "$$new_enough" 2>/dev/null && $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	    touch $@; exit 0; \
	fi; \
	for python in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11 python; do \
	    if "$$python" -c "$$new_enough" 2>/dev/null; then \
	        echo "making .venv with $$python ($$("$$python" -V))"; \
	        "$$python" -m venv --clear .venv || { \
	            echo "error: '$$python -m venv .venv' failed; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }; \
	        touch $@; exit 0; \
	    fi; \
	done; \
	echo "error: tensortide needs Python 3.11 or newer and none was found;" \
	     "name one with: make PYTHON=/path/to/python3.11 ..." >&2; exit 1

# A torch that is there is kept. Where there is none it goes first and alone: the build that this machine's pip chooses.
.venv/.installed: pyproject.toml | .venv/.created
	@$(BIN)/python -c 'import torch' 2>/dev/null || { echo "installing torch"; $(BIN)/pip install torch==2.13.0; }
	$(BIN)/pip install --quiet -e ".[torch,transformers,remat,plots]"
	@touch $@

.venv/.installed-dev: pyproject.toml | .venv/.installed
	$(BIN)/pip install --quiet -e ".[torch,transformers,dev]"
	@touch $@

.venv-frameworks/.installed: pyproject.toml | .venv/.created
	@test -x .venv-frameworks/bin/python || $(BIN)/python -m venv .venv-frameworks
	@.venv-frameworks/bin/python -c 'import torch' 2>/dev/null || .venv-frameworks/bin/pip install --quiet torch==2.13.0
	.venv-frameworks/bin/pip install --quiet flax jax keras "onnx>=1.16" onnxruntime optax tensorflow-cpu
	.venv-frameworks/bin/pip install --quiet -e ".[torch,transformers,remat]" expecttest hypothesis protobuf pytest pytest-xdist
	@touch $@

# Without their dependencies, all of which are listed: some would bring another build of PyTorch.
.launches/.installed: tests/launches/requirements.txt | .venv/.created
	rm -rf .launches/site
	$(BIN)/pip install --quiet --no-deps --target .launches/site -r $<
	@touch $@

# Machine code that tests need is compiled before they start: each process would compile it for itself.
kernels: .venv/.installed-dev
	@$(BIN)/python -m tests.kernels

# The HTML report is tested in a real browser. Without one those tests are skipped, or fail where CI=true.
browser: .venv/.installed-dev
	@if $(BIN)/python -c 'import sys; from tests.conftest import find_chromium; sys.exit(find_chromium() is None)'; then \
	    :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "no chromium here: trying apt-get install -y chromium, for the browser tests"; \
	    export DEBIAN_FRONTEND=noninteractive; \
	    { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null \
	        || echo "chromium could not be installed"; \
	else \
	    echo "no chromium here: the browser tests will be skipped (they fail where CI=true)"; \
	fi
