# `make demo` and `make test` each do everything from a fresh clone: Python, make and git suffice.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
INSTALL := $(PIP) install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test lint types worlds owned unit format wheel check-wheel clean
.PHONY: explore simulate museum mutants mutation parity results

help:
	@echo "make demo    many streaming sessions on the bundled model, live, audited (under 90 s)"
	@echo "make test    ruff, mypy, pyright, pytest on asyncio and trio, coverage of ownership/"
	@echo "make lint | types | worlds | owned | unit    the parts of make test"
	@echo "make format  let ruff rewrite what it can"
	@echo "make explore    every order of events in the larger worlds (minutes)"
	@echo "make simulate   seeded random worlds on virtual time; SEEDS=1..2000"
	@echo "make museum     each public bug report as a scenario; CHECK=1 plants each bug as well"
	@echo "make mutants    plant each bug in a copy; each must be caught"
	@echo "make mutation   a general mutation tool over ownership/"
	@echo "make parity     every family against transformers, as the table in docs/models.md"
	@echo "make results    run again whatever in docs/results is older than the code it measures"
	@echo "make wheel   build dist/*.whl"
	@echo "make check-wheel  the wheel in an empty environment: README's example and the demo"
	@echo "make clean   remove the environment and what the tools left"

# Stamps: a second run installs nothing, a changed pyproject.toml or constraints.txt does.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit("Tenure needs Python 3.11 or later; try make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.created pyproject.toml constraints.txt
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.created pyproject.toml constraints.txt
	$(INSTALL) --editable '.[dev,test]'
	@touch $@ $(VENV)/.run

demo: $(VENV)/.run
	$(BIN)/tenure demo

# Two at once, the longest first: none of the four needs what another one leaves.
test: lint
	+$(MAKE) --no-print-directory --jobs=2 --output-sync=target unit worlds types owned

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m ownership.lint ownership kernel adapters tests

types: $(VENV)/.test
	$(BIN)/mypy
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python

WORLDS := tests/explorer tests/simulation tests/museum tests/oracle

worlds: $(VENV)/.test
	$(BIN)/pytest $(WORLDS)

# Where `ownership/` is covered: a tracer would only slow the others, which look for faults.
OWNED := tests/ownership tests/lint tests/types

owned: $(VENV)/.test
	$(BIN)/coverage run --branch -m pytest $(OWNED)
	$(BIN)/coverage report --include='ownership/*' --fail-under=100

unit: $(VENV)/.test
	$(BIN)/pytest $(WORLDS:%=--ignore=%) $(OWNED:%=--ignore=%)

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

SEEDS ?= 1..2000
explore: $(VENV)/.test
	$(BIN)/python -m kernel.testing explore --world all --progress

simulate: $(VENV)/.test
	$(BIN)/python -m kernel.testing simulate --seeds $(SEEDS) --progress

museum: $(VENV)/.test
	$(BIN)/python -m tests.museum $(if $(CHECK),--check)

mutants: $(VENV)/.test
	$(BIN)/python -m tests.mutants

mutation: $(VENV)/.test
	$(BIN)/python -m tests.mutants.general

parity: $(VENV)/.test
	$(BIN)/python -m tests.results parity

results: $(VENV)/.test
	$(BIN)/python -m tests.results --stale

wheel: $(VENV)/.test
	$(BIN)/python -m build --wheel --no-isolation

# What a user gets: the wheel alone, in an empty environment, away from the checkout.
check-wheel: wheel
	rm -rf .venv-wheel
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt dist/*.whl
	sed -n '/^```python/,/^```/p' README.md | sed '/^```/d' > .venv-wheel/example.py
	cd .venv-wheel && bin/python example.py && bin/tenure demo --json

clean:
	rm -rf $(VENV) .venv-wheel build dist .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
