/* A stand-in of NVIDIA's driver, libcuda.so.1, for machines without a GPU. `make fake-cuda` builds it, and
 *
 *   LD_LIBRARY_PATH=build/fake-cuda build/treadle switch --device cuda ...
 *
 * runs on it. It refuses what the driver refuses, and shows mistakes that a real card hides:
 *
 * - A device address lies in a range without access: the processor faults where it touches device memory. The memory
 *   itself lies a fixed distance further on (fake_cuda_near), which only this library and the kernels use. An address
 *   is never reserved twice, so late users fault.
 * - A kernel faults on host memory that is not pinned, and on memory that its card was given no access to.
 * - Work is done late: only when somebody looks at a stream or an event, a few steps a look, of streams chosen by
 *   chance. What a stream or an event orders keeps its order, and nothing else does. Copies from pageable memory read
 *   their source at once, as the driver does.
 *
 * A card is one sparse file, which all processes of the card share. A handle is a range of it, and an exported
 * descriptor a small file that names the range. Memory is given back when no living process holds it, maps it or has
 * imported it. A descriptor alone holds nothing. The last process takes the file away, unless it is killed; then
 * the next one makes the card anew.
 *
 * Variables of the environment, read by cuInit:
 *   FAKE_CUDA=eager         work is done as soon as it is asked for
 *   FAKE_CUDA_SEED=n        of the order of streams; default 1
 *   FAKE_CUDA_FAIL=text     which calls fail, see fake_cuda_fail
 *   FAKE_CUDA_LEDGER=path   a process adds its ledger to this file when it exits, as a line of JSON
 *   FAKE_CUDA_CARD=path     the card's file; default /dev/shm/fake-cuda-UID. Card i > 0 has .i after it
 *   FAKE_CUDA_DEVICES=n     cards; default 1, at most 8. With 0 cuInit finds no device
 *   FAKE_CUDA_PEERS=0       no card reaches another one's memory
 *   FAKE_CUDA_TOTAL=bytes   of a card; default 4 GiB. The first process of a card decides
 *   FAKE_CUDA_GRANULARITY=bytes   of its memory; default 2 MiB. The first process decides */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include "cuda/fake_driver.h"

/* The text with which an image begins that has no kernels: this library takes it, and a real driver does not. */
#define FAKE_CUDA_MARKER "treadle: no kernels"

typedef struct fake_cuda_level {
  uint64_t now, most;
} fake_cuda_level;

/* What this process has done since cuInit. */
typedef struct fake_cuda_ledger {
  uint64_t launches;     /* of kernels, when they ran */
  uint64_t kernel_bytes; /* written by treadle_cuda_copy, as its items say */
  uint64_t host_to_device, device_to_host, device_to_device, host_to_host; /* bytes copied by the driver */
  uint64_t set;                                                            /* bytes, by memset */
  uint64_t created, imported, exported;                                    /* handles */
  fake_cuda_level handles;
  fake_cuda_level ranges;  /* of addresses: reserved, or of cuMemAlloc */
  fake_cuda_level objects; /* streams, events, modules, and how often a context is retained */
  fake_cuda_level mappings, mapped_bytes;
  fake_cuda_level accessible, accessible_bytes; /* of the mappings: those that a device may use */
  fake_cuda_level pinned_bytes;
  uint64_t waiting; /* pieces of work that nobody has looked for yet */
} fake_cuda_ledger;

void fake_cuda_ledger_read(fake_cuda_ledger *ledger_p);

/* How often a function was called; its name is that of NVIDIA's documentation, without _v2. */
uint64_t fake_cuda_calls(const char *name);

/* From now on the n-th call of a function fails: "cuMemCreate:3" with CUDA_ERROR_OUT_OF_MEMORY, "cuMemMap:1:999" with
 * another error. "launch:n": the n-th kernel that runs from now on ends in CUDA_ERROR_LAUNCH_FAILED, and every call
 * returns that from then on. Several, with commas. NULL or "": no call fails, and what has failed is forgotten. */
void fake_cuda_fail(const char *text);

/* Where this library reaches the memory of a device address. A host address is itself if it is pinned; of others
 * nothing can be touched. */
uint64_t fake_cuda_near(uint64_t address);

#endif
