# Every command of the project. Each sets up what it needs; all may be run again at any time.
# Variables: PYTHON (default python3), CXX, JOBS, OP, PEER (bench), ARGS (passed on: run, bench, test).
SHELL := /bin/bash
.DEFAULT_GOAL := help
ROOT := $(CURDIR)
PY := "$(ROOT)/.venv/bin/python"
BIN := $(ROOT)/.venv/bin
PEER ?= llama
JOBS ?= $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
BUILD := build/py
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export PATH := $(BIN):$(PATH)
unexport PYTHONPATH PYTHONHOME

.PHONY: help setup build run test metal cuda test-all check fmt gen bench plots asan ubsan tsan wheel clean

help:
	@grep -E '^## ' Makefile | sed 's/^## /make /'

setup:
	@tools/setup.sh llm

## build     configure, compile and install the package into .venv (editable)
build: setup
	@tools/build.sh

## run       set up everything and let the real checkpoint answer a question
run:
	@tools/setup.sh llm model
	@tools/build.sh
	@"$(BIN)/accel" generate --prompt "The capital of France is" --max-tokens 32 $(ARGS)

## test      set up, build, then the rules, the C++ tests and the fast Python tests
test:
	@tools/setup.sh llm,test model
	@tools/build.sh
	@tools/test.sh $(ARGS)

## metal     the Metal executor on its emulator, whose compiler apt installs where it is missing
metal:
	@tools/setup.sh llm,test model
	@tools/build.sh
	@tools/metal.sh $(ARGS)

## cuda      the CUDA executor on a stand-in of the driver, which runs its kernels without a GPU
cuda:
	@tools/setup.sh llm,test model
	@tools/build.sh
	@tools/cuda.sh $(ARGS)

## test-all  everything that .ci/run runs, then what is kept for releases
test-all:
	@.ci/run
	@tools/test.sh --release

## check     formatter, linters, stubs, include rule, generated files, every header alone
check:
	@tools/setup.sh llm,test,check
	@tools/build.sh
	@tools/check.sh

## fmt       format the C++ and Python sources
fmt:
	@tools/setup.sh check
	@tools/check.sh --fix

## gen       write the generated files again
gen: build
	@$(PY) tools/generate.py

## bench     beside other engines, PEER=llama|openvino|torch|onnxruntime|all; OP=name: one operator
bench:
	@tools/setup.sh llm,test model
	@tools/build.sh benches py_links
	@$(PY) benchmarks/bench.py $(if $(OP),--op $(OP)) --peer $(PEER) $(ARGS)

## plots     draw the kept figures of the benchmark into docs/ again
plots: setup
	@$(PY) benchmarks/bench.py --draw

## asan      the C++ tests and a Python subset under the address and undefined sanitizers
asan:
	@tools/setup.sh llm,test model
	@tools/sanitize.sh address,undefined

## ubsan     the same under the undefined sanitizer alone
ubsan:
	@tools/setup.sh llm,test model
	@tools/sanitize.sh undefined

## tsan      the C++ tests under the thread sanitizer
tsan:
	@tools/setup.sh llm,test
	@tools/sanitize.sh thread

## wheel     source distribution, then a wheel built from it alone, into dist/
wheel:
	@tools/setup.sh llm
	@tools/wheel.sh

## clean     remove everything that was built (.venv too)
clean:
	rm -rf build dist .venv .venv-bench .pytest_cache .hypothesis .ruff_cache .mypy_cache
