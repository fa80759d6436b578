# Everything runs in .venv, which `make setup` makes; nothing is installed elsewhere.
PYTHON ?= python3
JOBS ?= 2
PHOTOS ?= photos

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup
NATIVE := $(wildcard native/*)

.DELETE_ON_ERROR:
.PHONY: help setup demo test lint soak sanitize bench-peers bench clean

help:
	@echo "make setup     create .venv and install dataflow into it"
	@echo "make demo      see it work on photographs, in about a minute"
	@echo "make test      lint, types and tests, in under ten minutes"
	@echo "make soak      the long tests and the whole conformance matrix"
	@echo "make sanitize  the native core's tests under address and undefined behaviour sanitizers"
	@echo "make bench-peers  create .venv-peers with the writers and loaders of others, to compare with"
	@echo "make bench PHOTOS=FOLDER  compare with them, in about half an hour; QUICK=1 for a first look"
	@echo "make clean     remove what was built, and the virtual environments"

setup: $(STAMP)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The library is removed first, so that a build that fails is seen.
$(STAMP): pyproject.toml constraints.txt $(NATIVE) | $(BIN)/python
	rm -f dataflow/_native*.so
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' $(PIP_FLAGS)
	touch $@

demo: setup
	$(BIN)/dataflow demo

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# The process pool shares out whole files: many fixtures start servers.
test: lint
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -rs $(PYTEST_FLAGS)

soak: setup
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "soak and not gpu" -rs $(PYTEST_FLAGS)

sanitize: setup
	cmake -S native -B build/sanitize -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDATAFLOW_SANITIZE=ON -DDATAFLOW_WERROR=ON \
		-DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python
	cmake --build build/sanitize --parallel $(JOBS)
	LD_PRELOAD="$$(c++ -print-file-name=libasan.so) $$(c++ -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0 \
		UBSAN_OPTIONS=print_stacktrace=1 $(BIN)/python tests/native/sanitize.py build/sanitize

# Some without their dependencies: these would bring a CUDA build of torch, or another numpy. FFCV comes as source, and
# is only built where OpenCV and libturbojpeg are there to build it with.
bench-peers:
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --only-binary :all: -c constraints.txt -r bench/peers/requirements.txt $(PIP_FLAGS)
	.venv-peers/bin/python -m pip install --quiet --no-deps mosaicml-streaming litdata megatron-energon $(PIP_FLAGS)
	.venv-peers/bin/python -m pip install --quiet --no-deps ffcv assertpy terminaltables $(PIP_FLAGS) || \
		echo "FFCV is left out (Debian: pkg-config libopencv-dev libturbojpeg0-dev)"

bench: setup
	$(BIN)/python -m bench.loaders --photos $(PHOTOS) $(if $(QUICK),--quick) $(BENCH_FLAGS)

clean:
	rm -rf $(VENV) .venv-peers build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .demo .bench
	rm -f dataflow/_native*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
