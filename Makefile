# `make` lists the targets. Everything runs in .venv, which is built from requirements.lock and
# rebuilt when that changes. Works with GNU make 3.81 (macOS) and later.

PYTHON    ?= python3
UV        ?= uv
# Which scale `plan`, `report` and `clean` are about: demo (if nothing is said), reduced or full.
SCALE     ?=
# Whose results `keep` keeps.
PAPER     ?= pfedmm
# Kept results that `figures-from` draws again.
FROM      ?=
# What `list` lists, and words that narrow it, such as WHAT="methods fedmix"; for `compare`, words.
WHAT      ?=
# Folders of results/ that `compare` compares, such as A=demo B=demo-slow.
A         ?=
B         ?=
# Values for Snakemake's configuration, such as CONFIG="seeds=[1] tag=quick rounds=5".
CONFIG    ?=
# Options for Snakemake, such as ARGS="--dry-run" or ARGS="--workflow-profile profiles/slurm"; of
# `bench`, such as ARGS="--items W1a,W2b --repeats 3"; of `report`, ARGS=--snakemake; of `keep`,
# ARGS=--replace; of `lock`, for uv.
ARGS      ?=
# Tests at a time; TESTS narrows what is run, such as TESTS="tests/test_data.py -k pachinko".
TEST_JOBS ?= 2
TESTS     ?=
# How long `test-soak` works on and on.
SOAK_MINUTES ?= 120

VENV  := .venv
BIN   := $(VENV)/bin
PIP   := $(BIN)/python -m pip install --disable-pip-version-check -q --no-compile --no-deps

# lock: PyTorch as pinned. own: the PyTorch you put into .venv, or that PYTHON has. Remembered.
TORCH ?= $(if $(wildcard $(VENV)/.own-torch),own,lock)
STAMP := $(VENV)/.installed-$(TORCH)-$(shell cksum < requirements.lock | cut -d ' ' -f 1)
# What few need beside it, installed into the same .venv: to send jobs to Slurm, or to check conda's
# environments and the container file.
override extra_stamp = $(STAMP)-$(1)-$(shell cat requirements-$(1).lock 2>/dev/null | cksum | cut -d ' ' -f 1)
SLURM_STAMP := $(call extra_stamp,slurm)
ENVIRONMENTS_STAMP := $(call extra_stamp,environments)

# Of what the command line sets, make itself would not miss a misspelt name.
override VARIABLES := A ARGS B CONFIG FROM PAPER PYTHON SCALE SOAK_MINUTES TEST_JOBS TESTS TORCH UV WHAT
override set_here = $(if $(filter command,$(firstword $(origin $(1)))),$(1))
override unknown := $(filter-out $(VARIABLES) SHELL,$(foreach name,$(.VARIABLES),$(call set_here,$(name))))
ifneq ($(unknown),)
  $(error unknown variable $(firstword $(unknown)); there are $(VARIABLES), in upper case)
endif

ifneq ($(and $(filter command environment,$(firstword $(origin PYTHON))),$(wildcard $(BIN)/python)),)
  $(info PYTHON=$(PYTHON) only makes .venv, which is there; to make it anew with that, delete .venv)
endif

ifeq ($(filter $(TORCH),lock own),)
  $(error TORCH must be lock or own, got $(TORCH))
endif

# Values go to scripts/workflow.py as they were given, through the environment: neither make nor a
# shell expands them on the way, and nothing happens before they have been checked there.
override CONFIG := $(value CONFIG)
override ARGS   := $(value ARGS)
override SCALE  := $(value SCALE)
override PAPER  := $(value PAPER)
override WHAT   := $(value WHAT)
override FROM   := $(value FROM)
override A      := $(value A)
override B      := $(value B)
export CONFIG ARGS SCALE PAPER WHAT FROM A B
workflow = $(BIN)/python scripts/workflow.py

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install demo demo-all reduced reproduce plan list compare calibrate report test test-fast lint format
.PHONY: bench bench-peers bench-gpu install-slurm test-slurm test-environments
.PHONY: test-changed test-faults test-large test-soak
.PHONY: lock unlock clean keep figures-from

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' Makefile
	@echo
	@echo 'Variables: $(VARIABLES), explained in the Makefile.'

install: $(STAMP)  ## build .venv; every other target does this first

install-slurm: $(SLURM_STAMP)  ## what sends jobs to a Slurm cluster, into .venv

demo: $(STAMP)  ## every table and figure in minutes, on data that needs no download
	@$(workflow) demo

demo-all: $(STAMP)  ## the same with more runs: all sweeps, and two seeds where the demo has one
	@$(workflow) demo-all

reduced: $(STAMP)  ## the papers' data sets and partitions, with fewer rounds and seeds
	@$(workflow) reduced

reproduce: $(STAMP)  ## the papers' own settings
	@$(workflow) reproduce

plan: $(STAMP)  ## what would run at SCALE, why, and about how long; runs nothing
	@$(workflow) plan

list: $(STAMP)  ## papers, methods, data, tables, ... and where each comes from; WHAT="methods fedmix"
	@$(workflow) list

compare: $(STAMP)  ## what differs between two folders of results: A=demo B=demo-slow
	@$(workflow) compare

calibrate: $(STAMP)  ## measure which executor is fastest here for the runs at SCALE
	@$(workflow) calibrate

report: $(STAMP)  ## write results/SCALE/report.html again; ARGS=--snakemake for Snakemake's own
	@$(workflow) report

keep: $(STAMP)  ## copy tables and figures of PAPER at SCALE to docs/results, with how they were made
	@$(workflow) keep

figures-from: $(STAMP)  ## draw all of FROM=docs/results/PAPER again, from its pack: no run is needed
	@$(workflow) figures-from

test: $(STAMP)  ## all tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(TEST_JOBS) --dist loadfile $(TESTS)

# What most changes break first: the contracts of methods, declarations, plans, rooms and documents.
FAST := methods rooms documents papers plan narrowing own_methods overrides errands cohort partition
FAST += metrics tables seals files readme
test-fast: $(STAMP)  ## a quarter of the tests, in a minute or two; TESTS="-k fedper" for one method
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n $(TEST_JOBS) --dist loadfile \
	  $(if $(findstring tests/,$(TESTS)),,$(FAST:%=tests/test_%.py)) $(TESTS)

test-changed: $(STAMP)  ## the tests that uncommitted changes can reach; ARGS=main: those since main
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --changed $(if $(ARGS),$(ARGS),HEAD) $(TESTS)

test-faults: $(STAMP)  ## kills, damage, full disks, bad input, at length: hours; docs/reliability.md
	OMP_NUM_THREADS=1 FEDLIB_FAULTS=long $(BIN)/python -m pytest -s tests/test_faults_*.py $(TESTS)

test-large: $(STAMP)  ## 3,550 and 10,000 clients through all stages, a plan of 10,016 jobs: half an hour
	OMP_NUM_THREADS=1 FEDLIB_FAULTS=long $(BIN)/python -m pytest -s tests/test_large.py $(TESTS)

test-soak: export FEDLIB_SOAK_MINUTES = $(value SOAK_MINUTES)
test-soak: $(STAMP)  ## jobs over and over for SOAK_MINUTES: does memory grow, or files, or threads?
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -s tests/test_soak.py

test-slurm: $(SLURM_STAMP)  ## a run on a Slurm cluster of one node, started for it; as root
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -s -v -m slurm tests/test_slurm.py $(TESTS)

test-environments: $(ENVIRONMENTS_STAMP)  ## solve and use conda's environments; lint the container file
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -v tests/test_conda.py tests/test_container.py $(TESTS)

lint: $(STAMP)  ## check style and workflow; changes nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/snakemake --lint

format: $(STAMP)  ## rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile rules

bench: $(STAMP)  ## measure the engine's speed; ARGS as in benchmarks/README.md
	$(BIN)/python -m benchmarks $(ARGS)

bench-peers: $(STAMP)  ## the same beside other simulators, which it installs
	$(BIN)/python -m benchmarks --peers $(ARGS)

bench-gpu: $(STAMP)  ## ten minutes with a GPU: does it agree, and which executor suits what
	$(BIN)/python -m benchmarks.gpu $(ARGS)

LOCKED := --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate
lock:  ## for maintainers: remake the locks and the Containerfile (needs uv)
	$(UV) pip compile -q --universal --fork-strategy fewest $(LOCKED) $(ARGS) \
	  requirements.in -o requirements.lock
	for extra in slurm environments; do $(UV) pip compile -q --universal --no-deps $(LOCKED) \
	  $(ARGS) requirements-$$extra.in -o requirements-$$extra.lock || exit; done
	$(PYTHON) scripts/container.py

unlock: $(STAMP)  ## after a crash: let Snakemake work in this folder again
	@$(workflow) unlock

clean: $(STAMP)  ## delete results/SCALE and figures/SCALE, after asking; never data/raw
	@$(workflow) clean

# The lock without PyTorch and what only PyTorch needs.
OTHERS_LOCK := awk '/^[a-z]/ {keep = !/^(torch|torchvision|nvidia-[^=]*|cuda-[^=]*)==/} keep'

# Of what pip says when it fails, its last error; the rest may be pages.
override or_say = 2> $(VENV)/pip.log || { \
  grep -E '^ERROR|Error: ' $(VENV)/pip.log | tail -n 1 >&2; \
  echo 'pip cannot install requirements.lock here; all that it said is in $(VENV)/pip.log' >&2; exit 1; }

$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'Python 3.11 or newer is needed; name one with, for example, make PYTHON=python3.12' >&2; \
	  exit 1; }
	@$(BIN)/python -m pip --version > /dev/null 2>&1 || \
	  $(PYTHON) -m venv --clear $(if $(filter own,$(TORCH)),--system-site-packages) $(VENV) || { \
	  echo 'Python cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv' >&2; \
	  exit 1; }
	@rm -f $(VENV)/.installed-*
ifeq ($(TORCH),own)
	@echo 'Installing the pinned packages into $(VENV), PyTorch excepted ...'
	@$(OTHERS_LOCK) requirements.lock > $(VENV)/requirements.txt
	@$(PIP) --require-hashes -r $(VENV)/requirements.txt $(or_say)
	@$(BIN)/python -c 'import torch, torchvision' || { \
	  echo 'TORCH=own needs torch >= 2.11 and its torchvision: see "Without CUDA" in docs/install.md' >&2; \
	  exit 1; }
	@touch $(VENV)/.own-torch
else
	@echo 'Installing the pinned packages into $(VENV): 5.7 GB on Linux, "make TORCH=own" for less ...'
	@$(PIP) --require-hashes -r requirements.lock $(or_say)
	@rm -f $(VENV)/.own-torch
endif
	@# In parallel, and for environments that forbid Python to do it later: without compiled files
	@# every import of PyTorch takes two seconds more. Some packages carry files that do not compile.
	@$(BIN)/python -m compileall -q -q -j 0 $(VENV)/lib > /dev/null || true
	@touch $@

$(SLURM_STAMP) $(ENVIRONMENTS_STAMP): $(STAMP)-%: $(STAMP)
	@$(PIP) --require-hashes -r requirements-$(firstword $(subst -, ,$*)).lock $(or_say)
	@touch $@
