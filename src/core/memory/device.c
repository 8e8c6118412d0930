/* Which kinds of devices there are. */
#include "memory/device.h"

#include "base/argument.h"
#include "memory/copy.h"
#include "memory/device_cuda.h"
#include "memory/device_host.h"

#include <stdio.h>

const treadle_device *treadle_device_plain(void) {
  static const treadle_device plain = {.ops = &treadle_host_plain_ops};
  return &plain;
}

const treadle_device *treadle_device_host(void) {
  static const treadle_device fast = {.ops = &treadle_host_fast_ops};
  return treadle_copy_choose() == TREADLE_MOVER_STREAM ? &fast : treadle_device_plain();
}

bool treadle_device_is_host(const treadle_device *device) {
  return device->ops->plain == treadle_device_plain()->ops;
}

treadle_status treadle_device_finish(const treadle_device *device, treadle_status status) {
  char message[512];
  snprintf(message, sizeof message, "%s", treadle_error_message());
  const treadle_status finished = device->ops->fence(device);
  if (status == TREADLE_OK) return finished;
  return finished == TREADLE_OK ? status : treadle_fail(status, "%s", message);
}

static const treadle_device_ops *host(void) { return treadle_device_host()->ops; }
static const treadle_device_ops *cuda(void) { return &treadle_cuda_ops; }

/* By treadle_memory_kind. */
static const struct {
  const char *name;
  const treadle_device_ops *(*get)(void);
  treadle_status (*find)(uint64_t id, int *number_p); /* NULL: there is one device */
  treadle_status (*reaches)(int number, int other);
} kinds[] = {[TREADLE_MEMORY_HOST] = {"host", host, NULL, NULL},
             [TREADLE_MEMORY_CUDA] = {"cuda", cuda, treadle_cuda_find, treadle_cuda_reaches}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const treadle_device_ops *registered[KINDS];

static bool is_whole(const treadle_device_ops *o) {
  return o->name && o->open && o->close && o->renew && o->fault && o->room && o->figures && o->create &&
         o->destroy && o->base && o->held_bytes && o->map && o->remap && o->follow && o->trim &&
         o->protect && o->close_window && o->export_count && o->export_part && o->import_begin &&
         o->import_part && o->view && o->unimport && o->scratch && o->scratch_release && o->pin &&
         o->unpin && o->copy && o->pack && o->blocks && o->prepare && o->work_release && o->run &&
         o->mark && o->passed && o->fence && o->plain && o->move && o->fill && o->generate && o->hash;
}

static treadle_status check_table(const treadle_device_ops *ops, const char *which) {
  if (ops->struct_size < sizeof *ops)
    return treadle_fail(TREADLE_REFUSED, "treadle_device_register: %s of %zu bytes; it has %zu", which,
                        ops->struct_size, sizeof *ops);
  if (!is_whole(ops))
    return treadle_fail(TREADLE_REFUSED, "treadle_device_register: %s lacks a function, or the name",
                        which);
  return TREADLE_OK;
}

treadle_status treadle_device_register(treadle_memory_kind kind, const treadle_device_ops *ops) {
  treadle_status status;
  TRY(TREADLE_CHECK_ENUM(kind, KINDS));
  if (kind == TREADLE_MEMORY_HOST)
    TRY(treadle_fail(TREADLE_REFUSED, "treadle_device_register: memory of kind '%s' is the library's own",
                     kinds[kind].name));
  if (ops) TRY(check_table(ops, "a table"));
  if (ops) TRY(check_table(ops->plain, "a plain table"));
  registered[kind] = ops;
out:
  return status;
}

treadle_status treadle_device_open(const treadle_memory *memory, treadle_device *device_p) {
  static const treadle_memory on_host = {.kind = TREADLE_MEMORY_HOST};
  if (!memory) memory = &on_host;
  if ((size_t)memory->kind >= KINDS)
    return treadle_fail(TREADLE_REFUSED, "memory: %d is not a kind of memory", (int)memory->kind);
  const treadle_device_ops *ops =
      registered[memory->kind] ? registered[memory->kind] : kinds[memory->kind].get();
  *device_p = (treadle_device){
      .ops = ops, .kind = memory->kind, .number = memory->device, .stream = memory->stream};
  const treadle_status status = ops->open(memory, device_p);
  if (status != TREADLE_OK) *device_p = (treadle_device){0};
  return status;
}

treadle_status treadle_device_find(treadle_memory_kind kind, uint64_t id, int number, int *number_p) {
  *number_p = number;
  if ((size_t)kind >= KINDS)
    return treadle_fail(TREADLE_REFUSED, "memory: %d is not a kind of memory", (int)kind);
  if (!kinds[kind].find || registered[kind]) return TREADLE_OK;
  return kinds[kind].find(id, number_p);
}

treadle_status treadle_device_reaches(const treadle_device *device, int number) {
  if (number == device->number || !kinds[device->kind].reaches || registered[device->kind])
    return TREADLE_OK;
  return kinds[device->kind].reaches(device->number, number);
}

void treadle_device_close(treadle_device *device) {
  if (device->ops) device->ops->close(device);
  *device = (treadle_device){0};
}
