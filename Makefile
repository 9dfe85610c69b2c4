# Sets up .venv on first use, then runs the commands that `make help` lists.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SNAKEMAKE := $(BIN)/snakemake --cores 1
READY := $(VENV)/.ready
# Tools for maintainers, in a separate environment.
TOOLS := .tools
TOOLS_READY := $(TOOLS)/.ready
COMPILE := $(TOOLS)/bin/uv pip compile --quiet --upgrade
PIP_INSTALL := -m pip install --quiet
NEW_ENOUGH = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  || { echo "make: $(PYTHON) is too old: lmperf needs Python 3.11 or newer; choose one with PYTHON=..." >&2; exit 2; }

.DEFAULT_GOAL := help
.PHONY: help setup report site quick test test-fast lint format publish verify selftest lock audit sbom clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv from the pinned files in envs/ and install lmperf

report: $(READY) ## measure what is missing or stale, then write report/report.md
	@$(BIN)/lmperf report --if-nothing-is-due; code=$$?; \
	  if [ $$code -eq 3 ]; then $(SNAKEMAKE); else exit $$code; fi

site: $(READY) ## build the static site of all evidence in report/ in site/
	@$(BIN)/lmperf site

test: $(READY) ## run the whole test suite
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

test-fast: $(READY) ## run the tests that take half a minute: no processes, no pages
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal -m \
	  "not (gpu or process or machine or page or interpreter or snakemake or compile or slow)"

lint: $(READY) ## check style, what may import what, the workflow and the exported schema
	$(BIN)/ruff check src tests tools examples
	$(BIN)/ruff format --check src tests tools examples
	$(BIN)/lint-imports --no-cache
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/python -m lmperf.config.schema | diff config/schema.json -

format: $(READY) ## format the sources and export the schema
	$(BIN)/ruff check --fix src tests tools examples
	$(BIN)/ruff format src tests tools examples
	$(BIN)/snakefmt Snakefile rules
	$(BIN)/python -m lmperf.config.schema > config/schema.json

verify: $(READY) ## fail, with the causes, unless this machine's evidence is right
	@$(BIN)/lmperf verify

selftest: $(READY) ## measure wrong, fake and harmful implementations: is each of them detected?
	$(BIN)/lmperf selftest

quick: $(READY) ## measure the cells of the write-up's own tables only, in minutes, and write it
	@$(BIN)/lmperf --config preset=quick report --if-nothing-is-due; code=$$?; \
	  if [ $$code -eq 3 ]; then $(SNAKEMAKE) --config preset=quick; else exit $$code; fi

publish: $(READY) ## add this machine's evidence and report to Git, if it passes verify
	@$(BIN)/lmperf publish $(if $(ANYWAY),--anyway '$(subst ','\'',$(ANYWAY))')

lock: $(TOOLS_READY) ## pin the newest versions that pyproject.toml allows, with hashes
	$(COMPILE) pyproject.toml --output-file envs/report.txt >/dev/null
	$(COMPILE) pyproject.toml --extra measure --extra dev --constraints envs/report.txt \
	  --constraints envs/measure.txt --output-file envs/dev.txt >/dev/null
	$(COMPILE) envs/release.in --output-file envs/release.txt >/dev/null

audit: $(READY) $(TOOLS_READY) ## list known vulnerabilities of the packages in .venv
	@$(TOOLS)/bin/pip-audit --skip-editable --progress-spinner off \
	  --path "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

sbom: $(READY) $(TOOLS_READY) ## write dist/lmperf.cdx.json: the packages in .venv, as CycloneDX
	@mkdir -p dist
	$(TOOLS)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
	  --output-format JSON --output-file dist/lmperf.cdx.json $(BIN)/python

$(READY): envs/report.txt envs/measure.txt envs/dev.txt pyproject.toml
	@$(NEW_ENOUGH)
	@echo "Setting up $(VENV), once; takes a few minutes:"
	@echo "  1 of 4: create it with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@echo "  2 of 4: install the $$(grep -c == envs/dev.txt) pinned packages of envs/dev.txt"
	@$(BIN)/python $(PIP_INSTALL) --require-hashes --requirement envs/dev.txt
	@echo "  3 of 4: install torch and what else envs/measure.txt lists (the largest download)"
	@$(BIN)/python $(PIP_INSTALL) --requirement envs/measure.txt
	@echo "  4 of 4: install lmperf from this checkout"
	@$(BIN)/python $(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(TOOLS_READY): envs/release.txt
	@$(NEW_ENOUGH)
	@echo "Setting up $(TOOLS), once: the packages of envs/release.txt"
	@$(PYTHON) -m venv $(TOOLS)
	@$(TOOLS)/bin/python $(PIP_INSTALL) --require-hashes --requirement envs/release.txt
	@touch $@

clean: ## remove environments, logs and caches, but no evidence
	rm -rf $(VENV) $(TOOLS) dist .snakemake .lmperf logs
