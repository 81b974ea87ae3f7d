# make build | test | lint | demo | bench | soak | survival | clean
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# A test waits for a process much of its time: three workers to a core.
WORKERS := $(shell echo $$(( 3 * $$(nproc) )))
# What pytest makes of the tests' assertions is kept, or every worker would make it anew.
KEPT := env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX=$(CURDIR)/$(VENV)/pycache

.PHONY: build demo test lint bench soak survival clean

build:
	$(PYTHON) build.py

demo: build
	PYTHON=$(PYTHON) tests/demo.sh

# One test at a time to each worker, in conftest.py's order: what waits long by itself is started first.
test: $(VENV)/installed build
	$(KEPT) $(RUN) -m pytest --collect-only -q tests/e2e >/dev/null & \
	$(KEPT) $(RUN) -m pytest --collect-only -q $(filter-out tests/e2e/,$(wildcard tests/*/ tests/test_*.py)) >/dev/null; wait
	$(KEPT) $(RUN) -m pytest -q -n $(WORKERS) --dist load --maxschedchunk 1

lint: $(VENV)/installed
	$(RUN) -m pytest -q tests/test_linters.py tests/test_imports.py

bench: build
	$(PYTHON) tests/bench.py

# Half an hour; tests/soak.py says what it takes from the environment.
soak: $(VENV)/installed
	nice $(RUN) -m pytest -q -s tests/soak.py

# The table of tested survival, from what its tests have just seen.
survival: $(VENV)/installed
	mkdir -p dist && rm -f dist/survival.jsonl
	SURVIVAL_TABLE=$(CURDIR)/dist/survival.jsonl $(RUN) -m pytest -q -n $(WORKERS) --dist load tests/e2e/test_survival.py $(wildcard tests/e2e/test_cron.py) >&2
	@$(RUN) tests/e2e/survival.py dist/survival.jsonl

clean:
	rm -rf dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks
	find rlrun tests build.py -name __pycache__ -prune -exec rm -rf {} +

# The stamp is written last, so an installation that broke off is done again.
$(VENV)/installed: tests/requirements.txt
	$(PYTHON) -m venv --clear $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check -r tests/requirements.txt
	touch $@
