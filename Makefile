# `make demo` trains on the embedded dataset, `make test` checks everything, `make nightly` what takes long, `make docs`
# builds the documentation.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test nightly docs clean

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

docs: .venv/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --clean
	@echo "Open site/index.html in a browser"

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
