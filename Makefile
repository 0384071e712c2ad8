# make demo      install, run a small sweep, print its Pareto table (about 3 minutes after the install)
# make test      install, then everything that CI runs
# make test-full the property and survival tests at their full counts (long)
SHELL := bash
PYTHON ?= $(shell for p in python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
STAMP := .venv/.installed
# One thread a process: the tests run two processes side by side.
TEST_ENV := OMP_NUM_THREADS=1 STREAMLIT_BROWSER_GATHER_USAGE_STATS=false
SUDO := $(shell [ "$$(id -u)" = 0 ] || command -v sudo)

.PHONY: install demo test test-full lint browser dashboard clean
install: $(STAMP)

$(STAMP): pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "Python 3.11 or 3.12 is needed: install it, or name it with make PYTHON=..."; exit 2; }
	@$(PYTHON) -m venv .venv || { echo "$(PYTHON) cannot make a virtual environment: on Debian, apt-get install python3-venv"; exit 2; }
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --progress-bar off -e '.[dev]'
	@touch $@

demo: install
	$(BIN)/workbench demo

dashboard: install
	$(BIN)/workbench dashboard

# The browser tests want Debian's chromium. Where it cannot be had they report themselves skipped.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || { \
	command -v apt-get >/dev/null && $(SUDO) apt-get update -qq \
	&& DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq chromium >/dev/null; } \
	|| echo "No chromium here: the browser tests will be skipped."

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright

test: install browser lint
	$(TEST_ENV) $(BIN)/pytest -n 2 --dist loadscope -m "not full"

test-full: install browser
	$(TEST_ENV) WORKBENCH_TEST_FULL=1 $(BIN)/pytest -n 2 --dist loadscope --timeout 14400

clean:
	rm -rf .venv build *.egg-info .pytest_cache .ruff_cache .hypothesis
