# Each target makes .venv where it is missing; a second call finds the stamp and starts at once.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TORCH := $(shell grep '^torch==' constraints.txt)
PIP := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check

.PHONY: help demo test check install clean

help:  ## say what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## /  make \1\t/' | expand -t 18

demo: $(STAMP)  ## run the whole flywheel small: about 10 minutes on 2 cores
	@$(BIN)/envwheel demo

test: $(STAMP)  ## run the tests
	@$(BIN)/pytest -q

check: $(STAMP)  ## lint, types, import contracts
	@$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

install: $(STAMP)  ## make .venv with the pinned dependencies

clean:  ## remove .venv and caches; runs stay
	@rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(STAMP): pyproject.toml constraints.txt
	@python="$${PYTHON:-}"
	for candidate in $$python python3 python3.11 python3.12 python3.13 python3.14; do
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found="$$candidate"; break; fi
	done
	if [ -z "$${found:-}" ]; then
	  echo "envwheel needs Python 3.11 or newer, and finds none: install it, or say where it is: make PYTHON=/path/to/python3" >&2; exit 1
	fi
	if [ ! -x $(BIN)/python ]; then
	  echo "making $(VENV) with $$("$$found" --version)"
	  "$$found" -m venv $(VENV) || { echo "$$found has no venv module: install it (Debian: apt-get install python3-venv)" >&2; rm -rf $(VENV); exit 1; }
	fi
	echo "installing the pinned dependencies (about two minutes the first time)"
	$(PIP) '$(TORCH)'
	$(PIP) -c constraints.txt hatchling editables
	$(PIP) -c constraints.txt --no-build-isolation -e '.[cpu,dev]'
	touch $(STAMP)
