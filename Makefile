# make demo | test | lint | install: each makes .venv first when it is missing or pyproject.toml has changed.
# make test-oldest does the same with .venv-oldest.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo test test-oldest lint install clean
export PIP_DISABLE_PIP_VERSION_CHECK := 1

VENV := .venv
PYTHON := $(VENV)/bin/python
OLDEST := .venv-oldest/bin/python
OUT ?= outputs/demo
# A worker that dies ends the run at once: the tests of a replaced one may wait for ever.
PYTEST_ARGS ?= -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart=0
# The part of the suite that the oldest versions are held to: the simulator's cases, parity on a few placements, a
# small training run with its checkpoints, interrupted and resumed.
QUICK_TESTS := tests/sim/test_cases.py tests/policies/test_parity.py tests/runs/test_course.py
QUICK := test_sim or 3-best_fit or 3-fgd or spt_pair or agreed or never_stopped

# The newest Python that can make a virtual environment. The newest JAX needs 3.12; 3.11 is the last resort.
# A name on PATH may be a shim without an interpreter behind it, so each candidate has to prove itself.
define FIND_PYTHON
for version in $(1); do \
  for candidate in "python$$version" "$$HOME"/.pyenv/versions/"$$version".*/bin/python; do \
    if "$$candidate" -c 'import venv, ensurepip' >/dev/null 2>&1; then echo "$$candidate"; exit 0; fi; \
  done; \
done; \
echo "no Python of $(1) with venv and ensurepip found (on Debian: apt install python3-venv)" >&2; exit 1
endef

help:
	@echo "make demo     train the default scheduler, compare it, write $(OUT)"
	@echo "make test     run the whole test suite"
	@echo "make test-oldest   a quick part of it, on Python 3.11 with the oldest versions that are promised"
	@echo "make lint     ruff and mypy"
	@echo "make install  make $(VENV) only"
	@echo "make clean    remove both environments"

# uv resolves and unpacks in seconds; where it cannot be had, pip does the same more slowly.
define INSTALL
{ $(1) -m pip install --quiet uv && $(1) -m uv pip install --quiet --python $(1) --editable ".[dev]"; } || \
  $(1) -m pip install --editable ".[dev]"
endef

$(VENV)/.installed: pyproject.toml
	@python=$$($(call FIND_PYTHON,3.14 3.13 3.12 3.11)) && echo "using $$("$$python" --version) ($$python)" && \
	  { test -x $(PYTHON) || "$$python" -m venv --clear $(VENV); }
	@$(call INSTALL,$(PYTHON))
	@touch $@

install: $(VENV)/.installed

demo: install
	$(PYTHON) -m jaxsched.train --out $(OUT)
	@echo "results: $(OUT)/summary.csv (table), $(OUT)/plots/ (pictures), $(OUT)/checkpoints/ (the trained network)"

test: install
	$(PYTHON) -m pytest $(PYTEST_ARGS)

# The lowest versions that pyproject.toml promises, of what it names itself.
.venv-oldest/.installed: pyproject.toml
	@python=$$($(call FIND_PYTHON,3.11)) && "$$python" -m venv --clear .venv-oldest
	@$(OLDEST) -m pip install --quiet uv
	@$(OLDEST) -m uv pip install --quiet --python $(OLDEST) --resolution lowest-direct --editable ".[dev]"
	@touch $@

test-oldest: .venv-oldest/.installed
	$(OLDEST) -m pytest $(PYTEST_ARGS) $(QUICK_TESTS) -k "$(QUICK)"

lint: install
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check --diff .
	$(PYTHON) -m mypy

clean:
	rm -rf $(VENV) .venv-oldest
