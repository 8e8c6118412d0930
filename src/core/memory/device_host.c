/* Host memory as a device. Pools are files without a name (pool.c); work is done at once, by the thread that asks. */
#include "memory/device_host.h"

#include "base/alloc.h"
#include "base/text.h"
#include "memory/copy.h"
#include "memory/copy_stream.h"
#include "treadle_device.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

/* ---- Life ---- */

static treadle_status open(const treadle_memory *memory, treadle_device *device) {
  (void)device;
  if (memory->device == 0 && !memory->stream) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED,
                      "memory of kind 'host' has one device, 0, and no streams: not device %d%s",
                      memory->device, memory->stream ? " and a stream" : "");
}

static void close(treadle_device *device) { (void)device; }

static const char *fault(const treadle_device *device, const void *memory, size_t bytes,
                         treadle_maps **maps_p) {
  (void)device;
  if (maps_p && !*maps_p) *maps_p = treadle_maps_read();
  return treadle_maps_fault(maps_p ? *maps_p : NULL, memory, bytes);
}

static treadle_status room(const treadle_device *device, treadle_device_room *room_p) {
  (void)device;
  *room_p = (treadle_device_room){0};
  return TREADLE_OK;
}

static void figures(const treadle_device *device, treadle_device_figures *figures_p) {
  (void)device;
  *figures_p = (treadle_device_figures){0};
}

/* ---- Pages ---- */

static treadle_status create(const treadle_device *device, int64_t pages, int64_t page_bytes,
                             int64_t budget_bytes, const treadle_view_of *views, int view_count,
                             treadle_pool **pool_p) {
  (void)device, (void)views, (void)view_count;
  return treadle_pool_create(pages, page_bytes, budget_bytes, pool_p);
}

/* Where the system does not close memory, the work goes on without that guard; where it does not open it, the next write would be the end. */
static treadle_status protect(treadle_pool *pool, void *at, size_t bytes, treadle_access access) {
  static const int uses[] = {[TREADLE_ACCESS_NONE] = PROT_NONE,
                             [TREADLE_ACCESS_READ] = PROT_READ,
                             [TREADLE_ACCESS_BOTH] = PROT_READ | PROT_WRITE};
  (void)pool;
  if (mprotect(at, bytes, uses[access]) == 0 || access != TREADLE_ACCESS_BOTH) return TREADLE_OK;
  return treadle_fail(TREADLE_SYSTEM, "memory: %s of a window cannot be opened again: %s",
                      treadle_text_of_size(bytes), strerror(errno));
}

/* ---- Pools of others: one file each ---- */

struct treadle_imported {
  treadle_view_of only;
  bool is_window; /* nothing but `only` is mapped */
  size_t bytes;   /* of what is mapped */
  void *base;
};

static treadle_status import_begin(const treadle_device *device, int64_t count, size_t bytes,
                                   const treadle_view_of *only, treadle_imported **imported_p) {
  (void)device;
  *imported_p = NULL;
  if (count != 1)
    return treadle_fail(TREADLE_PEER, "a peer's memory comes in %lld descriptors, not in one",
                        (long long)count);
  treadle_imported *imported = *imported_p = treadle_alloc(sizeof *imported);
  if (!imported) return treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out");
  *imported = (treadle_imported){.is_window = only, .bytes = bytes};
  if (only) imported->only = *only;
  if (only) imported->bytes = (size_t)only->pages << only->page_shift;
  return TREADLE_OK;
}

static treadle_status import(treadle_imported *imported, int64_t first, int count, const int *descriptors) {
  const treadle_view_of *only = &imported->only;
  assert(first == 0 && count == 1);
  (void)first, (void)count;
  return imported->is_window ? treadle_pool_map_peer_window(*descriptors, only->table, only->pages,
                                                            (int64_t)1 << only->page_shift, &imported->base)
                             : treadle_pool_map_peer(*descriptors, imported->bytes, &imported->base);
}

static treadle_status view(treadle_imported *imported, const treadle_view_of *window,
                           treadle_paged *paged_p) {
  *paged_p = (treadle_paged){.base = imported->base};
  if (imported->is_window || !window->table) return TREADLE_OK;
  paged_p->table = window->table;
  paged_p->page_shift = window->page_shift;
  return TREADLE_OK;
}

static void unimport(treadle_imported *imported) {
  if (!imported) return;
  treadle_pool_unmap_peer(imported->base, imported->bytes);
  treadle_free(imported);
}

/* ---- Memory beside pools ---- */

static void *scratch(const treadle_device *device, size_t bytes) {
  (void)device;
  void *memory = treadle_alloc(bytes + 1);
  if (memory) memset(memory, 0, bytes + 1);
  return memory;
}

static void scratch_release(const treadle_device *device, void *memory) {
  (void)device;
  treadle_free(memory);
}

/* All memory is what the device reads and writes. */
static treadle_status pin(const treadle_device *device, void *host, size_t bytes) {
  (void)device, (void)host, (void)bytes;
  return TREADLE_OK;
}

static void unpin(const treadle_device *device, void *host) { (void)device, (void)host; }

/* ---- Ops and blocks ---- */

static void copy_by(const treadle_op *ops, const treadle_paged *from, const treadle_paged *to, size_t count,
                    treadle_mover mover) {
  for (size_t i = 0; i < count; i++)
    treadle_copy_op(&ops[i], ops[i].source < 0 ? NULL : &from[i], &to[i], mover);
}

static void copy_fast(const treadle_device *device, const treadle_op *ops, const treadle_paged *from,
                      const treadle_paged *to, size_t count) {
  (void)device;
  copy_by(ops, from, to, count, TREADLE_MOVER_STREAM);
}

static void copy_plain(const treadle_device *device, const treadle_op *ops, const treadle_paged *from,
                       const treadle_paged *to, size_t count) {
  (void)device;
  copy_by(ops, from, to, count, TREADLE_MOVER_PLAIN);
}

static void pack_fast(const treadle_device *device, const treadle_op *ops, const treadle_paged *from,
                      const treadle_paged *to, size_t count) {
  (void)device;
  for (size_t i = 0; i < count; i++)
    copy_by(&ops[i], &from[i], &to[i], 1,
            ops[i].from_dtype == ops[i].to_dtype ? TREADLE_MOVER_PLAIN : TREADLE_MOVER_STREAM);
}

static void blocks_fast(const treadle_device *device, const treadle_strip *strips, size_t count) {
  (void)device;
  for (size_t i = 0; i < count; i++) treadle_strip_make(&strips[i], TREADLE_MOVER_STREAM);
}

static void blocks_plain(const treadle_device *device, const treadle_strip *strips, size_t count) {
  (void)device;
  for (size_t i = 0; i < count; i++) treadle_strip_make(&strips[i], TREADLE_MOVER_PLAIN);
}

/* ---- Lists of ops ---- */

struct treadle_work {
  const treadle_op *ops;
  treadle_paged *from, *to; /* [count] */
  size_t count;
};

static treadle_status prepare(const treadle_device *device, const treadle_op *ops,
                              const treadle_paged *from, const treadle_paged *to, size_t count,
                              treadle_work **work_p) {
  (void)device;
  treadle_work *work = *work_p = treadle_alloc(sizeof *work);
  treadle_paged *views = work ? treadle_alloc_array(2 * count + 1, sizeof *views) : NULL;
  if (!views) {
    treadle_free(work);
    *work_p = NULL;
    return treadle_fail(TREADLE_NO_MEMORY, "memory: memory is out");
  }
  *work = (treadle_work){.ops = ops, .from = views, .to = views + count, .count = count};
  if (count > 0) memcpy(work->from, from, count * sizeof *from);
  if (count > 0) memcpy(work->to, to, count * sizeof *to);
  return TREADLE_OK;
}

static void work_release(treadle_work *work) {
  if (!work) return;
  treadle_free(work->from);
  treadle_free(work);
}

static void run_by(const treadle_work *work, size_t first, size_t count, treadle_written *written,
                   treadle_mover mover) {
  assert(first + count <= work->count);
  for (size_t i = 0; i < count; i++) {
    const treadle_op *op = &work->ops[first + i];
    treadle_copy_op(op, op->source < 0 ? NULL : &work->from[first + i], &work->to[first + i], mover);
    written[i].times++;
    written[i].bytes += op->elems * (int64_t)treadle_dtype_bytes((treadle_dtype)op->to_dtype);
    written[i].mark += treadle_op_mark(op);
  }
}

static void run_fast(const treadle_device *device, const treadle_work *work, size_t first, size_t count,
                     treadle_written *written) {
  (void)device;
  run_by(work, first, count, written, TREADLE_MOVER_STREAM);
}

static void run_plain(const treadle_device *device, const treadle_work *work, size_t first, size_t count,
                      treadle_written *written) {
  (void)device;
  run_by(work, first, count, written, TREADLE_MOVER_PLAIN);
}

/* ---- Order: work is done when the call returns; a ticket makes others see it ---- */

static treadle_ticket mark(const treadle_device *device) {
  (void)device;
  treadle_copy_fence();
  return (treadle_ticket){0};
}

static treadle_status passed(const treadle_device *device, treadle_ticket ticket, bool *passed_p) {
  (void)device, (void)ticket;
  *passed_p = true;
  return TREADLE_OK;
}

static treadle_status renew(const treadle_device *device) {
  (void)device;
  return TREADLE_OK;
}

static treadle_status fence(const treadle_device *device) {
  (void)device;
  treadle_copy_fence();
  return TREADLE_OK;
}

/* ---- Bytes ---- */

/* Like memcpy, at the speed of memory: by pieces, whose four streams stay near each other. */
static void move_fast(const treadle_device *device, void *to, const void *from, size_t bytes) {
  enum { PIECE = 2 << 20 };
  size_t whole = bytes / PIECE * PIECE, rest = bytes - whole;
  (void)device;
  treadle_stream_rows(to, PIECE, from, PIECE, PIECE, bytes / PIECE);
  treadle_stream_rows((char *)to + whole, rest, (const char *)from + whole, rest, rest, 1);
}

static void move_plain(const treadle_device *device, void *to, const void *from, size_t bytes) {
  (void)device;
  memcpy(to, from, bytes);
}

static void fill(const treadle_device *device, void *at, int byte, size_t bytes) {
  (void)device;
  memset(at, byte, bytes);
}

/* ---- Elements ---- */

static void generate(const treadle_device *device, const treadle_elements *elements, void *window) {
  (void)device;
  treadle_elements_generate(elements, window);
}

static treadle_status hash(const treadle_device *device, const treadle_elements *elements,
                           const void *const *windows, size_t count, uint64_t *sums) {
  (void)device;
  for (size_t i = 0; i < count; i++) sums[i] = treadle_elements_hash(&elements[i], windows[i]);
  return TREADLE_OK;
}

/* What both rows have alike. */
#define HOST                                                                                               \
  .net_memory = TREADLE_NET_HOST, .pin = pin, .unpin = unpin, .open = open, .close = close,                \
  .renew = renew, .guards = true, .fault = fault, .room = room, .figures = figures, .create = create,      \
  .destroy = treadle_pool_destroy, .base = treadle_pool_base, .held_bytes = treadle_pool_held_bytes,       \
  .map = treadle_pool_map, .remap = treadle_pool_remap, .follow = treadle_pool_follow,                     \
  .trim = treadle_pool_trim, .protect = protect, .close_window = treadle_pool_close_window,                \
  .export_count = treadle_pool_export_count, .export_part = treadle_pool_export,                           \
  .import_begin = import_begin, .import_part = import, .view = view, .unimport = unimport,                 \
  .scratch = scratch, .scratch_release = scratch_release, .prepare = prepare,                              \
  .work_release = work_release, .mark = mark, .passed = passed, .fence = fence,                            \
  .plain = &treadle_host_plain_ops, .fill = fill, .generate = generate, .hash = hash

const treadle_device_ops treadle_host_fast_ops = {.name = "host",
                                                  HOST,
                                                  .copy = copy_fast,
                                                  .run = run_fast,
                                                  .pack = pack_fast,
                                                  .blocks = blocks_fast,
                                                  .move = move_fast};

const treadle_device_ops treadle_host_plain_ops = {.name = "host, plain",
                                                   HOST,
                                                   .copy = copy_plain,
                                                   .run = run_plain,
                                                   .pack = copy_plain,
                                                   .blocks = blocks_plain,
                                                   .move = move_plain};
