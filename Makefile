# The developer's loop. `make demo` and `make test` need only Python 3.10+, its venv module and a C++ compiler.
#
#   make demo    build, install into .venv, apply the quickstart on the simulator
#   make test    the whole test suite
#   make check   linters and type checks
#
# CXX=g++ make ... chooses the compiler; left alone it is hipcc where one is found, else the host's own.

PYTHON ?= python3
VENV ?= .venv
BUILD ?= build/editable
BIN := $(VENV)/bin

ifeq ($(origin CXX),default)
CXX :=
unexport CXX
else
export CXX
endif

SANITIZERS := address,undefined thread
SOURCES := $(shell find cpp hipplan -type f -not -name '*.pyc') CMakeLists.txt pyproject.toml

.PHONY: demo test quick reliability sanitize check conformance amd-library release bench cuda amd clean fuzz site site-serve
.DELETE_ON_ERROR:

demo: $(VENV)/installed
	$(BIN)/hipplan apply plans/quickstart.yaml --once --runtime sim
	@echo
	@echo "hipplan is installed in $(VENV). To call it: . $(BIN)/activate && hipplan --help"

# In parallel (tests/conftest.py says in how many processes); ARGUMENTS names tests or options, -n0 for one process.
test: $(VENV)/installed
	$(BIN)/python -m pytest -n auto --dist worksteal $(ARGUMENTS)

# What finds most mistakes, in a minute: while you write. tools/quick.py lists its folders.
quick: $(VENV)/installed
	$(BIN)/python tools/quick.py $(ARGUMENTS)

# The long run of what shows that nothing is lost, with its counts; ARGUMENTS=--write puts them into docs/reliability.md.
reliability: $(VENV)/installed
	$(BIN)/python tools/reliability.py $(ARGUMENTS)

# The suite on builds with AddressSanitizer and UndefinedBehaviorSanitizer, then with ThreadSanitizer; KINDS names one,
# ARGUMENTS some of the tests, or --quick for those of `make quick`, LEVEL the optimization: with 0 the build takes 0.6 of
# the time and the tests more. Needs g++. The last build compiles each source by itself, to find one that includes too
# little: all others compile several at once.
sanitize:
	for kind in $(or $(KINDS),$(SANITIZERS)); do \
	  $(MAKE) VENV=$(VENV)-$${kind%%,*} BUILD=build/$${kind%%,*} CXX=g++ \
	    PIP_FLAGS="-C cmake.define.HIPPLAN_SANITIZE=$$kind -C cmake.define.CMAKE_CXX_FLAGS_RELEASE=-O$(or $(LEVEL),1)" $(VENV)-$${kind%%,*}/installed && \
	  $(VENV)-$${kind%%,*}/bin/python tools/reliability.py --sanitizer $$kind $(ARGUMENTS) || exit 1; done

conformance: $(VENV)/installed
	HIPPLAN_CONFORMANCE_RUNTIME="$(or $(RUNTIME),sim)" $(BIN)/python -m pytest tests/conformance

# The tests on AMD's own unmodified libamdhip64, which needs no GPU here: Debian's packages, unpacked in build/amd, over a
# stand-in for the driver. RELEASE=7.2 takes one release, QUICK=1 few rounds, PARTS="conformance plans" some of it.
amd-library: $(VENV)/installed
	-$(BIN)/pip install --quiet --group clients
	$(BIN)/python -m tests.amd.library $(if $(RELEASE),--release $(RELEASE)) $(if $(QUICK),--quick) $(ARGUMENTS) $(PARTS)

# A release, rehearsed: the sdist and all wheels into build/release, made twice with equal bytes, checked, installed and
# tested (docs/releases.md). PYTHONS are those that get a wheel, where they are installed; REPOSITORY=URL sets the links.
PYTHONS ?= python3.10 python3.11 python3.12 python3.13 python3.14
release: $(VENV)/ready
	@$(BIN)/pip install --quiet --group release
	@$(BIN)/python -m tools.release make build/release --pythons $(PYTHONS) $(if $(REPOSITORY),--repository $(REPOSITORY))

# The benchmarks, on the runtime that RUNTIME names (default: what this machine has).
bench: $(VENV)/installed
	for name in apply alternatives beside growth llama loading ranks sleep; do \
	  $(BIN)/python benchmarks/$$name.py $(if $(RUNTIME),--runtime $(RUNTIME)) || exit 1; done
	$(BIN)/hipplan bench --compare $(if $(RUNTIME),--runtime $(RUNTIME))

# On a machine with GPUs: tests and benchmarks into build/hardware-report.
cuda amd: $(VENV)/installed
	HIPPLAN_RUNTIME="$(or $(RUNTIME),$@)" PYTHON=$(abspath $(BIN)/python) tests/hardware/run.sh build/hardware-report

# Coverage-guided, for SECONDS (60): what it finds is in build/fuzz/crash-*.
fuzz: $(VENV)/installed
	$(BIN)/pip install --quiet --group fuzz
	mkdir -p build/fuzz
	$(BIN)/python tests/fuzz/fuzz_plan.py build/fuzz/corpus -max_total_time=$(or $(SECONDS),60) -artifact_prefix=build/fuzz/

# The documentation as a site, in build/site; `make site-serve` shows it while you write.
site site-serve: $(VENV)/installed
	$(BIN)/pip install --quiet --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs $(if $(filter site,$@),build --strict,serve)

check: $(VENV)/checkers
	sh tools/check.sh $(BIN)

# Editable, so Python sources need no reinstall; the C++ is rebuilt in build/ when a source changed.
$(VENV)/installed: $(VENV)/ready $(SOURCES)
	@test "$$(cat $(VENV)/compiler 2>/dev/null)" = "$(CXX)" || rm -rf $(BUILD)
	@$(BIN)/python tools/build.py $(BUILD) $(PIP_FLAGS)
	@echo "$(CXX)" >$(VENV)/compiler
	@touch $@

$(VENV)/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "Python 3.10 or later is needed; this is $$($(PYTHON) --version). Try PYTHON=python3.11 make" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "Python's venv module is missing. Install it: sudo apt-get install python3-venv" >&2; exit 1; }
	@for compiler in $(or $(firstword $(CXX)),hipcc "$${ROCM_PATH:-/opt/rocm}/bin/hipcc" c++ g++ clang++); do \
	  command -v "$$compiler" && exit 0; done >/dev/null; \
	  echo "No C++ compiler was found. Install one: sudo apt-get install g++" >&2; exit 1
	@echo "Making $(VENV) and fetching what the build and the tests need from PyPI; usually under a minute"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check "pip>=25.1"
	@$(BIN)/pip install --quiet scikit-build-core "pybind11>=2.13" "cmake>=3.22" ninja
	@$(BIN)/pip install --quiet --group test
	@touch $@

$(VENV)/checkers: $(VENV)/installed
	$(BIN)/pip install --quiet --group check
	@touch $@

clean:
	rm -rf build $(VENV)
