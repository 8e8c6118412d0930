# The front door. The build itself is CMakeLists.txt; packages are tools/install-deps.
#
#   make            build/treadle and the libraries
#   make demo       GRPO on eight ranks: a small policy's reward rises; SEEDS= LR= STEPS=
#   make demo-switch   a switch on this machine; MODEL= TRAIN= INFER= RANKS= choose another
#   make demo-nodes    a switch between two hosts made of network namespaces, without MPI; MODEL= TRAIN= INFER= RANKS= RATE=
#   make demo-train    eight ranks train a tiny policy, and its answers are tried; SEEDS= STEPS=
#   make demo-generate    the built-in engine: text, and the same bits alone, in batches and on two ranks; MODEL= DATA=
#   make demo-moe   GRPO with a mixture of experts on eight ranks: the reward rises; SEEDS= LR= STEPS=
#   make demo-ppo   PPO with policy, critic and reward model on pools of their own, nine processes: the reward rises; STEPS=
#   make test       all tests; STAGE= those of one stage of .ci/run, with this compiler
#   make bench      the measurements of docs/speed.md
#   make python     the wheel of the Python package, build/python/treadle-*.whl
#   make wheel MANYLINUX=2_28   one for that glibc and later, built by zig's compiler: build/manylinux_2_28/python/treadle-*.whl
#   make bench-python  the package beside all-gather and slice, DTensor and Megatron-core's resharding: one JSON object
#   make bench-nodes  switches between nodes beside plain MPI messages over TCP, and over a slow cable: one JSON object
#   make test-python   its tests; TORCH=1 installs torch for those that need it
#   make test-plugins  the plug-ins with the real packages, in environments of their own (6 GB each); ONLY=vllm,megatron
#   make test-ray   treadle.ray on a real Ray of this machine, in an environment of its own; MEASURE=1 measures calls, too, JOBS=1 submits jobs
#   make fake-cuda  build/fake-cuda/libcuda.so.1, which stands in for NVIDIA's driver (tests/cuda/fake_cuda.h)
#   make sanitize   tests under address and undefined-behaviour sanitizers
#   make tsan       tests with threads under the thread sanitizer
#   make fuzz       libFuzzer, FUZZ_SECONDS= a target; then FUZZ_COMMANDS= runs of whole commands (100000)
#   make nightly    all of the above, all tests once with each set of kernels that the processor has, and longer searches, in stages of
#                   about an hour; STAGE= one of them (tools/nightly has the list, and their numbers)
#   make cuda       kernels for CUDA devices, which the libraries have from then on; nvcc comes by pip, if need be
#   make cuda-check    checks those kernels, without a GPU
#   make install    PREFIX=/usr/local
.PHONY: all configure demo demo-switch demo-nodes demo-generate demo-train demo-ppo demo-moe test bench install format clean python wheel test-python test-plugins test-ray bench-python bench-nodes cuda cuda-check fake-cuda build-asan sanitize tsan build-fuzz fuzz nightly deps

PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
FUZZ_COMMANDS ?= 100000
NIGHTLY_PAIRS ?= 100000
NIGHTLY_SANITIZED ?= 10000
NIGHTLY_SEED ?= 1000001
CMAKE_FLAGS ?=
export MODEL DATA TRAIN INFER RANKS RATE JOBS FUZZ_SECONDS FUZZ_COMMANDS NIGHTLY_PAIRS NIGHTLY_SANITIZED NIGHTLY_SEED
export OMPI_ALLOW_RUN_AS_ROOT = 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1

# One more at once than there are processors: some tests mostly wait.
CTEST = ctest --output-on-failure -j $(shell expr $(JOBS) + 1)

all: configure
	cmake --build build -j $(JOBS)

deps:
	@tools/install-deps

configure: deps
	@mkdir -p build
	@cmake -G Ninja -S . -B build -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(CMAKE_FLAGS) >build/configure.log 2>&1 \
	  || { cat build/configure.log; exit 1; }

demo: all
	tools/demo

demo-switch: all
	tools/demo-switch

demo-nodes: all
	tools/demo-nodes

demo-generate: all
	tools/demo-generate

demo-train: all
	tools/demo-train

demo-ppo: all
	tools/demo-ppo

demo-moe: all
	tools/demo-moe

ifdef STAGE
test: configure
	cmake --build build -j $(JOBS) --target tests_$(STAGE)
	$(CTEST) --test-dir build -L '^$(STAGE)$$'
else
test: all
	$(CTEST) --test-dir build
endif

bench: all
	cmake --build build -j $(JOBS) --target bench_programs
	tools/bench

python: deps
	@tools/install-deps python
	@$(MAKE) --no-print-directory configure
	cmake --build build -j $(JOBS) --target treadle_command treadle_loop_shared treadle_mpi_shared
	python/make-wheel build

# Outside of the gate: everything is built a second time.
wheel: deps
	@tools/install-deps python
	python/make-manylinux $(or $(MANYLINUX),$(error say which glibc: make wheel MANYLINUX=2_28))

test-python: python fake-cuda
	tools/test-python

test-plugins: python
	@ONLY="$(ONLY)" tools/test-plugins

test-ray: python
	tools/test-ray

# Only the JSON object goes to standard output.
bench-python:
	@$(MAKE) --no-print-directory python >&2
	@bench/python --build build

bench-nodes: all
	@cmake --build build -j $(JOBS) --target bench_tcp >&2
	@bench/nodes --build build

fake-cuda: configure
	cmake --build build -j $(JOBS) --target fake_cuda

install: configure
	cmake --build build -j $(JOBS) --target installed
	cmake --install build

format:
	clang-format -i $$(find include src tests bench examples -name '*.[ch]' -o -name '*.cu')

clean:
	rm -rf build build-*

# A sanitizer build has its own folder and runs the tests there.
build-asan: deps
	cmake -G Ninja -S . -B build-asan "-DTREADLE_SANITIZE=address;undefined" -DTREADLE_HASTY=OFF $(CMAKE_FLAGS)
	cmake --build build-asan -j $(JOBS)

sanitize: build-asan
	$(CTEST) --test-dir build-asan

tsan: deps
	cmake -G Ninja -S . -B build-tsan -DTREADLE_SANITIZE=thread -DTREADLE_HASTY=OFF $(CMAKE_FLAGS)
	cmake --build build-tsan -j $(JOBS)
	$(CTEST) --test-dir build-tsan -L threads

build-fuzz: deps
	tools/install-deps clang
	cmake -G Ninja -S . -B build-fuzz -DCMAKE_C_COMPILER=clang -DTREADLE_FUZZ=ON \
	  "-DTREADLE_SANITIZE=address;undefined" $(CMAKE_FLAGS)
	cmake --build build-fuzz -j $(JOBS)

fuzz: build-fuzz
	tools/fuzz build-fuzz $(FUZZ_SECONDS)
	build-fuzz/tests/fuzz_commands tests/fuzz/corpus/commands $(FUZZ_COMMANDS) $(NIGHTLY_SEED) build-fuzz/found

nightly:
	tools/nightly $(STAGE)

cuda: deps
	@tools/make-cuda build || [ $$? -eq 77 ]

cuda-check: deps
	@tools/check-cuda build || [ $$? -eq 77 ]
