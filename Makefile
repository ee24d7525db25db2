# Every target installs what it needs, so that each works as the only command on a fresh machine.

PYTHON ?= python3
ROUNDS ?= 50
EDITS ?= 3000
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
CODE := farm tests tools docs

# A stamp is newer than pyproject.toml once everything that it asks for is installed.
DEV := $(VENV)/.installed
DEMO := $(VENV)/.installed-demo
DOCS := $(VENV)/.installed-docs
BENCH := $(VENV)/.installed-bench

.PHONY: setup test check bench stress attacks browser demo docs clean

setup: $(DEV)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(DEV): pyproject.toml | $(BIN)/python
	$(INSTALL) -e '.[dev]'
	touch $@

$(DEMO): pyproject.toml | $(BIN)/python
	$(INSTALL) -e '.[demo]'
	touch $@

$(BENCH): pyproject.toml | $(BIN)/python
	$(INSTALL) -e '.[dev,bench]'
	touch $@

$(DOCS): pyproject.toml | $(BIN)/python
	$(INSTALL) -e '.[docs]'
	touch $@

# Side by side on as many processors as there are, up to four: more would want more memory than most machines have.
test: $(DEV)
	$(BIN)/python -m pytest -n logical --maxprocesses 4 --dist worksteal

check: $(DEV)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/python tests/check_types.py
	$(BIN)/python -m pytest tests/test_architecture.py

# What the farm is measured against, side by side; hours for all of it: make bench WHAT="--only targets --rounds 3"
bench: $(BENCH)
	$(BIN)/python tests/bench/run.py $(WHAT)

# The tests of what happens at once, again and again beside busy processes, then random edits and switches: make stress ROUNDS=10
stress: $(DEV)
	$(BIN)/python tests/bench/stress.py --rounds $(ROUNDS) --edits $(EDITS)

# What is done to the store, and to numba's own cache: the table in ARCHITECTURE.md, made again.
attacks: $(DEV)
	$(BIN)/python tests/attacks/run.py --write

# The page that farm.report writes, in a headless Chromium; `make test` does it too where there is one.
browser: $(DEV)
	@command -v chromium || command -v chromium-browser || command -v google-chrome \
	  || { [ "$$(id -u)" = 0 ] && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } \
	  || { echo "make browser needs Chromium: apt-get install chromium"; exit 1; }
	$(BIN)/python tests/browser/check_report.py

demo: $(DEMO)
	$(BIN)/python tools/demo.py

# The pages, in build/docs. Their examples are run by the tests; here a reference that leads nowhere is an error.
docs: $(DOCS)
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet docs build/docs

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
