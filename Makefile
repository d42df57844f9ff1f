# `make demo` trains on the embedded dataset, `make test` checks everything, `make nightly` what takes long, `make coverage`
# and `make mutants` how much the tests notice, `make docs` builds the documentation, `make notebooks` the notebooks.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# The rooms that `make coverage` measures, and the tests that run them.
COVERED := geometry points ops nn engine data
COVERING := $(COVERED) testing tasks

.PHONY: demo test nightly coverage mutants docs notebooks clean

demo: .venv/.installed
	$(BIN)/hkconv train

test: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python -m pytest -n auto --dist worksteal

nightly: .venv/.installed-dev
	$(BIN)/python -m pytest -n auto --dist worksteal -m nightly

coverage: .venv/.installed-dev
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n auto --dist worksteal $(COVERING:%=tests/%)
	$(BIN)/coverage combine --quiet
	for room in $(COVERED); do $(BIN)/coverage report --include="hkconv/$$room/*" || exit; done

# make mutants ROOM=geometry, ROOM=hkconv/engine/optimizer.py or BASE=HEAD~3; without either, what is not committed
mutants: .venv/.installed-dev
	$(BIN)/python tests/mutants.py $(ROOM) $(if $(BASE),--base $(BASE)) --count $(or $(COUNT),50)

docs: .venv/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --clean
	@echo "Open site/index.html in a browser"

# examples/NAME.ipynb of every script with cells
notebooks: .venv/.installed-dev
	$(BIN)/jupytext --quiet --to ipynb --update --set-kernel python3 $$(grep -l '^# %%' examples/*.py)

clean:
	rm -rf .venv site

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "hkconv needs Python 3.11 or newer; try: make demo PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv .venv

.venv/.installed: .venv/bin/python pyproject.toml constraints.txt
	@echo "Installing hkconv and its dependencies into .venv (a few minutes the first time)"
	$(PIP) -e .
	@touch $@

.venv/.installed-dev: .venv/.installed
	$(PIP) -e '.[dev,molecules,search,postgresql,translate,bibert,viz,parquet,serve,onnx,hub,docs]'
	@touch $@
