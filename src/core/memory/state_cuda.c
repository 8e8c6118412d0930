#include "memory/state_cuda.h"

#include "base/alloc.h"
#include "memory/host.h"
#include "memory/image_cuda.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- Calls of the driver ---- */

/* A graph that another stream of this thread is capturing at the time stays as it is. */
static void exchange_capture_mode(treadle_cuda *cuda) {
  treadle_cuda_keep(cuda, "cuThreadExchangeStreamCaptureMode",
                    cuda->driver->capture_mode(&cuda->capture_mode));
}

void treadle_cuda_enter(treadle_cuda *cuda) {
  pthread_mutex_lock(&cuda->lock);
  cuda->capture_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  exchange_capture_mode(cuda);
  cuda->entered = treadle_cuda_keep(cuda, "cuCtxPushCurrent", cuda->driver->context_push(cuda->context));
  /* That is kept; and yet, what ends now needs the context. */
  if (!cuda->entered) cuda->entered = cuda->driver->context_push(cuda->context) == CUDA_SUCCESS;
}

void treadle_cuda_leave(treadle_cuda *cuda) {
  CUcontext context;
  if (cuda->entered) treadle_cuda_keep(cuda, "cuCtxPopCurrent", cuda->driver->context_pop(&context));
  exchange_capture_mode(cuda);
  pthread_mutex_unlock(&cuda->lock);
}

treadle_status treadle_cuda_fail(const treadle_cuda *cuda, const char *call, CUresult result) {
  return treadle_fail(result == CUDA_ERROR_OUT_OF_MEMORY ? TREADLE_NO_MEMORY : TREADLE_SYSTEM,
                      "cuda: device %d: %s", cuda->card, treadle_cuda_words(cuda->driver, call, result));
}

void treadle_cuda_keep_text(treadle_cuda *cuda, const char *format, ...) {
  char text[200];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  if (!cuda->failed) snprintf(cuda->text, sizeof cuda->text, "cuda: device %d: %s", cuda->card, text);
  cuda->failed = true;
}

bool treadle_cuda_keep(treadle_cuda *cuda, const char *call, CUresult result) {
  if (result == CUDA_SUCCESS) return true;
  treadle_cuda_keep_text(cuda, "%s", treadle_cuda_words(cuda->driver, call, result));
  return false;
}

treadle_status treadle_cuda_say(const treadle_cuda *cuda) {
  return cuda->failed ? treadle_fail(TREADLE_SYSTEM, "%s", cuda->text) : TREADLE_OK;
}

bool treadle_cuda_ask_pointer(treadle_cuda *cuda, int attribute, const void *at, void *value_p) {
  const CUresult result = cuda->driver->pointer_attribute(value_p, attribute, (uintptr_t)at);
  if (result != CUDA_ERROR_INVALID_VALUE) treadle_cuda_keep(cuda, "cuPointerGetAttribute", result);
  return result == CUDA_SUCCESS;
}

/* ---- Cards that are open ---- */

static pthread_mutex_t cards_lock = PTHREAD_MUTEX_INITIALIZER;
static int devices_on[TREADLE_CUDA_CARDS]; /* by card */

static void count_card(CUdevice card, int more) {
  if (card < 0 || card >= TREADLE_CUDA_CARDS) return;
  pthread_mutex_lock(&cards_lock);
  devices_on[card] += more;
  pthread_mutex_unlock(&cards_lock);
}

void treadle_cuda_cards(bool in_use[TREADLE_CUDA_CARDS]) {
  pthread_mutex_lock(&cards_lock);
  for (int i = 0; i < TREADLE_CUDA_CARDS; i++) in_use[i] = devices_on[i] > 0;
  pthread_mutex_unlock(&cards_lock);
}

/* ---- Open ---- */

static treadle_status attribute(const treadle_cuda *cuda, int which, int *value_p) {
  treadle_status status = TREADLE_OK;
  *value_p = 0;
  CUDA_TRY(cuda, "cuDeviceGetAttribute", cuda->driver->device_attribute(value_p, which, cuda->card));
out:
  return status;
}

static treadle_status check_card(treadle_cuda *cuda) {
  treadle_status status;
  int major, minor, windows, handles, processors, pointers;
  TRY(attribute(cuda, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major));
  TRY(attribute(cuda, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor));
  TRY(attribute(cuda, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &windows));
  TRY(attribute(cuda, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, &handles));
  TRY(attribute(cuda, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &processors));
  TRY(attribute(cuda, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, &pointers));
  if (major < 8)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "cuda: device %d has compute capability %d.%d; treadle needs 8.0 or more", cuda->card,
                     major, minor));
  if (!windows || !handles || !pointers)
    TRY(treadle_fail(TREADLE_REFUSED, "cuda: device %d has no %s", cuda->card,
                     !windows   ? "virtual memory management"
                     : !handles ? "memory that other processes can be given by a descriptor"
                                : "use of pinned memory at the address that it has on the host"));
  cuda->blocks_at_once = TREADLE_CUDA_BLOCKS_AT_ONCE * (unsigned)(processors > 0 ? processors : 1);
out:
  return status;
}

static treadle_status find_card(treadle_cuda *cuda, int number) {
  treadle_status status = TREADLE_OK;
  int count = 0;
  cuda->card = number;
  CUDA_TRY(cuda, "cuDeviceGetCount", cuda->driver->device_count(&count));
  if (number < 0 || number >= count)
    TRY(treadle_fail(TREADLE_REFUSED, "cuda: there is no device %d: this process sees %d%s", number, count,
                     count > 0 ? ", counted from 0" : ""));
  CUDA_TRY(cuda, "cuDeviceGet", cuda->driver->device_get(&cuda->card, number));
  TRY(check_card(cuda));
out:
  return status;
}

/* A stream that is being captured takes no work that waits for others. Nor does the default stream, while a stream that waits for it is: then the
 * question itself is answered so. */
static CUresult ask_whether_capturing(const treadle_cuda *cuda, bool *capturing_p) {
  int capturing = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = cuda->driver->stream_is_capturing(cuda->callers, &capturing);
  *capturing_p = result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT || (!result && capturing);
  return *capturing_p ? CUDA_SUCCESS : result;
}

static treadle_status check_stream(const treadle_cuda *cuda) {
  treadle_status status = TREADLE_OK;
  bool capturing;
  CUDA_TRY(cuda, "cuStreamIsCapturing", ask_whether_capturing(cuda, &capturing));
  if (capturing)
    TRY(treadle_fail(TREADLE_REFUSED, "cuda: device %d: the stream of the caller is capturing a graph%s",
                     cuda->card, cuda->callers ? "" : ", or one that waits for it, the default stream"));
out:
  return status;
}

/* The handle of CUDA that stands for another stream on each thread. */
static treadle_status check_handle(const treadle_cuda *cuda) {
  if ((uintptr_t)cuda->callers != CU_STREAM_PER_THREAD) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED,
                      "cuda: device %d: the stream is CU_STREAM_PER_THREAD (handle 2), another one on each "
                      "thread: give one of your own, or NULL",
                      cuda->card);
}

static treadle_status load_kernels(treadle_cuda *cuda) {
  treadle_status status = TREADLE_OK;
  char call[60];
  const struct {
    const char *name;
    CUfunction *function_p;
  } kernels[] = {{"treadle_cuda_copy", &cuda->copy},
                 {"treadle_cuda_blocks", &cuda->blocks},
                 {"treadle_cuda_generate", &cuda->generate},
                 {"treadle_cuda_hash", &cuda->hash}};
  const CUresult loaded = cuda->driver->module_load(&cuda->module, treadle_cuda_image);
  if (loaded != CUDA_SUCCESS && !treadle_cuda_image_is_built())
    TRY(treadle_fail(
        TREADLE_REFUSED,
        "cuda: this library was built without kernels: run make cuda, then build it again (%s)",
        treadle_cuda_words(cuda->driver, "cuModuleLoadData", loaded)));
  CUDA_TRY(cuda, "cuModuleLoadData", loaded);
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
    snprintf(call, sizeof call, "cuModuleGetFunction of %s", kernels[i].name);
    CUDA_TRY(cuda, call,
             cuda->driver->module_function(kernels[i].function_p, cuda->module, kernels[i].name));
    /* Now, and not with its first launch: then the card may be full. */
    snprintf(call, sizeof call, "cuFuncLoad of %s", kernels[i].name);
    CUDA_TRY(cuda, call, cuda->driver->function_load(*kernels[i].function_p));
  }
out:
  return status;
}

static treadle_status find_granularity(treadle_cuda *cuda) {
  treadle_status status = TREADLE_OK;
  const CUmemAllocationProp wanted = treadle_cuda_memory_of(cuda->card);
  CUDA_TRY(cuda, "cuMemGetAllocationGranularity",
           cuda->driver->granularity(&cuda->granularity, &wanted, 0));
out:
  return status;
}

treadle_status treadle_cuda_pin(const treadle_cuda *cuda, void *host, size_t bytes) {
  treadle_status status = TREADLE_OK;
  CUDA_TRY(
      cuda, "cuMemHostRegister",
      cuda->driver->host_register(host, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
out:
  return status;
}

static treadle_status make_room(treadle_cuda *cuda) {
  treadle_status status = TREADLE_OK;
  char *room = treadle_host_create_alone(TREADLE_CUDA_ROOM, "the kernels' tables");
  if (!room) return TREADLE_NO_MEMORY;
  TRY(treadle_cuda_pin(cuda, room, TREADLE_CUDA_ROOM));
  cuda->room = room;
out:
  if (status != TREADLE_OK) treadle_host_destroy(room, TREADLE_CUDA_ROOM);
  return status;
}

static treadle_status make_order(treadle_cuda *cuda) {
  treadle_status status = TREADLE_OK;
  const treadle_cuda_driver *driver = cuda->driver;
  TRY(check_handle(cuda));
  TRY(check_stream(cuda));
  CUDA_TRY(cuda, "cuStreamCreate", driver->stream_create(&cuda->stream, CU_STREAM_DEFAULT));
  CUDA_TRY(cuda, "cuEventCreate", driver->event_create(&cuda->given, CU_EVENT_DISABLE_TIMING));
  for (int i = 0; i < TREADLE_CUDA_MARKS; i++)
    CUDA_TRY(cuda, "cuEventCreate", driver->event_create(&cuda->marks[i], CU_EVENT_DEFAULT));
  CUDA_TRY(cuda, "cuEventCreate", driver->event_create(&cuda->begun, CU_EVENT_DEFAULT));
  CUDA_TRY(cuda, "cuEventCreate", driver->event_create(&cuda->ended, CU_EVENT_DEFAULT));
out:
  return status;
}

static treadle_status build(treadle_cuda *cuda) {
  treadle_status status;
  TRY(treadle_cuda_say(cuda));
  TRY(load_kernels(cuda));
  TRY(find_granularity(cuda));
  TRY(make_order(cuda));
  TRY(make_room(cuda));
out:
  return status;
}

treadle_status treadle_cuda_open(const treadle_memory *memory, treadle_device *device) {
  treadle_status status;
  treadle_cuda *cuda = NULL;
  const treadle_cuda_driver *driver;
  TRY(treadle_cuda_driver_get(&driver));
  cuda = treadle_alloc(sizeof *cuda);
  if (!cuda) TRY(treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out"));
  *cuda = (treadle_cuda){.driver = driver, .callers = memory->stream};
  pthread_mutex_init(&cuda->lock, NULL);
  TRY(find_card(cuda, memory->device));
  CUDA_TRY(cuda, "cuDevicePrimaryCtxRetain", driver->context_retain(&cuda->context, cuda->card));
  device->state = cuda;
  count_card(cuda->card, 1);
  treadle_cuda_enter(cuda);
  status = build(cuda);
  treadle_cuda_leave(cuda);
  if (status == TREADLE_OK) TRY(treadle_cuda_say(cuda));
  if (treadle_cuda_card_id(driver, cuda->card) == 0)
    TRY(treadle_fail(TREADLE_SYSTEM, "cuda: device %d has no UUID", cuda->card));
out:
  if (status == TREADLE_OK) return TREADLE_OK;
  if (device->state) {
    treadle_cuda_close(device);
  } else if (cuda) {
    pthread_mutex_destroy(&cuda->lock);
    treadle_free(cuda);
  }
  return status;
}

void treadle_cuda_close(treadle_device *device) {
  treadle_cuda *cuda = device->state;
  const treadle_cuda_driver *driver = cuda->driver;
  treadle_cuda_enter(cuda);
  if (cuda->room) { /* all of it was built */
    (void)treadle_cuda_fence(cuda);
    driver->host_unregister(cuda->room);
  }
  treadle_host_destroy(cuda->room, TREADLE_CUDA_ROOM);
  for (int i = 0; i < TREADLE_CUDA_MARKS; i++)
    if (cuda->marks[i]) driver->event_destroy(cuda->marks[i]);
  CUevent others[] = {cuda->given, cuda->begun, cuda->ended};
  for (int i = 0; i < 3; i++)
    if (others[i]) driver->event_destroy(others[i]);
  if (cuda->stream) driver->stream_destroy(cuda->stream);
  if (cuda->module) driver->module_unload(cuda->module);
  treadle_cuda_leave(cuda);
  driver->context_release(cuda->card);
  count_card(cuda->card, -1);
  pthread_mutex_destroy(&cuda->lock);
  treadle_free(cuda);
  device->state = NULL;
}

/* ---- Order ---- */

/* What the caller's stream was given comes first. A capture that has begun since `renew` has no work in it that this call should see. */
static bool follow_caller(treadle_cuda *cuda) {
  const treadle_cuda_driver *driver = cuda->driver;
  bool capturing;
  if (!treadle_cuda_keep(cuda, "cuStreamIsCapturing", ask_whether_capturing(cuda, &capturing)))
    return false;
  return capturing ||
         (treadle_cuda_keep(cuda, "cuEventRecord", driver->event_record(cuda->given, cuda->callers)) &&
          treadle_cuda_keep(cuda, "cuStreamWaitEvent",
                            driver->stream_wait_event(cuda->stream, cuda->given, 0)));
}

bool treadle_cuda_ask(treadle_cuda *cuda) {
  const treadle_cuda_driver *driver = cuda->driver;
  if (cuda->failed) return false;
  cuda->asked = true;
  if (cuda->works) return true;
  if (!follow_caller(cuda)) return false;
  cuda->works = treadle_cuda_keep(cuda, "cuEventRecord", driver->event_record(cuda->begun, cuda->stream));
  return cuda->works;
}

/* All that was asked for is done: that took from `begun` to this event. */
static void rest(treadle_cuda *cuda, CUevent end) {
  float milliseconds = 0;
  if (!cuda->works) return;
  cuda->works = false;
  if (treadle_cuda_keep(cuda, "cuEventElapsedTime",
                        cuda->driver->event_seconds(&milliseconds, cuda->begun, end)))
    cuda->figures.seconds += (double)milliseconds / 1e3;
}

void treadle_cuda_launch(treadle_cuda *cuda, CUfunction function, int64_t count, void *arguments) {
  void *parameters[] = {arguments};
  const unsigned blocks = count < cuda->blocks_at_once ? (unsigned)count : cuda->blocks_at_once;
  if (blocks == 0 || !treadle_cuda_ask(cuda)) return;
  cuda->figures.launches++;
  treadle_cuda_keep(cuda, "cuLaunchKernel",
                    cuda->driver->launch(function, blocks, 1, 1, TREADLE_CUDA_THREADS, 1, 1, 0,
                                         cuda->stream, parameters, NULL));
}

/* What was written by runs that are done by now goes to their callers. */
static void add_written(treadle_cuda *cuda) {
  int kept = 0;
  for (int i = 0; i < cuda->run_count; i++) {
    if (cuda->runs[i].at <= cuda->done)
      treadle_cuda_add_written(&cuda->runs[i]);
    else
      cuda->runs[kept++] = cuda->runs[i];
  }
  cuda->run_count = kept;
}

/* Tickets pass in their order. */
static void look(treadle_cuda *cuda) {
  const uint64_t before = cuda->done;
  while (!cuda->failed && cuda->done < cuda->marked) {
    const CUresult result = cuda->driver->event_query(cuda->marks[(cuda->done + 1) % TREADLE_CUDA_MARKS]);
    if (result == CUDA_ERROR_NOT_READY) break;
    if (treadle_cuda_keep(cuda, "cuEventQuery", result)) cuda->done++;
  }
  if (cuda->done == before) return;
  add_written(cuda);
  if (cuda->done == cuda->marked && !cuda->asked && !cuda->failed)
    rest(cuda, cuda->marks[cuda->done % TREADLE_CUDA_MARKS]);
}

treadle_ticket treadle_cuda_mark(treadle_cuda *cuda) {
  if (!cuda->asked || cuda->failed) return (treadle_ticket){cuda->marked};
  if (cuda->marked - cuda->done == TREADLE_CUDA_MARKS - 1) (void)treadle_cuda_fence(cuda);
  if (!cuda->asked) return (treadle_ticket){cuda->marked};
  CUevent event = cuda->marks[(cuda->marked + 1) % TREADLE_CUDA_MARKS];
  if (treadle_cuda_keep(cuda, "cuEventRecord", cuda->driver->event_record(event, cuda->stream))) {
    cuda->marked++;
    cuda->asked = false;
  }
  return (treadle_ticket){cuda->marked};
}

treadle_status treadle_cuda_passed(treadle_cuda *cuda, treadle_ticket ticket, bool *passed_p) {
  look(cuda);
  *passed_p = cuda->done >= ticket.at;
  return treadle_cuda_say(cuda);
}

treadle_status treadle_cuda_fence(treadle_cuda *cuda) {
  /* What the caller's stream was given is waited for, too, if nothing was asked for since. */
  if (!cuda->works) (void)treadle_cuda_ask(cuda);
  if (cuda->works && !cuda->failed)
    treadle_cuda_keep(cuda, "cuEventRecord", cuda->driver->event_record(cuda->ended, cuda->stream));
  /* A call that failed may not have waited. On a lost device nothing runs, and the second call returns at once. */
  if (!treadle_cuda_keep(cuda, "cuStreamSynchronize", cuda->driver->stream_synchronize(cuda->stream)))
    (void)cuda->driver->stream_synchronize(cuda->stream);
  if (!cuda->failed) {
    if (cuda->asked) cuda->marked++; /* the moment of what was asked for since the last mark */
    cuda->asked = false;
    cuda->done = cuda->marked;
    add_written(cuda);
    rest(cuda, cuda->ended);
  }
  cuda->run_count = 0;
  cuda->used = 0;
  return treadle_cuda_say(cuda);
}

/* A device that is lost says so to every call. */
treadle_status treadle_cuda_renew(treadle_cuda *cuda) {
  treadle_status status;
  if (cuda->failed && cuda->driver->stream_synchronize(cuda->stream) == CUDA_SUCCESS) {
    cuda->failed = cuda->asked = cuda->works = false;
    cuda->done = cuda->marked;
    cuda->run_count = 0;
    cuda->used = 0;
  }
  TRY(treadle_cuda_say(cuda));
  TRY(check_stream(cuda));
out:
  return status;
}

void treadle_cuda_make_room(treadle_cuda *cuda, size_t bytes) {
  if (cuda->used + bytes > TREADLE_CUDA_ROOM) (void)treadle_cuda_fence(cuda);
}

void *treadle_cuda_room(treadle_cuda *cuda, size_t bytes) {
  enum { ALIGNMENT = 64 };
  bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  treadle_cuda_make_room(cuda, bytes);
  char *at = cuda->room + cuda->used;
  cuda->used += bytes;
  return at;
}
