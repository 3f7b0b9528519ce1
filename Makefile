# Everything runs inside .venv, which these targets make and fill themselves.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-slow test-search check bench bench-gradients bench-demo bench-training bench-certify bench-attacks bench-synth docs pictures clean help

help:
	@echo "make demo       train, certify and attack a digit classifier; writes runs/demo/report.html"
	@echo "make test       checks and tests (about a quarter of an hour on two cores)"
	@echo "make test-slow  the tests that take minutes each"
	@echo "make test-search  the property tests with new examples"
	@echo "make check      formatting, lint, types, import rule"
	@echo "make bench      all benchmarks, side by side with the peers; or one of"
	@echo "                bench-gradients bench-demo bench-training bench-certify bench-attacks bench-synth"
	@echo "make docs       the site of docs/, in site/"
	@echo "make pictures   the picture of the report in docs/ and the README, made anew"

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("hauberk needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "This Python cannot make virtual environments; on Debian: apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing hauberk into .venv (a few minutes the first time)"
	$(PIP) -e .
	@touch $@

# torchattacks pins an old requests and asks for torchvision, which it does not import: hence --no-deps.
.venv/installed-dev: .venv/installed
	$(PIP) -e '.[dev,docs,synth,oracles]'
	$(PIP) --no-deps torchattacks==3.5.1
	@touch $@

demo: .venv/installed
	$(BIN)/hauberk demo --force

check: .venv/installed-dev
	$(BIN)/ruff format --check src tests benchmarks tools
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/mypy
	$(BIN)/lint-imports

# Two workers of one thread each: threads that wait for each other would take longer.
test: check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --cov --cov-report=term

test-slow: .venv/installed-dev
	$(BIN)/python -m pytest -m slow

# The property tests with new examples each time.
test-search: .venv/installed-dev
	OMP_NUM_THREADS=1 HYPOTHESIS_SEARCH=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m 'hypothesis and not slow'

bench: bench-gradients bench-demo bench-training bench-certify bench-attacks bench-synth

bench-gradients: .venv/installed-dev
	$(BIN)/python benchmarks/gradients.py

bench-demo: .venv/installed-dev
	$(BIN)/python benchmarks/demo.py

bench-training: .venv/installed-dev
	$(BIN)/python benchmarks/training.py

bench-certify: .venv/installed-dev
	$(BIN)/python benchmarks/certify.py

bench-attacks: .venv/installed-dev
	$(BIN)/python benchmarks/attacks.py

bench-synth: .venv/installed-dev
	$(BIN)/python benchmarks/synth.py

docs: .venv/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

pictures: .venv/installed
	$(BIN)/python tools/screenshot.py

clean:
	rm -rf .venv build dist site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
