# `make` lists the targets that users need. Everything runs in .venv, which is built from requirements/main.lock and
# rebuilt when that changes. Works with GNU make 3.81 (macOS) and later.

PYTHON    ?= python3
UV        ?= uv
# Scale for `plan`, `keep` and others: demo (default), reduced or full.
SCALE     ?=
# Paper whose results `keep` keeps.
PAPER     ?= pfedmm
# Folder of kept results, such as docs/results/pfedmoe/full, for `figures-from` and `take`.
FROM      ?=
# For `list`: a kind, WHAT=methods.
WHAT      ?=
# Values for Snakemake's configuration, such as CONFIG="seeds=[1] tag=quick rounds=5".
CONFIG    ?=
# Options for Snakemake, such as ARGS="--cores 1" or ARGS="--workflow-profile profiles/slurm"; of
# `bench`, such as ARGS="--items W1a,W2b --repeats 3"; of `keep`, ARGS=--replace; of `lock`, for
# uv.
ARGS      ?=
# Number of tests at a time, one more than two cores, as some wait for processes; TESTS selects tests, such as TESTS="tests/data/test_data.py -k pachinko".
TEST_JOBS ?= 3
TESTS     ?=
# For `check-method`: a file with a method of yours.
FILE      ?=

VENV  := .venv
BIN   := $(VENV)/bin
PIP   := $(BIN)/python -m pip install --disable-pip-version-check -q --no-compile --no-deps

# lock: the pinned PyTorch. own: the PyTorch that you put into .venv, or that of PYTHON. It is remembered.
TORCH ?= $(if $(wildcard $(VENV)/.own-torch),own,lock)
STAMP := $(VENV)/.installed-$(TORCH)-$(shell cksum < requirements/main.lock | cut -d ' ' -f 1)
# Extra packages for the same .venv: to send jobs to Slurm, or to build the site.
override extra_stamp = $(STAMP)-$(1)-$(shell cat requirements/$(1).lock 2>/dev/null | cksum | cut -d ' ' -f 1)
SLURM_STAMP := $(call extra_stamp,slurm)
DOCS_STAMP := $(call extra_stamp,docs)

# make itself does not report misspelt names of variables on the command line.
override VARIABLES := ARGS CONFIG FILE FROM PAPER PYTHON SCALE TEST_JOBS TESTS TORCH UV WHAT
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

# Values go to fedlib/cli/make.py unchanged, through the environment: neither make nor a shell expands
# them, and fedlib/cli/make.py checks them first.
override CONFIG := $(value CONFIG)
override ARGS   := $(value ARGS)
override SCALE  := $(value SCALE)
override PAPER  := $(value PAPER)
override WHAT   := $(value WHAT)
override FROM   := $(value FROM)
export CONFIG ARGS SCALE PAPER WHAT FROM
workflow = $(BIN)/python -m fedlib make

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help help-all install demo reduced reproduce plan list test lint format
.PHONY: bench bench-gpu install-slurm
.PHONY: check-method test-device test-long
.PHONY: lock keep take wall figures-from docs

# What users need has ##; what only maintainers and clusters need has ###.
help: override shown = [^\#]\#\#
help-all: override shown = \#\#
help help-all:
	@awk -F ':.*## ' '/^[a-z-]+:.*$(shown) / {printf "  make %-18s %s\n", $$1, $$2}' Makefile
	@echo
	@echo 'Variables: $(VARIABLES), explained in the Makefile.'

help-all:  ## list all targets, those for maintainers, too

install: $(STAMP)  ## build .venv; targets that need it do this first

install-slurm: $(SLURM_STAMP)  ### add the packages for Slurm to .venv

demo: $(STAMP)  ## make nearly every table and figure in minutes, without a download
	@$(workflow) demo

reduced: $(STAMP)  ## run the papers' data sets and partitions, with fewer rounds and seeds
	@$(workflow) reduced

reproduce: $(STAMP)  ## run the papers' own settings
	@$(workflow) reproduce

plan: $(STAMP)  ## print what would run at SCALE, why, and for how long
	@$(workflow) plan

list: $(STAMP)  ## list the names of papers, runs, methods, data, ...; WHAT=methods for titles
	@$(workflow) list

keep: $(STAMP)  ## copy tables, figures and report of PAPER at SCALE to docs/results
	@$(workflow) keep

take: $(STAMP)  ### bring kept runs into results/SCALE: SCALE=full FROM=docs/results/PAPER/full
	@$(workflow) take

wall: override SCALE = full
wall: $(STAMP)  ### write docs/results/published/README.md: all published numbers, and ours
	@$(workflow) wall

figures-from: $(STAMP)  ## draw FROM=docs/results/PAPER/SCALE again, without any run
	@$(workflow) figures-from

# Files in the order of tests/conftest.py: the slow ones first.
SIDE_BY_SIDE = -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder
# FEDLIB_TESTS=all, as in CI, makes every check of each method, draws each kept table and figure, and has some slow tests more;
# this makes some checks of a method in turn, and draws one of each kind.
test: $(STAMP)  ## run the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(SIDE_BY_SIDE) $(TESTS)

check-method: export FEDLIB_METHOD = $(value FILE)
check-method: $(STAMP)  ## test a method of yours, FILE=mine/fedper.py: a line for each rule
	@test -n "$$FEDLIB_METHOD" || { echo 'FILE names a method, such as FILE=mine/fedper.py' >&2; exit 1; }
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -v --tb=short --maxfail=2 --no-header -o empty_parameter_set_mark=skip -m contract tests/methods/test_methods.py

test-device: $(STAMP)  ### test all methods on a simulated GPU, or a real one: "REAL_DEVICE=cuda make test-device"
	OMP_NUM_THREADS=1 FEDLIB_DEVICE=all $(BIN)/python -m pytest tests/device $(TESTS)

# tests/workflow/test_large.py has up to 10,000 clients.
LONG_TESTS = tests/machine/test_faults_*.py tests/workflow/test_large.py
test-long: $(STAMP)  ### test kills, damage, full disks, bad input, large plans: hours; TESTS="-k large"
	OMP_NUM_THREADS=1 FEDLIB_FAULTS=long $(BIN)/python -m pytest -s $(LONG_TESTS) $(TESTS)

lint: $(STAMP)  ### check style and workflow; changes nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check
	$(BIN)/snakefmt --check Snakefile rules workflow
	$(BIN)/snakemake --lint

format: $(STAMP)  ### rewrite the code in the project's layout
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile rules workflow

docs: $(DOCS_STAMP)  ## make a site of the documents: docs/site/_build/index.html; fails on a broken link
	$(BIN)/python -m sphinx -q -W --keep-going -c docs/site . docs/site/_build

bench: $(STAMP)  ### measure the engine's speed; ARGS=--peers: also other simulators, which it installs
	$(BIN)/python -m benchmarks $(ARGS)

bench-gpu: $(STAMP)  ### check a GPU in ten minutes: results, and the fastest executors
	$(BIN)/python -m benchmarks.gpu $(ARGS)

LOCKED := --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate
lock:  ### for maintainers: remake the locks (needs uv)
	$(UV) pip compile -q --universal --fork-strategy fewest $(LOCKED) $(ARGS) \
	  requirements/main.in -o requirements/main.lock
	for extra in slurm docs; do $(UV) pip compile -q --universal --no-deps $(LOCKED) \
	  $(ARGS) requirements/$$extra.in -o requirements/$$extra.lock || exit; done

# The lock without PyTorch and what only PyTorch needs.
OTHERS_LOCK := awk '/^[a-z]/ {keep = !/^(torch|torchvision|nvidia-[^=]*|cuda-[^=]*)==/} keep'

# If pip fails, print its last error only; its whole output may be pages.
override or_say = 2> $(VENV)/pip.log || { \
  grep -E '^ERROR|Error: ' $(VENV)/pip.log | tail -n 1 >&2; \
  echo 'pip cannot install the packages here; all that it said is in $(VENV)/pip.log' >&2; exit 1; }

$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { \
	  echo 'Python 3.11, 3.12 or 3.13 is needed; name one with, for example, make PYTHON=python3.12' >&2; \
	  exit 1; }
	@$(BIN)/python -m pip --version > /dev/null 2>&1 || \
	  $(PYTHON) -m venv --clear $(if $(filter own,$(TORCH)),--system-site-packages) $(VENV) || { \
	  echo 'Python cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv' >&2; \
	  exit 1; }
	@$(BIN)/python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { \
	  echo "$(VENV) has $$($(BIN)/python --version); Python 3.11, 3.12 or 3.13 is needed: delete $(VENV)" >&2; \
	  exit 1; }
	@rm -f $(VENV)/.installed-*
ifeq ($(TORCH),own)
	@echo 'Installing the pinned packages into $(VENV), PyTorch excepted ...'
	@$(OTHERS_LOCK) requirements/main.lock > $(VENV)/requirements.txt
	@$(PIP) --require-hashes -r $(VENV)/requirements.txt $(or_say)
	@$(BIN)/python -c 'import torch, torchvision' || { \
	  echo 'TORCH=own needs torch >= 2.11 and its torchvision: see "Without CUDA" in docs/install.md' >&2; \
	  exit 1; }
	@touch $(VENV)/.own-torch
else
	@echo 'Installing the pinned packages into $(VENV): 5.7 GB on Linux, "make TORCH=own" for less ...'
	@$(PIP) --require-hashes -r requirements/main.lock $(or_say)
	@rm -f $(VENV)/.own-torch
endif
	@# Scripts and notebooks anywhere find fedlib: in the checkout whose .venv they name, also if that is
	@# a link to the .venv of another checkout.
	@for folder in $(VENV)/lib/python3*/site-packages; do echo ../../../.. > $$folder/checkout.pth; done
	@# Without compiled files every import of PyTorch takes two seconds more, and some environments
	@# forbid Python to write them later. Some packages contain files that do not compile.
	@$(BIN)/python -m compileall -q -q -j 0 $(VENV)/lib > /dev/null || true
	@touch $@

$(SLURM_STAMP) $(DOCS_STAMP): $(STAMP)-%: $(STAMP)
	@$(PIP) --require-hashes -r requirements/$(firstword $(subst -, ,$*)).lock $(or_say)
	@touch $@
