# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
READY   = $(VENV)/.ready
JOBS   ?= 2
PYTEST  = $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile

.PHONY: setup demo test test-all coverage bench lint docs clean
setup: $(READY)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "bitfleet needs Python 3.11 or newer; found: $$($(PYTHON) --version). Try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY)
	$(BIN)/bitfleet demo --dest demo-run --force

test: $(READY)
	$(PYTEST) -m "not long"

test-all: $(READY)
	$(PYTEST)

coverage: $(READY)
	$(BIN)/coverage erase
	COVERED="$(CURDIR)" COVERAGE_FILE="$(CURDIR)/.coverage" COVERAGE_PROCESS_START="$(CURDIR)/pyproject.toml" \
		$(PYTEST) -m "not long"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --sort=cover

bench: $(READY)
	$(BIN)/python benchmarks/run.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@mkdir -p .typing && ln -sfn "$(CURDIR)" .typing/bitfleet
	MYPYPATH=.typing $(BIN)/mypy -p bitfleet
	$(BIN)/lint-imports

docs: $(READY)
	$(BIN)/mkdocs build --strict --quiet
	@echo build/site/index.html

clean:
	rm -rf $(VENV) .typing demo-run build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
