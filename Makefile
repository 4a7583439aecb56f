# make demo | test | lint | install: each makes .venv first when it is missing or pyproject.toml has changed.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo test lint install clean
export PIP_DISABLE_PIP_VERSION_CHECK := 1

VENV := .venv
PYTHON := $(VENV)/bin/python
OUT ?= outputs/demo
# A worker that dies ends the run at once: the tests of a replaced one may wait for ever.
PYTEST_ARGS ?= -n 2 --dist loadfile --max-worker-restart=0

# The newest Python that can make a virtual environment. The newest JAX needs 3.12; 3.11 is the last resort.
# A name on PATH may be a shim without an interpreter behind it, so each candidate has to prove itself.
define FIND_PYTHON
for version in 3.14 3.13 3.12 3.11; do \
  for candidate in "python$$version" "$$HOME"/.pyenv/versions/"$$version".*/bin/python; do \
    if "$$candidate" -c 'import venv, ensurepip' >/dev/null 2>&1; then echo "$$candidate"; exit 0; fi; \
  done; \
done; \
echo "no Python >= 3.11 with venv and ensurepip found (on Debian: apt install python3-venv)" >&2; exit 1
endef

help:
	@echo "make demo     train the default scheduler, compare it, write $(OUT)"
	@echo "make test     run the whole test suite"
	@echo "make lint     ruff and mypy"
	@echo "make install  make $(VENV) only"
	@echo "make clean    remove $(VENV)"

# pip is tried twice: a registry that hiccups should not cost a user the first minute.
$(VENV)/.installed: pyproject.toml
	@python=$$($(FIND_PYTHON)) && echo "using $$("$$python" --version) ($$python)" && \
	  { test -x $(PYTHON) || "$$python" -m venv --clear $(VENV); }
	@$(PYTHON) -m pip install --quiet --editable ".[dev]" || $(PYTHON) -m pip install --editable ".[dev]"
	@touch $@

install: $(VENV)/.installed

demo: install
	$(PYTHON) -m jaxsched.train --out $(OUT)
	@echo "results: $(OUT)/summary.csv (table), $(OUT)/plots/ (pictures), $(OUT)/checkpoints/ (the trained network)"

test: install
	$(PYTHON) -m pytest $(PYTEST_ARGS)

lint: install
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check --diff .
	$(PYTHON) -m mypy

clean:
	rm -rf $(VENV)
