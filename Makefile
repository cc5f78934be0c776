# Each target makes what it needs, from a bare checkout on. PYTHON=/path/to/python3 chooses the interpreter (>= 3.11),
# ARGS="..." goes to pytest (`make test ARGS="tests/unit -x"`), TIER=all runs every test, WORKERS=0 one after the other.
BIN := .venv/bin
RUNTIME := .venv/.runtime
DEV := .venv/.dev
SOURCES := orchestrator agent inventory tests examples bench
ARGS :=
TIER := quick
WORKERS := $(shell nproc)

.PHONY: help demo test test-all check check-style check-types check-imports check-agent format bench picture frameworks clean

help:
	@echo "make demo        one program on two throw-away hosts of this machine"
	@echo "make test        the quick tests (as root on Debian also on virtual hosts; else what needs no root)"
	@echo "make test-all    all tests; takes three to four times as long"
	@echo "make check       style, types, import rules, the agent's oldest Python"
	@echo "make format      let ruff rewrite what it can"
	@echo "make bench       compare with ssh on this machine"
	@echo "make picture     record the README's picture anew (as root)"
	@echo "make frameworks  install torch, paddle, jax and ansible apart (2 GB), so that make test-all runs them too"
	@echo "make clean       remove what these made"

$(RUNTIME): pyproject.toml constraints.txt .ci/venv
	@.ci/venv .venv --constraint constraints.txt --editable .
	@touch $@

$(DEV): $(RUNTIME)
	@.ci/venv .venv --constraint constraints.txt --group dev
	@touch $@

demo: $(RUNTIME)
	$(BIN)/mnspawn --sandbox 2 --nproc-per-node 2 examples/ring.py

test: $(DEV)
	@.ci/system
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --tier $(TIER) $(ARGS)

test-all:
	@$(MAKE) --no-print-directory test TIER=all

check: check-style check-types check-imports check-agent

check-style: $(DEV)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

check-types: $(DEV)
	$(BIN)/mypy

check-imports: $(DEV)
	$(BIN)/lint-imports

check-agent: $(DEV)
	$(BIN)/vermin --target=3.6- --violations --no-tips --eval-annotations --backport typing agent

format: $(DEV)
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

bench: $(DEV)
	@.ci/system
	$(BIN)/python -m bench

picture: $(DEV)
	@.ci/system
	$(BIN)/python -m bench.picture

frameworks:
	@.ci/frameworks

clean:
	rm -rf .venv .venv-torch .venv-paddle .venv-jax .venv-ansible .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
