# make build | test | lint | demo | bench | clean
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# Half of the time a test waits for a process: twice as many workers as cores.
WORKERS := $(shell echo $$(( 2 * $$(nproc) )))

.PHONY: build demo test lint bench clean

build:
	$(PYTHON) build.py

demo: build
	PYTHON=$(PYTHON) tests/demo.sh

# One test at a time to each worker, in conftest.py's order: what waits long by itself is started first.
test: $(VENV)/installed build
	$(RUN) -m pytest -q -n $(WORKERS) --dist load --maxschedchunk 1

lint: $(VENV)/installed
	$(RUN) -m pytest -q tests/test_linters.py tests/test_imports.py

bench: build
	$(PYTHON) tests/bench.py

clean:
	rm -rf dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks
	find rlrun tests build.py -name __pycache__ -prune -exec rm -rf {} +

# The stamp is written last, so an installation that broke off is done again.
$(VENV)/installed: tests/requirements.txt
	$(PYTHON) -m venv --clear $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check -r tests/requirements.txt
	touch $@
