# The two commands of the README are `make demo` and `make test`. Each sets up all it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# pip compiles on one core. What nothing here imports is left out: it is compiled should that change. A file
# that does not compile is for another Python.
COMPILE = $(BIN)/python -m compileall -qq -j 2 \
	-x '/(tests|databricks|mypyc?|torchgen|_inductor)/|/torch/(onnx|testing)/|/pyspark/(ml|pandas)/' \
	$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') src || true

.PHONY: setup demo browser test fast quick test-all lint docs package vectors bench pictures clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Lapwing needs Python 3.11 or newer: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev]'
	$(COMPILE)
	touch $(READY)

demo: $(READY)
	$(BIN)/lapwing demo
	@echo 'The same in a browser: $(BIN)/lapwing demo --serve'

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The tests answer surveys in a real browser: Debian's, unless a chromium is on the path.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { \
		echo "Installing chromium, which the tests need"; \
		$$(test "$$(id -u)" = 0 || echo sudo) sh -c 'apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium >/dev/null'; }

# Many tests start programs, which must not be compiled anew each time.
fast quick test-all: export PYTHONDONTWRITEBYTECODE =

# Tests wait for processes a fifth of the time: mypy has that.
test: $(READY) browser
	@$(MAKE) --no-print-directory -j 2 lint fast

# Four workers on two cores: many tests wait for processes. A worker costs 8 seconds of computing to import what
# tests import, and up to 2 GB. Each takes a part of the tests that lie together, so that a browser or Spark is
# mostly started once.
fast:
	$(BIN)/pytest -n 4 --dist worksteal -m 'not slow'

# While you work: the tests of one part (`make quick PART=sql/pricing`), and those of the shape of all.
PART ?= core
quick: $(READY)
	$(BIN)/pytest -n 2 --dist worksteal -m 'not slow' tests/$(PART) tests/shape

test-all: lint browser
	$(BIN)/pytest -n 3 --dist worksteal

# A broken link, a page that no menu has or an undocumented public name ends it. The site is in build/site.
# Not --quiet: it hides warnings from --strict, too.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Wheel and source distribution, built twice and equal, and the list of their parts in dist/; then the tests that
# install and run them.
package: $(READY)
	rm -rf dist
	$(BIN)/python -m release.build dist
	$(BIN)/pytest tests/journeys/test_package.py

# The test vectors, from the project's own code; then a checker that imports nothing of it.
vectors: $(READY)
	$(BIN)/python -m vectors.write
	$(BIN)/python -I vectors/check.py

bench: $(READY)
	$(BIN)/python benchmarks/noise.py
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/ledger.py
	$(BIN)/python benchmarks/query.py
	$(BIN)/python benchmarks/small_questions.py
	$(BIN)/python benchmarks/time_oracle.py
	$(BIN)/python benchmarks/survey.py
	$(BIN)/python benchmarks/audit.py
	$(BIN)/python benchmarks/parties.py
	$(BIN)/python -m benchmarks.learn
	$(BIN)/python -m benchmarks.serve

pictures: $(READY)
	$(BIN)/python docs/draw_pictures.py docs/pictures
	$(BIN)/python docs/layers.py
	$(BIN)/python docs/http_routes.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
