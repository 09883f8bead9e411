# The commands a newcomer needs. Daily work is ./dev.
.PHONY: all demo test test-all bench bench-peers fuzz wheel setup clean
SHELL := /bin/bash
JOBS ?= $(shell nproc)

all: setup
	PRESET=release ./dev build

setup:
	@./setup.sh --quiet

# Trains the convolutional network of the README on Fashion-MNIST, from C++.
demo: setup
	@test -e examples/mnist.cpp || { echo "make demo: examples/mnist.cpp does not exist yet" >&2; exit 2; }
	PRESET=release ./dev build mnist
	build-release/examples/mnist

# Every part that a change must pass; prints its time by part.
test: setup
	@python3 tools/ci/run_tests.py $(if $(SUMMARY),--summary $(SUMMARY))

# As test, with the slow tests, every case on every renderer and each sanitizer over everything.
test-all: setup
	@python3 tools/ci/run_tests.py --all $(if $(SUMMARY),--summary $(SUMMARY))

# Every row of bench/run.py beside the peers that are installed; `make bench ROWS="matmul train" PAIRS=5` runs some.
PAIRS ?= 20
bench: setup
	PRESET=bench ./dev build
	PRESET=python ./dev build
	.venv/bin/python bench/run.py --pairs $(PAIRS) $(ROWS)

# The environment in which bench/ runs PyTorch, JAX, ONNX Runtime, OpenVINO and tinygrad.
bench-peers:
	@./setup.sh --bench

# Fresh random graphs for SECONDS seconds.
SECONDS_OF_FUZZING ?= 60
fuzz: setup
	@./dev fuzz $(SECONDS_OF_FUZZING)

# Wheels with LLVM's host target inside, for each Python in PYTHONS (3.12 and newer: one for all of them, by the stable ABI),
# each tried in an environment that has nothing else.
PYTHONS ?= .venv/bin/python
# One of 3.12 or newer, and others that its wheel is tried with.
ABI3_PYTHONS ?= $(shell for p in $$(ls -d $(HOME)/.pyenv/versions/3.1[2-9]*/bin/python 2>/dev/null || command -v python3.12); do echo $$p; done)
wheel: setup
	for python in $(PYTHONS); do tools/ci/wheel.sh $$python || exit 1; done
	test -z "$(ABI3_PYTHONS)" || tools/ci/wheel.sh $(ABI3_PYTHONS)

clean:
	rm -rf build-* dist out
