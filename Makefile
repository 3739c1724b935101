# `make demo` and `make test` set up everything they need on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test lint format docs bench setup clean
.DEFAULT_GOAL := demo

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

demo: $(INSTALLED)
	$(BIN)/python tools/demo.py

test: $(INSTALLED)
	$(BIN)/python tools/tests.py

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --config-file .mkdocs.yml
	@echo "the site is in build/site"

bench: $(INSTALLED)
	$(BIN)/python -m pytest benchmarks -p no:cacheprovider --benchmark-only

clean:
	rm -rf $(VENV) build results *.egg-info .pytest_cache .mypy_cache .ruff_cache
