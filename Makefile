# Two commands do everything on a fresh machine: `make book` and `make test`. `make help` lists the rest.
PYTHON ?= python3
PORT ?= 8000
WORKERS ?= 2
TORCH := 2.13.0
UV := 0.13.8
# A virtual environment's folder differs between systems; everything below calls tools through it by relative path,
# so that the repository may lie in a folder with a space in its name.
BIN := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
RUN := $(BIN)/python
READY := .venv/ready
PRETRAINED := transformer_lessons/pretrained/number_words
FIND_LINKS := $(foreach link,$(PIP_FIND_LINKS),--find-links '$(link)')
# nbgrader starts `alembic` and Jupyter starts kernels by name: they must find this environment first.
export PATH := $(abspath .venv)/$(notdir $(BIN)):$(PATH)
# Waiting threads sleep instead of spinning, which on a busy machine is the difference between slow and very slow.
export OMP_WAIT_POLICY ?= PASSIVE

.DEFAULT_GOAL := help
.PHONY: help setup book test test-full notebooks model coverage mutants lint site-check pdf serve release lock set-repository clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' Makefile

setup: $(READY)  ## .venv with the exact versions of requirements.txt (all other targets do this first)

$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v >= (3, 11) else f"Python 3.11 or newer is needed, this is {v[0]}.{v[1]}: make PYTHON=python3.12 …")'
	@test -x $(RUN) || $(PYTHON) -m venv .venv
	@# uv installs in a fifth of pip's time; where it cannot (a mirror that only pip is configured for), pip does.
	@$(RUN) -m pip install --quiet --disable-pip-version-check uv==$(UV)
	$(RUN) -m uv pip install --quiet --python $(RUN) $(FIND_LINKS) -r requirements.txt \
	  || $(RUN) -m pip install --quiet -r requirements.txt
	@touch $(READY)

book: setup  ## build the book into _build/html/index.html
	$(RUN) -m book.build
	@echo 'The book is at _build/html/index.html'

# A worker takes a file at a time: the cells of a notebook need each other, and most tests compute on one core.
TEST := $(RUN) -m pytest tests book/chapters --nbval --nbval-sanitize-with book/nbval.cfg --numprocesses $(WORKERS) --dist loadfile

test: setup lint  ## everything that must hold at every commit (what .ci/run calls); on more cores: WORKERS=4
	$(TEST)

test-full: setup lint  ## the long tests too: all seeds and mutants (hours)
	$(TEST) --full

notebooks: setup  ## execute all notebooks and store their outputs, normalised
	$(RUN) -m book.notebooks

model: setup  ## retrain the committed number-words model, and draw the README's picture with it
	$(RUN) -m transformer_lessons train --task number-words --seed 0 --output runs/pretrained --overwrite
	mkdir -p $(PRETRAINED)
	cp runs/pretrained/config.json runs/pretrained/weights.safetensors runs/pretrained/record.json $(PRETRAINED)
	$(RUN) -m book.picture

coverage: setup  ## which lines of the package do the tests run? at least 97%, or it fails
	$(RUN) -m pytest tests --cov=transformer_lessons --cov-report=term-missing:skip-covered --cov-fail-under=97

mutants: setup  ## break the package one place at a time: do tests notice? (hours; quick: MODULES='masks --own')
	$(RUN) -m benchmarks.mutants $(MODULES)

release: setup  ## regenerate exercises/release from exercises/source
	$(RUN) -m exercises.release

lint: setup  ## style and spelling
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m codespell_lib $$(git ls-files '*.py' '*.md' '*.yml' '*.toml' Makefile)

site-check: book  ## the built site in Chromium: accessible, light, nothing cut off; Lighthouse (half an hour, npm)
	$(RUN) -m book.site_check
	$(RUN) -m book.lighthouse

pdf: setup  ## the whole book as _build/transformer-lessons.pdf (two minutes, needs Chromium)
	$(RUN) -m book.pdf

serve: setup  ## look at the built book on http://127.0.0.1:8000 (another port: PORT=…)
	@test -f _build/html/index.html || $(MAKE) book
	$(RUN) -m book.serve --port $(PORT)

set-repository: setup  ## rewrite the repository's address everywhere: make set-repository URL=https://github.com/NAME/REPO
	$(RUN) -m book.repository '$(URL)'

# torch requires its own CUDA packages exactly, and its CPU build none: so they are not listed.
lock: setup  ## resolve pyproject.toml's bounds into requirements.txt anew
	@echo 'torch==$(TORCH)' | $(RUN) -m uv pip compile --quiet --universal --python-version 3.11 --upgrade \
	  --extra plot --extra subwords --extra multi30k --group book --group exercises --group test --no-annotate --no-header pyproject.toml - \
	  --output-file .venv/requirements.lock
	@{ echo '# Exact versions for the book, the exercises and the tests: `make lock` makes this file from pyproject.toml.'; \
	  grep -vE '^(nvidia-|cuda-|triton=)' .venv/requirements.lock; echo '-e .'; } > requirements.txt.new
	@mv requirements.txt.new requirements.txt

clean:  ## remove the built book (not .venv, runs or grades)
	rm -rf _build
