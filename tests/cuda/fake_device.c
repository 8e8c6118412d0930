/* cuInit, and what devices say of themselves. */
#include "cuda/fake_parts.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Starting and ending ---- */

static bool was_forked, peers;

bool fake_was_forked(void) { return was_forked; }

/* As with the driver, nothing of it works in a child of its process. */
static void forget(void) {
  was_forked = true;
  fake_space_forget();
}

static void end(void) {
  if (was_forked) return;
  FAKE_LOCKED;
  const int count = fake_card_count;
  fake_card_count = 0; /* threads that still run get no further */
  fake_ledger_write();
  for (int i = 0; i < count; i++) fake_card_close(&fake_cards[i]);
}

static int number_of(const char *variable, int otherwise) {
  const char *text = getenv(variable);
  return text && *text ? atoi(text) : otherwise;
}

static CUresult open_cards(int count) {
  const char *given = getenv("FAKE_CUDA_CARD");
  char base[PATH_MAX], path[PATH_MAX + 16];
  snprintf(base, sizeof base, "/dev/shm/fake-cuda-%u", (unsigned)getuid());
  for (int i = 0; i < count; i++) {
    snprintf(path, sizeof path, i ? "%s.%d" : "%s", given && *given ? given : base, i);
    const CUresult result = fake_card_open(&fake_cards[i], path);
    if (result != CUDA_SUCCESS) return result;
  }
  fake_card_count = count;
  return CUDA_SUCCESS;
}

static CUresult start(void) {
  const int count = number_of("FAKE_CUDA_DEVICES", 1);
  if (count < 1 || count > FAKE_CARDS) return CUDA_ERROR_NO_DEVICE;
  if (!fake_space_open()) return CUDA_ERROR_OUT_OF_MEMORY;
  peers = number_of("FAKE_CUDA_PEERS", 1) != 0;
  fake_streams_open(getenv("FAKE_CUDA"), (uint64_t)number_of("FAKE_CUDA_SEED", 1), count);
  pthread_atfork(NULL, NULL, forget);
  atexit(end);
  return open_cards(count);
}

FAKE_API CUresult cuInit(unsigned flags) {
  static bool is_read;
  if (was_forked) return CUDA_ERROR_NOT_INITIALIZED;
  FAKE_LOCKED;
  if (!is_read) fake_fail(getenv("FAKE_CUDA_FAIL"));
  is_read = true;
  FAKE_ENTER(cuInit);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return fake_card_count > 0 ? CUDA_SUCCESS : start();
}

FAKE_API CUresult cuDriverGetVersion(int *version_p) {
  *version_p = 13000;
  return CUDA_SUCCESS;
}

/* ---- Devices ---- */

static bool is_device(CUdevice device) { return device >= 0 && device < fake_card_count; }

bool fake_can_reach(int device, int peer) { return device == peer || peers; }

FAKE_API CUresult cuDeviceGetCount(int *count_p) {
  FAKE_ENTER(cuDeviceGetCount);
  *count_p = fake_card_count;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDeviceGet(CUdevice *device_p, int ordinal) {
  FAKE_ENTER(cuDeviceGet);
  if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device_p = ordinal;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDeviceGetName(char *name, int bytes, CUdevice device) {
  FAKE_ENTER(cuDeviceGetName);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (bytes < 1) return CUDA_ERROR_INVALID_VALUE;
  snprintf(name, (size_t)bytes, "stand-in of a GPU");
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDeviceGetUuid_v2(CUuuid *uuid_p, CUdevice device) {
  FAKE_ENTER(cuDeviceGetUuid);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  memcpy(uuid_p->bytes, fake_card_identity(&fake_cards[device]), sizeof uuid_p->bytes);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDeviceTotalMem_v2(size_t *bytes_p, CUdevice device) {
  FAKE_ENTER(cuDeviceTotalMem);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes_p = fake_card_total(&fake_cards[device]);
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDeviceCanAccessPeer(int *can_p, CUdevice device, CUdevice peer) {
  FAKE_ENTER(cuDeviceCanAccessPeer);
  if (!is_device(device) || !is_device(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *can_p = device != peer && peers;
  return CUDA_SUCCESS;
}

/* All others are 0. */
static const int attributes[][2] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, INT_MAX},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 4},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 << 10},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 << 10},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
};

FAKE_API CUresult cuDeviceGetAttribute(int *value_p, CUdevice_attribute which, CUdevice device) {
  FAKE_ENTER(cuDeviceGetAttribute);
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if ((int)which < 1 || which > CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED)
    return CUDA_ERROR_INVALID_VALUE;
  *value_p = which == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? device + 1 : 0;
  for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
    if (attributes[i][0] == (int)which) *value_p = attributes[i][1];
  return CUDA_SUCCESS;
}
