# make demo    the main job on the embedded default, from a fresh clone to the figure
# make test    the tests
# make demo-controls   the demo with every control: is the effect real? (at most 20 minutes on two cores)
# make test-faults   killed jobs, full disks and the like, in minutes
# make soak    the fuzzed tests with 1,000 examples each instead of 40, and the long versions of test-faults
# make audit   the locked versions: withdrawn ones, and known vulnerabilities (needs a network)
# make bench   the benchmark (minutes; SIZE=full takes longer; needs the demo's model, which make demo fetches)
# make test-cluster   the tests that need Slurm, which they start by themselves (Debian: slurm-wlm munge)
PYTHON ?= python3
BIN := .venv/bin
CORES ?= $(shell nproc 2>/dev/null || echo 2)
INSTALLED := .venv/.installed

.PHONY: demo demo-controls test test-faults soak bench test-cluster check audit schemas lock clean help

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

# Exact versions come from the lock; torch goes first, so that nothing pulls another build of it.
$(INSTALLED): envs/lock.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "deltap needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $$(grep '^torch==' envs/lock.txt)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint envs/lock.txt --editable '.[dev]'
	touch $@

demo: $(INSTALLED)
	$(BIN)/snakemake --workflow-profile config/profiles/local --configfile config/demo.yaml --cores $(CORES) \
	  --resources mem_mb=4000

demo-controls: $(INSTALLED)
	$(BIN)/snakemake --workflow-profile config/profiles/local --configfile config/demo-controls.yaml --cores $(CORES) \
	  --resources mem_mb=4000

test: .venv/.cluster
	$(BIN)/python -m pytest -n 2 --dist loadgroup --ignore tests/cluster --ignore tests/faults

test-faults: .venv/.cluster
	$(BIN)/python -m pytest tests/faults

# Tests that hypothesis feeds; DELTAP_SOAK=1 asks tests/faults for their long versions.
FUZZED = $$(grep -rl 'from hypothesis import' tests/unit)
soak: .venv/.cluster
	DELTAP_HYPOTHESIS=soak $(BIN)/python -m pytest -n 2 $(FUZZED)
	DELTAP_SOAK=1 $(BIN)/python -m pytest tests/faults

# DeepSpeed and Snakemake's Slurm plugin, so that no test has to be skipped for them.
.venv/.cluster: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint envs/lock.txt --editable '.[cluster]'
	touch $@

SIZE ?= small
bench: .venv/.bench
	$(BIN)/python -m benchmarks --size $(SIZE) $(BENCH)

# What others use for the same task, to be measured beside this project.
.venv/.bench: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint envs/lock.txt --editable '.[bench]'
	touch $@

test-cluster: .venv/.cluster
	$(BIN)/python -m pytest tests/cluster -n 3 --dist load

# Style, types, and generated files that are out of date.
check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# In an environment of its own, for pip-audit has requirements too. Versions that were withdrawn (yanked) first; then known
# vulnerabilities, where a version that the advisory service does not know is a failure and not a pass.
audit:
	rm -rf .venv-audit && $(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit uv
	! .venv-audit/bin/uv pip compile --no-deps --output-file /dev/null envs/lock.txt 2>&1 >/dev/null | grep yanked
	.venv-audit/bin/pip-audit --strict --requirement envs/lock.txt --no-deps --disable-pip
	rm -rf .venv-audit

# The JSON Schemas of the configuration, for editors; generated from workflow/deltap/settings.py.
schemas: $(INSTALLED)
	$(BIN)/python scripts/write_schemas.py --out config/schemas

# Resolves the newest versions anew, in an environment of its own. What only the benchmark needs comes last and has to
# get along with the rest; no stage needs it.
FREEZE = (echo '\# Exact versions of every package, for pip --constraint. Written by make lock.'; \
  .venv-lock/bin/python -m pip freeze --all --exclude pip --exclude-editable | sed 's/+[a-z0-9.]*$$//') > envs/lock.txt
lock:
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet 'torch==2.13.0'
	.venv-lock/bin/python -m pip install --quiet --editable '.[cluster,dev]'
	$(FREEZE)
	(sed '/^ *- pip:/q' envs/deltap.yaml; sed -n 's/^[a-z].*==.*/      - &/ip' envs/lock.txt) > envs/deltap.new
	mv envs/deltap.new envs/deltap.yaml
	.venv-lock/bin/python -m pip install --quiet --constraint envs/lock.txt --editable '.[bench]'
	$(FREEZE)
	rm -rf .venv-lock

clean:
	rm -rf .venv results work .snakemake
