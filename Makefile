# Everything is installed into .venv, from the versions in constraints.txt.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
TRANSFORMERS5 := $(abspath $(VENV))/transformers5
GAUDI := $(abspath $(VENV))/gaudi

.PHONY: smoke test debian lint bench gpu-check install clean

smoke: install
	$(BIN)/bridgetower-ray run sweeps/smoke.yaml

# The training rooms work on two transformers: the one that optimum-habana pins, and the newest.
# The real Gaudi packages are tried with stand-ins for the chip, away from Ray.
test: lint debian $(TRANSFORMERS5)/.installed $(GAUDI)/.installed
	$(BIN)/pytest -n 2
	PYTHONPATH=$(TRANSFORMERS5) EXPECTED_TRANSFORMERS=5 $(BIN)/pytest tests/training/test_training.py tests/data/test_data.py
	PYTHONPATH=$(GAUDI) EXPECTED_GAUDI=1 $(BIN)/pytest tests/training/gaudi

# The browser tests want Debian's Chromium, the launcher's an sshd; where they can be had neither way, these are skipped.
debian:
	@{ command -v chromium && command -v /usr/sbin/sshd && command -v rsync; } >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	apt-get install -y -qq --no-install-recommends chromium openssh-server openssh-client rsync >/dev/null; } || \
	echo "no Chromium, sshd or rsync: their tests are skipped"

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: install
	$(BIN)/python -m tests.bench

# `make gpu-check CHECK=--cpu` tries everything but the GPU.
gpu-check: install
	$(BIN)/python -m bridgetower_ray.gpu_check $(CHECK)

install: $(INSTALLED)

$(TRANSFORMERS5)/.installed: tests/transformers5.txt $(INSTALLED)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(TRANSFORMERS5) -r $<
	touch $@

$(GAUDI)/.installed: tests/training/gaudi/packages.txt $(INSTALLED)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(GAUDI) -r $<
	touch $@

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV)
