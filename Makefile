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

bench: setup
	@test -e bench/run.py || { echo "make bench: bench/run.py does not exist yet" >&2; exit 2; }
	PRESET=bench ./dev build
	.venv/bin/python bench/run.py

# The environment in which bench/ runs PyTorch and tinygrad.
bench-peers:
	@./setup.sh --bench

# Fresh random graphs for SECONDS seconds.
SECONDS_OF_FUZZING ?= 60
fuzz: setup
	@./dev fuzz $(SECONDS_OF_FUZZING)

wheel: setup
	@ls python/*.cpp >/dev/null 2>&1 || { echo "make wheel: python/ has no bindings yet" >&2; exit 2; }
	.venv/bin/python -m pip wheel --no-deps --no-build-isolation -w dist .

clean:
	rm -rf build-* dist out
