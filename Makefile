# Two commands do everything on a fresh machine: `make book` and `make test`. `make help` lists the rest.
PYTHON ?= python3
PORT ?= 8000
WORKERS ?= 2
PINNED_TORCH := 2.13.0
# Another torch than requirements.txt has (TORCH=2.9.1, TORCH=newest) gets an environment of its own.
TORCH := $(PINNED_TORCH)
VENV := .venv$(if $(filter-out $(PINNED_TORCH),$(TORCH)),-torch-$(TORCH))
UV := 0.13.8
PIP_AUDIT := 2.10.1
AXE := 4.14.1
BUMP := 1.8.1
CURRENT = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' transformer_lessons/__init__.py)
# A virtual environment's folder differs between systems; everything below calls tools through it by relative path,
# so that the repository may lie in a folder with a space in its name.
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
RUN := $(BIN)/python
READY := $(VENV)/ready
PRETRAINED := transformer_lessons/pretrained/number_words
FIND_LINKS := $(foreach link,$(PIP_FIND_LINKS),--find-links '$(link)')
# Images of containers often forbid Python to keep what it compiled: each of a hundred processes would compile torch anew.
unexport PYTHONDONTWRITEBYTECODE
# nbgrader starts `alembic` and Jupyter starts kernels by name: they must find this environment first.
export PATH := $(abspath $(VENV))/$(notdir $(BIN))$(if $(filter Windows_NT,$(OS)),;,:)$(PATH)

.DEFAULT_GOAL := help
.PHONY: help setup book test test-package test-colab test-full notebooks model coverage mutants size lint site-check screenshots pdf serve \
  release lock newest audit set-repository set-version check-version dist github-release allow-namespaces clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' Makefile

# Some torches bound setuptools, each in its own way: with another torch, it is free.
FREE := -e 's/^setuptools==.*/setuptools/' -e 's/^torch==.*/torch$(if $(filter-out newest,$(TORCH)),==$(TORCH))/'
VERSIONS := $(if $(filter-out $(PINNED_TORCH),$(TORCH)),sed $(FREE),cat)

setup: $(READY)  ## install the exact versions of requirements.txt in .venv (nearly all targets do this first)

$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v >= (3, 11) else f"Python 3.11 or newer is needed, this is {v[0]}.{v[1]}: make PYTHON=python3.12 …")'
	@# A venv without pip is what Debian leaves where python3-venv is missing.
	@$(RUN) -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@# uv installs in a fifth of pip's time; where it cannot (a mirror that only pip is configured for), pip does.
	@$(RUN) -m pip install --quiet --disable-pip-version-check uv==$(UV)
	@$(VERSIONS) requirements.txt > $(VENV)/requirements.txt
	@# Compiled once, on all cores, as pip does: else all processes that start first compile what they import, each for itself.
	$(RUN) -m uv pip install --quiet --compile-bytecode --python $(RUN) $(FIND_LINKS) -r $(VENV)/requirements.txt \
	  || $(RUN) -m pip install --quiet -r $(VENV)/requirements.txt
	@touch $(READY)

book: setup  ## build the book into _build/html/index.html
	$(RUN) -m book.build
	@echo 'The book is at _build/html/index.html'

# A worker takes a file at a time: the cells of a notebook need each other. Each computes on one core (two workers with
# two threads each wait for one another: 120 s instead of 81 for four chapters).
test test-package test-colab test-full coverage: export OMP_NUM_THREADS ?= 1
TEST := $(RUN) -m pytest tests book/chapters --nbval --nbval-sanitize-with book/nbval.cfg --numprocesses $(WORKERS) --dist loadfile

test: setup lint  ## run what must pass at every commit (.ci/run calls it); on more cores: WORKERS=4
	$(TEST)

# Other versions may print other last digits: chapters run whole, with their assertions, and outputs are not compared.
NOT_THE_PACKAGE := autograder% benchmarks% book% canon% container% exercises% passes% workflows%
PACKAGE_TESTS := $(filter-out $(NOT_THE_PACKAGE:%=tests/test_%),$(wildcard tests/test_*.py))
ELSEWHERE := -m pytest $(PACKAGE_TESTS) book/chapters --nbval-lax --numprocesses $(WORKERS) --dist loadfile

test-package: setup  ## run the package's tests and every chapter; with another torch: TORCH=2.9.1 or TORCH=newest
	$(RUN) $(ELSEWHERE)

# Of Colab's own packages none may change: what is missing is added, ours without its dependencies.
test-colab:  ## in Colab's image: install as the setup cell does, then run the package's tests and every chapter
	@mkdir -p _build
	$(PYTHON) -m pip freeze | grep == | LC_ALL=C sort > _build/colab_versions.txt
	$(PYTHON) -m pip install --quiet uv==$(UV)
	$(PYTHON) -m uv pip install --system --no-deps . jaxtyping wadler-lindig safetensors tqdm
	$(PYTHON) -m uv pip install --system --constraint _build/colab_versions.txt --group test
	@$(PYTHON) -m pip freeze | LC_ALL=C sort | LC_ALL=C comm -23 _build/colab_versions.txt - > _build/colab_changed.txt
	@! grep . _build/colab_changed.txt || { echo "these versions of Colab's were changed"; exit 1; }
	$(PYTHON) $(ELSEWHERE)

# Cut, it goes on where it was as long as no file changed, and leaves out what passed (see tests/passes.py).
test-full: setup lint  ## run the long tests too: all seeds and mutants (hours; continues if interrupted; from the start: FRESH=1)
	@$(if $(FRESH),rm -rf .pytest_cache/full)
	$(TEST) --full

notebooks: setup  ## execute all notebooks, store their normalised outputs, and update the README's picture
	$(RUN) -m book.notebooks
	$(RUN) -m book.pictures readme

model: setup  ## retrain the committed number-words model; afterwards: make notebooks
	$(RUN) -m transformer_lessons train --config $(PRETRAINED)/config.json --output runs/pretrained --overwrite
	mkdir -p $(PRETRAINED)
	cp runs/pretrained/config.json runs/pretrained/weights.safetensors runs/pretrained/record.json $(PRETRAINED)

coverage: setup  ## measure which lines of the package the tests run; fails below 97%
	$(RUN) -m pytest tests --cov=transformer_lessons --cov-report=term-missing:skip-covered --cov-fail-under=97

# mutmut gets an environment on top of this one, so that nothing else needs it. What lives: `mutants/` keeps it.
MUTMUT := VIRTUAL_ENV='$(abspath $(VENV))' $(RUN) -m uv run --no-project --active --with mutmut==3.8.1 mutmut

mutants: setup  ## break canon and fast/ in one place at a time: do tests fail? (an hour; less: MODULES='masks fast.losses')
	$(MUTMUT) run --max-children $(WORKERS) $(MODULES:%='transformer_lessons.%.*')
	@$(MUTMUT) results

size:  ## count files and lines of Python in the canon, the package's folders, the grader, tools and tests
	@count() { printf '%-34s %4d files %6d lines\n' "$$1" $$(find $$2 -name '*.py' | wc -l) $$(find $$2 -name '*.py' -exec cat {} + | wc -l); }; \
	  count 'canon' 'transformer_lessons -maxdepth 1'; \
	  for room in transformer_lessons/[a-z]*/ exercises/autograder/ book/ benchmarks/ tests/; do count $$room $$room; done

release: setup  ## regenerate exercises/release from exercises/source
	$(RUN) -m exercises.release

lint: setup  ## check style and spelling
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m codespell_lib $$(git ls-files '*.py' '*.md' '*.jinja' '*.yml' '*.toml' Makefile)

LIGHTHOUSE := npx --yes @lhci/cli@0.15.1 autorun --config=book/lighthouse.cjs

site-check: book  ## check the built site in Chromium with axe and Lighthouse: accessible, light, nothing moves (half an hour, npm)
	npm install --silent --no-save --prefix $(VENV) axe-core@$(AXE)
	$(RUN) -m book.site_check
	$(LIGHTHOUSE)
	DEVICE=laptop $(LIGHTHOUSE)

screenshots: setup  ## save pictures of built pages to _build/screenshots: light, dark, phone, paper; some: PAGES='chapters/04_masks'
	@test -f _build/html/index.html || $(MAKE) book
	$(RUN) -m book.screenshots $(PAGES)

pdf: setup  ## write the whole book to _build/transformer-lessons.pdf (two minutes, needs Chromium and a Chinese font)
	$(RUN) -m book.pdf

serve: setup  ## serve the built book on http://127.0.0.1:8000 (another port: PORT=…)
	@test -f _build/html/index.html || $(MAKE) book
	$(RUN) -m http.server --bind 127.0.0.1 --directory _build/html $(PORT)

audit: setup  ## ask PyPI for known vulnerabilities in requirements.txt (needs the network)
	@grep -v '^-e' requirements.txt > $(VENV)/audited.txt
	$(RUN) -m uv tool run pip-audit@$(PIP_AUDIT) --strict --no-deps --disable-pip -r $(VENV)/audited.txt

# Both change the setup cell, and the released assignments hold a checksum of it.
set-repository: setup  ## rewrite the repository's address everywhere: make set-repository URL=https://github.com/NAME/REPO
	$(RUN) -m book.repository '$(URL)'
	$(RUN) -m exercises.release

# torch requires its own CUDA packages exactly, and its CPU build none: so they are not listed.
lock: setup  ## resolve pyproject.toml's bounds into requirements.txt again
newest: setup  ## likewise, with the newest torch too (the weekly run tests the course with it)
lock newest:
	@echo 'torch$(if $(filter lock,$@),==$(PINNED_TORCH))' | $(RUN) -m uv pip compile --quiet --universal --python-version 3.11 --upgrade \
	  --extra chapters --extra text --group book --group exercises --group test --no-annotate --no-header pyproject.toml - \
	  --output-file .venv/requirements.lock
	@{ echo '# Exact versions for the book, the exercises and the tests: `make lock` makes this file from pyproject.toml.'; \
	  grep -vE '^(nvidia-|cuda-|triton=)' .venv/requirements.lock; echo '-e .'; } > requirements.txt.new
	@mv requirements.txt.new requirements.txt

set-version: setup  ## turn “Unreleased” into a version and write it everywhere: make set-version VERSION=0.2.0
	@echo '$(VERSION)' | grep -qxE '[0-9]+\.[0-9]+\.[0-9]+' || { echo 'set-version: expected a version, as in VERSION=0.2.0'; exit 2; }
	$(RUN) -m uv tool run bump-my-version@$(BUMP) replace --new-version '$(VERSION)'
	$(RUN) -m exercises.release

check-version: setup  ## check that all files name the same version, and a tag too: TAG=v0.2.0
	$(RUN) -m pytest tests/test_book_version.py
	@test -z '$(TAG)' || { test '$(TAG)' = 'v$(CURRENT)' && grep '^## $(CURRENT) - ' CHANGELOG.md; } \
	  || { echo '$(TAG) is not v$(CURRENT), or CHANGELOG.md has no section for it'; exit 1; }

dist: book  ## build a release: wheel and sdist in dist/, the book and the notes in _build/
	rm -rf dist
	$(RUN) -m uv build --quiet --python $(RUN) --out-dir dist
	$(RUN) -m zipfile -c _build/book.zip _build/html
	awk '/^## /{ours = $$2 == "$(CURRENT)"; next} ours' CHANGELOG.md > _build/notes.md

# Without setup: nothing but git's and GitHub's own tools runs where a release can be written.
github-release:  ## publish what `make dist` made as a release on GitHub (the release workflow does): TAG=v0.2.0
	gh release create '$(TAG)' --verify-tag --title '$(TAG)' --notes-file _build/notes.md dist/* _build/book.zip

allow-namespaces:  ## on Ubuntu, let ordinary users make the namespaces that the grader's box needs (uses sudo)
	sudo sysctl --write kernel.apparmor_restrict_unprivileged_userns=0

clean:  ## remove the built book (not .venv, runs or grades)
	rm -rf _build
