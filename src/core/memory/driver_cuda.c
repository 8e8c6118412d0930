#include "memory/driver_cuda.h"

#include "base/hash.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEAST_VERSION = 13000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static treadle_cuda_driver started; /* once there, it stays */
static pid_t starter;               /* 0: nobody has started it */

/* dlsym gives a pointer to data, which C does not convert into one to a function. */
static bool find(void *library, const char *symbol, void *function_p, size_t bytes) {
  void *found = dlsym(library, symbol);
  memcpy(function_p, &found, bytes);
  return found;
}

static treadle_status find_all(void *library, treadle_cuda_driver *driver) {
#define FIND(member, symbol, parameters)                                                                   \
  if (!find(library, symbol, &driver->member, sizeof driver->member))                                      \
    return treadle_fail(TREADLE_REFUSED,                                                                   \
                        "cuda: the driver on this machine is too old: libcuda.so.1 has no function %s",    \
                        symbol);
  TREADLE_CUDA_FUNCTIONS(FIND)
#undef FIND
  return TREADLE_OK;
}

const char *treadle_cuda_words(const treadle_cuda_driver *driver, const char *call, CUresult result) {
  static _Thread_local char words[200];
  const char *name = NULL, *text = NULL;
  if (driver->error_name(result, &name) != CUDA_SUCCESS || !name) name = "an error without a name";
  if (driver->error_text(result, &text) != CUDA_SUCCESS || !text) text = "no text";
  snprintf(words, sizeof words, "%s: %s, %d (%s)", call, name, result, text);
  return words;
}

uint64_t treadle_cuda_card_id(const treadle_cuda_driver *driver, CUdevice card) {
  CUuuid uuid;
  return driver->device_uuid(&uuid, card) == CUDA_SUCCESS ? treadle_hash_bytes(&uuid, sizeof uuid, 0) | 1
                                                          : 0;
}

static treadle_status start(treadle_cuda_driver *driver) {
  int version = 0;
  CUresult result = driver->init(0);
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (result != CUDA_SUCCESS)
    return treadle_fail(TREADLE_REFUSED, "cuda: the driver does not start: %s%s%.100s%s",
                        treadle_cuda_words(driver, "cuInit", result),
                        visible ? "; CUDA_VISIBLE_DEVICES is '" : "", visible ? visible : "",
                        visible ? "'" : "");
  result = driver->version(&version);
  if (result != CUDA_SUCCESS || version < LEAST_VERSION)
    return treadle_fail(
        TREADLE_REFUSED, "cuda: the driver on this machine has version %d.%d; treadle needs %d.%d or later",
        version / 1000, version % 1000 / 10, LEAST_VERSION / 1000, LEAST_VERSION % 1000 / 10);
  return TREADLE_OK;
}

/* A library that was started stays. */
static treadle_status open_driver(void) {
  treadle_status status;
  treadle_cuda_driver driver;
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return treadle_fail(TREADLE_REFUSED,
                        "cuda: there is no driver library (%s): CUDA devices need NVIDIA's driver",
                        dlerror());
  status = find_all(library, &driver);
  if (status != TREADLE_OK) {
    dlclose(library);
    return status;
  }
  TRY(start(&driver));
  started = driver;
  starter = getpid();
out:
  return status;
}

treadle_status treadle_cuda_driver_get(const treadle_cuda_driver **driver_p) {
  treadle_status status = TREADLE_OK;
  pthread_mutex_lock(&lock);
  if (starter == 0)
    status = open_driver();
  else if (starter != getpid())
    status =
        treadle_fail(TREADLE_REFUSED,
                     "cuda: this process was forked from one that had started the driver, which does not "
                     "work in a child: start it anew (spawn, not fork)");
  pthread_mutex_unlock(&lock);
  *driver_p = status == TREADLE_OK ? &started : NULL;
  return status;
}
