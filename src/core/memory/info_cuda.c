/* The CUDA devices of this machine, as a user asks for them: treadle_tools.h. */
#include "base/argument.h"
#include "base/sized.h"
#include "memory/device.h"
#include "memory/device_cuda.h"
#include "memory/driver_cuda.h"
#include "memory/image_cuda.h"
#include "treadle_tools.h"

#include <stdio.h>
#include <string.h>

int32_t treadle_machine_device_count(void) {
  const treadle_cuda_driver *driver;
  int count = 0;
  if (treadle_cuda_driver_get(&driver) != TREADLE_OK) return 0;
  const CUresult result = driver->device_count(&count);
  if (result == CUDA_SUCCESS && count > 0) return count;
  (void)treadle_fail(TREADLE_REFUSED, "cuda: this process sees no device%s%s",
                     result == CUDA_SUCCESS ? "" : ": ",
                     result == CUDA_SUCCESS ? "" : treadle_cuda_words(driver, "cuDeviceGetCount", result));
  return 0;
}

bool treadle_machine_has_kernels(void) { return treadle_cuda_image_is_built(); }

treadle_status treadle_cuda_find(uint64_t id, int *number_p) {
  treadle_status status;
  const treadle_cuda_driver *driver;
  TRY(treadle_cuda_driver_get(&driver));
  const int32_t count = treadle_machine_device_count();
  for (int number = 0; number < count; number++) {
    CUdevice card;
    if (driver->device_get(&card, number) != CUDA_SUCCESS || treadle_cuda_card_id(driver, card) != id)
      continue;
    *number_p = number;
    return TREADLE_OK;
  }
  status = treadle_fail(TREADLE_REFUSED, "cuda: that device is none of the %d that this process sees",
                        (int)count);
out:
  return status;
}

treadle_status treadle_cuda_reaches(int number, int other) {
  treadle_status status;
  const treadle_cuda_driver *driver;
  CUdevice card, peer;
  int can = 0;
  TRY(treadle_cuda_driver_get(&driver));
  if (driver->device_get(&card, number) == CUDA_SUCCESS &&
      driver->device_get(&peer, other) == CUDA_SUCCESS &&
      driver->can_access_peer(&can, card, peer) == CUDA_SUCCESS && can)
    return TREADLE_OK;
  status = treadle_fail(
      TREADLE_REFUSED,
      "cuda: device %d cannot read memory of device %d: there is no peer access between the two (treadle "
      "doctor); put the ranks of this process on one device, or those of each device on a node of their "
      "own (--nodes)",
      number, other);
out:
  return status;
}

static int attribute(const treadle_cuda_driver *driver, CUdevice card, int which) {
  int value = 0;
  return driver->device_attribute(&value, which, card) == CUDA_SUCCESS ? value : 0;
}

/* As nvidia-smi writes it; parts of a card begin with MIG. */
static void write_uuid(const CUuuid *uuid, const char *name, char *text, size_t bytes) {
  const unsigned char *b = (const unsigned char *)uuid->bytes;
  snprintf(text, bytes, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
           strstr(name, "MIG") ? "MIG" : "GPU", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9],
           b[10], b[11], b[12], b[13], b[14], b[15]);
}

static uint64_t peers_of(const treadle_cuda_driver *driver, CUdevice card, int32_t number, int32_t count) {
  uint64_t peers = 0;
  for (int32_t i = 0; i < count && i < 64; i++) {
    CUdevice other;
    int can = 0;
    if (i != number && driver->device_get(&other, i) == CUDA_SUCCESS &&
        driver->can_access_peer(&can, card, other) == CUDA_SUCCESS && can)
      peers |= (uint64_t)1 << i;
  }
  return peers;
}

/* What needs the device itself: a switch could be made there. */
static void open_and_ask(int32_t number, treadle_device_info *info) {
  const treadle_memory memory = {.kind = TREADLE_MEMORY_CUDA, .device = number};
  treadle_device device;
  treadle_device_room room;
  treadle_status status = treadle_device_open(&memory, &device);
  if (status == TREADLE_OK) {
    status = device.ops->room(&device, &room);
    if (status == TREADLE_OK) info->bytes = room.bytes, info->left_bytes = room.left_bytes;
    treadle_device_close(&device);
  }
  info->usable = status == TREADLE_OK;
  if (!info->usable) snprintf(info->lacks, sizeof info->lacks, "%s", treadle_error_message());
}

treadle_status treadle_machine_device(int32_t number, treadle_device_info *info_p) {
  treadle_status status;
  const treadle_cuda_driver *driver;
  treadle_device_info info = {0};
  const int32_t count = treadle_machine_device_count();
  const CUmemAllocationProp wanted = treadle_cuda_memory_of(number);
  CUdevice card;
  CUuuid uuid = {{0}};
  int version = 0;
  TREADLE_NEED_SIZED(info_p);
  if (number < 0 || number >= count)
    TRY(treadle_fail(TREADLE_REFUSED, "cuda: there is no device %d: this process sees %d", (int)number,
                     (int)count));
  TRY(treadle_cuda_driver_get(&driver));
  (void)driver->version(&version);
  info.driver_major = version / 1000;
  info.driver_minor = version % 1000 / 10;
  if (driver->device_get(&card, number) != CUDA_SUCCESS)
    TRY(treadle_fail(TREADLE_SYSTEM, "cuda: device %d cannot be asked", (int)number));
  (void)driver->device_name(info.name, sizeof info.name, card);
  (void)driver->device_uuid(&uuid, card);
  write_uuid(&uuid, info.name, info.uuid, sizeof info.uuid);
  info.major = attribute(driver, card, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  info.minor = attribute(driver, card, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  info.handles = attribute(driver, card, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  info.shared = attribute(driver, card, CU_DEVICE_ATTRIBUTE_MPS_ENABLED);
  info.peers = peers_of(driver, card, number, count);
  (void)driver->granularity(&info.page_bytes, &wanted, 0);
  open_and_ask(number, &info);
  TREADLE_GIVE(info_p, &info);
out:
  return status;
}
