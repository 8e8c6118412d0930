#include "memory/device_far.h"

#include "base/dtype.h"
#include "base/random.h"
#include "memory/copy.h"
#include "memory/device_host.h"
#include "treadle_device.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

/* ---- Addresses ---- */

/* [bytes] without access, and where the functions reach them. */
typedef struct span {
  struct span *next;
  char *far, *near;
  size_t bytes;
} span;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static span *spans; /* of all devices: ranks that are threads read each other's */

static void *far_of(void *near, size_t bytes) {
  if (!near || bytes == 0) return NULL;
  span *s = malloc(sizeof *s);
  assert_non_null(s);
  *s = (span){.near = near, .bytes = bytes};
  s->far = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  assert_ptr_not_equal(s->far, MAP_FAILED);
  pthread_mutex_lock(&lock);
  s->next = spans;
  spans = s;
  pthread_mutex_unlock(&lock);
  return s->far;
}

/* Host memory is where it is. */
static void *near_of(const void *at) {
  const char *byte = at;
  char *found = NULL;
  pthread_mutex_lock(&lock);
  for (span *s = spans; s && !found; s = s->next)
    if (byte >= s->far && byte < s->far + s->bytes) found = s->near + (byte - s->far);
  pthread_mutex_unlock(&lock);
  if (found || !at) return found;
  memcpy(&found, &at, sizeof found);
  return found;
}

/* The near side of what begins there, which is forgotten; NULL: nothing does. */
static void *forget(const void *far, size_t *bytes_p) {
  void *near = NULL;
  pthread_mutex_lock(&lock);
  for (span **s = &spans; *s; s = &(*s)->next) {
    if ((*s)->far != far) continue;
    span *gone = *s;
    *s = gone->next;
    near = gone->near;
    *bytes_p = gone->bytes;
    munmap(gone->far, gone->bytes);
    free(gone);
    break;
  }
  pthread_mutex_unlock(&lock);
  return near;
}

/* Offsets of what an op reads or writes in a view: from the first byte to behind the last. */
typedef struct extent {
  int64_t first, end;
} extent;

static extent extent_of(const treadle_op *op, bool written) {
  const int64_t *stride = written ? op->to_stride : op->from_stride;
  extent e = {written ? op->to : op->from, 0};
  e.end = e.first + (int64_t)treadle_dtype_bytes((treadle_dtype)(written ? op->to_dtype : op->from_dtype));
  for (int d = 0; d < op->ndim; d++) *(stride[d] < 0 ? &e.first : &e.end) += (op->size[d] - 1) * stride[d];
  return e;
}

/* A view of one piece may begin outside of its memory: of own tensors, only what an op touches is there. */
static treadle_paged near_view(const treadle_paged *view, const treadle_op *op, bool written) {
  const int64_t at = view->table ? 0 : extent_of(op, written).first;
  treadle_paged found = *view;
  found.base = (const char *)near_of((const char *)view->base + at) - at;
  if (view->into) found.into = (char *)near_of((char *)view->into + at) - at;
  return found;
}

/* ---- Work that waits ---- */

typedef struct job {
  struct job *next;
  void (*run)(struct job *j, treadle_random *random);
  treadle_op op;
  bool fills; /* it reads nothing */
  treadle_paged from, to;
  const treadle_work *work;
  size_t first, count;
  treadle_written *written;
  treadle_strip strip;
  void *into;
  const void *source;
  size_t bytes;
  int byte;
  treadle_elements elements;
} job;

/* Host memory of a device's own. */
typedef struct pinned {
  struct pinned *next;
  char *at;
  size_t bytes;
} pinned;

typedef struct queue { /* a device's state */
  job *first, **last;
  pinned *pins;
  int64_t asked, done; /* calls */
  int64_t fails_at;
  bool failed;
  treadle_random random;
} queue;

static queue *queue_of(const treadle_device *device) { return device->state; }

static void add_to(queue *q, job given) {
  job *added = malloc(sizeof *added);
  assert_non_null(added);
  *added = given;
  added->next = NULL;
  *q->last = added;
  q->last = &added->next;
  q->asked++;
}

static void add(const treadle_device *device, job given) { add_to(queue_of(device), given); }

static void run_nothing(job *j, treadle_random *random) { (void)j, (void)random; }

static treadle_status say(const queue *q) {
  return q->failed ? treadle_fail(TREADLE_SYSTEM, "the far device failed at its call %lld",
                                  (long long)q->fails_at)
                   : TREADLE_OK;
}

static treadle_status work_off(queue *q, int64_t until) {
  while (q->first && q->done < until) {
    job *j = q->first;
    q->first = j->next;
    if (!q->first) q->last = &q->first;
    q->done++;
    if (q->fails_at > 0 && q->done >= q->fails_at) q->failed = true;
    if (!q->failed) j->run(j, &q->random);
    free(j);
  }
  return say(q);
}

/* A call that does what was asked for before, and then its own work. */
static treadle_status at_once(queue *q) {
  add_to(q, (job){.run = run_nothing});
  return work_off(q, q->asked);
}

/* ---- Life ---- */

static treadle_status far_open(const treadle_memory *memory, treadle_device *device) {
  queue *q = malloc(sizeof *q);
  assert_non_null(q);
  *q = (queue){.last = &q->first, .random = {(uint64_t)memory->device + 1}};
  device->state = q;
  return TREADLE_OK;
}

static void far_close(treadle_device *device) {
  queue *q = queue_of(device);
  if (!q) return;
  assert_null(q->first); /* nothing is left to do, */
  assert_null(q->pins);  /* and nothing pinned */
  free(q);
}

/* It does not come back. */
static treadle_status far_renew(const treadle_device *device) { return say(queue_of(device)); }

/* Far memory is its own; of the host's memory it reads and writes what the host may. */
static const char *far_fault(const treadle_device *device, const void *memory, size_t bytes,
                             treadle_maps **maps_p) {
  const treadle_device *host = treadle_device_host();
  (void)device;
  return host->ops->fault(host, near_of(memory), bytes, maps_p);
}

static treadle_status far_room(const treadle_device *device, treadle_device_room *room_p) {
  (void)device;
  *room_p = (treadle_device_room){0}; /* the host's */
  return TREADLE_OK;
}

static void far_figures(const treadle_device *device, treadle_device_figures *figures_p) {
  (void)device;
  *figures_p = (treadle_device_figures){0};
}

void device_far_fail_at(treadle_device *device, int64_t call) {
  queue *q = queue_of(device);
  q->fails_at = call > 0 ? q->asked + call : 0;
}

int64_t device_far_calls(const treadle_device *device) { return queue_of(device)->asked; }

/* ---- Pages: in pieces, each a file of its own ---- */

int64_t device_far_piece_pages;

enum { PIECES = 40 };

typedef struct pieces {
  int *files; /* [count] */
  int64_t count;
  size_t bytes; /* of each but the last */
} pieces;

struct treadle_pool {
  queue *queue;
  int64_t pages, page_bytes;
  pieces pieces;
  size_t bytes;
  void *base, *windows[64];
  int count;
};

static pieces pieces_of(int64_t count, size_t bytes) {
  pieces p = {.files = calloc((size_t)count + 1, sizeof *p.files), .count = count, .bytes = bytes};
  assert_non_null(p.files);
  for (int64_t i = 0; i < count; i++) p.files[i] = -1;
  return p;
}

static void pieces_release(pieces *p) {
  for (int64_t i = 0; i < p->count; i++)
    if (p->files[i] >= 0) close(p->files[i]);
  free(p->files);
}

/* `bytes` bytes from `from` on are mapped at `at`, piece by piece. */
static bool map_range(const pieces *p, char *at, size_t from, size_t bytes, int use) {
  while (bytes > 0) {
    const size_t offset = from % p->bytes, rest = p->bytes - offset, part = bytes < rest ? bytes : rest;
    if (mmap(at, part, use, MAP_SHARED | MAP_FIXED, p->files[from / p->bytes], (off_t)offset) == MAP_FAILED)
      return false;
    at += part;
    from += part;
    bytes -= part;
  }
  return true;
}

static bool map_table(const pieces *p, char *at, const int32_t *table, int64_t pages, size_t page,
                      int use) {
  for (int64_t i = 0; i < pages; i++)
    if (table[i] >= 0 && !map_range(p, at + (size_t)i * page, (size_t)table[i] * page, page, use))
      return false;
  return true;
}

static char *reserve(size_t bytes) {
  char *near = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return near == MAP_FAILED ? NULL : near;
}

static treadle_status no_mapping(void) {
  return treadle_fail(TREADLE_SYSTEM, "the far device: its memory cannot be mapped: %s", strerror(errno));
}

static void end_range(void *far) {
  size_t bytes;
  void *near = forget(far, &bytes);
  if (near) munmap(near, bytes);
}

static void far_destroy(treadle_pool *pool) {
  if (!pool) return;
  for (int i = 0; i < pool->count; i++) end_range(pool->windows[i]);
  end_range(pool->base);
  pieces_release(&pool->pieces);
  free(pool);
}

static treadle_status make_pieces(treadle_pool *pool, char *near) {
  for (int64_t i = 0; i < pool->pieces.count; i++) {
    const size_t from = (size_t)i * pool->pieces.bytes, rest = pool->bytes - from;
    const off_t bytes = (off_t)(rest < pool->pieces.bytes ? rest : pool->pieces.bytes);
    const int file = pool->pieces.files[i] = memfd_create("far-piece", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, bytes) != 0 || fallocate(file, 0, 0, bytes) != 0)
      return treadle_fail(TREADLE_SYSTEM, "the far device has no memory: %s", strerror(errno));
  }
  return map_range(&pool->pieces, near, 0, pool->bytes, PROT_READ | PROT_WRITE) ? TREADLE_OK : no_mapping();
}

static treadle_status far_create(const treadle_device *device, int64_t pages, int64_t page_bytes,
                                 int64_t budget_bytes, const treadle_view_of *views, int view_count,
                                 treadle_pool **pool_p) {
  treadle_status status = TREADLE_OK;
  (void)views, (void)view_count;
  *pool_p = NULL;
  if (pages * page_bytes > budget_bytes)
    return treadle_fail(TREADLE_NO_MEMORY, "the far device: %lld pages are over the budget",
                        (long long)pages);
  treadle_pool *pool = calloc(1, sizeof *pool);
  assert_non_null(pool);
  pool->queue = queue_of(device);
  pool->pages = pages;
  pool->page_bytes = page_bytes;
  pool->bytes = (size_t)(pages * page_bytes);
  int64_t each = device_far_piece_pages ? device_far_piece_pages : pages / PIECES + 2;
  pool->pieces = pieces_of((pages + each - 1) / each, (size_t)(each * page_bytes));
  if (pages > 0) {
    char *near = reserve(pool->bytes);
    assert_non_null(near);
    pool->base = far_of(near, pool->bytes);
    TRY(make_pieces(pool, near));
  }
  *pool_p = pool;
out:
  if (status != TREADLE_OK) far_destroy(pool);
  return status;
}

static void *far_base(const treadle_pool *pool) { return pool->base; }

static size_t far_held_bytes(const treadle_pool *pool) {
  size_t sum = 0;
  struct stat file;
  for (int64_t i = 0; i < pool->pieces.count; i++)
    if (fstat(pool->pieces.files[i], &file) == 0) sum += (size_t)file.st_blocks * 512;
  return sum;
}

static treadle_status far_map(treadle_pool *pool, const int32_t *table, int64_t pages, void **base_p) {
  const size_t bytes = (size_t)(pages * pool->page_bytes);
  *base_p = NULL;
  if (pages == 0) return TREADLE_OK;
  char *near = reserve(bytes);
  assert_non_null(near);
  assert_true(pool->count < 64);
  *base_p = pool->windows[pool->count++] = far_of(near, bytes);
  return map_table(&pool->pieces, near, table, pages, (size_t)pool->page_bytes, PROT_READ | PROT_WRITE)
             ? TREADLE_OK
             : no_mapping();
}

static treadle_status far_remap(treadle_pool *pool, void *base, const int32_t *table, int64_t pages) {
  return map_table(&pool->pieces, near_of(base), table, pages, (size_t)pool->page_bytes,
                   PROT_READ | PROT_WRITE)
             ? TREADLE_OK
             : no_mapping();
}

static treadle_status far_follow(treadle_pool *pool, void *base, void *shadow, const int32_t *table,
                                 int64_t pages) {
  (void)shadow;
  return far_remap(pool, base, table, pages);
}

static treadle_status far_trim(treadle_pool *pool, const uint8_t *classes, uint8_t nobody) {
  for (int64_t i = 0; i < pool->pages; i++) {
    const size_t at = (size_t)(i * pool->page_bytes);
    if (classes[i] == nobody &&
        fallocate(pool->pieces.files[at / pool->pieces.bytes], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)(at % pool->pieces.bytes), (off_t)pool->page_bytes) != 0)
      return treadle_fail(TREADLE_SYSTEM, "the far device keeps its pages: %s", strerror(errno));
  }
  return TREADLE_OK;
}

/* Nothing can be touched in any case; but it can fail. */
static treadle_status far_protect(treadle_pool *pool, void *at, size_t bytes, treadle_access access) {
  assert_ptr_not_equal(near_of(at), at);
  (void)bytes, (void)access;
  return at_once(pool->queue);
}

static treadle_status far_close_window(treadle_pool *pool, void *base, size_t bytes, bool closed) {
  assert_ptr_not_equal(near_of(base), base);
  (void)bytes, (void)closed;
  return at_once(pool->queue);
}

/* ---- Pieces of others ---- */

_Atomic int64_t device_far_fails_export, device_far_fails_import;

/* Is it this one that fails? */
static bool is_planted(_Atomic int64_t *left) {
  return atomic_load(left) > 0 && atomic_fetch_sub(left, 1) == 1;
}

static treadle_status give(const int *from, int count, bool reading, _Atomic int64_t *planted,
                           const char *what, int *to) {
  for (int i = 0; i < count; i++) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", from[i]);
    const bool fails = is_planted(planted);
    to[i] = fails ? -1 : reading ? open(path, O_RDONLY | O_CLOEXEC) : fcntl(from[i], F_DUPFD_CLOEXEC, 0);
    if (to[i] >= 0) continue;
    while (i-- > 0) close(to[i]), to[i] = -1;
    return treadle_fail(TREADLE_SYSTEM, "the far device does not %s", what);
  }
  return TREADLE_OK;
}

static int64_t far_export_count(const treadle_pool *pool) { return pool->pieces.count; }

static treadle_status far_export(const treadle_pool *pool, int64_t first, int count, bool reading,
                                 int *descriptors) {
  assert_true(first >= 0 && count > 0 && first + count <= pool->pieces.count);
  return give(pool->pieces.files + first, count, reading, &device_far_fails_export, "export", descriptors);
}

struct treadle_imported {
  pieces pieces;
  int64_t here; /* pieces so far */
  size_t bytes;
  void *views[64];
  int count;
};

static treadle_status far_import_begin(const treadle_device *device, int64_t count, size_t bytes,
                                       const treadle_view_of *only, treadle_imported **imported_p) {
  (void)device;
  *imported_p = NULL;
  for (int64_t i = 0; only && i < only->pages; i++)
    if (only->table[i] < 0 || (size_t)only->table[i] >= bytes >> only->page_shift)
      return treadle_fail(TREADLE_PEER, "page %lld of a peer's window is none of its memory", (long long)i);
  treadle_imported *imported = *imported_p = calloc(1, sizeof *imported);
  assert_non_null(imported);
  imported->pieces = pieces_of(count, 0);
  imported->bytes = bytes;
  return TREADLE_OK;
}

static treadle_status far_import(treadle_imported *imported, int64_t first, int count,
                                 const int *descriptors) {
  treadle_status status = TREADLE_OK;
  struct stat file;
  assert_true(first == imported->here && count > 0 && first + count <= imported->pieces.count);
  TRY(give(descriptors, count, true, &device_far_fails_import, "import", imported->pieces.files + first));
  imported->here += count;
  if (first == 0 && fstat(descriptors[0], &file) == 0) imported->pieces.bytes = (size_t)file.st_size;
out:
  return status;
}

static treadle_status far_view(treadle_imported *imported, const treadle_view_of *window,
                               treadle_paged *paged_p) {
  const size_t page = (size_t)1 << window->page_shift;
  const size_t bytes = window->table ? (size_t)window->pages * page : imported->bytes;
  const pieces *p = &imported->pieces;
  *paged_p = (treadle_paged){0};
  assert_true(imported->here == p->count && imported->count < 64);
  if (bytes == 0) return TREADLE_OK;
  char *near = reserve(bytes);
  assert_non_null(near);
  paged_p->base = imported->views[imported->count++] = far_of(near, bytes);
  const bool mapped = window->table ? map_table(p, near, window->table, window->pages, page, PROT_READ)
                                    : map_range(p, near, 0, bytes, PROT_READ);
  return mapped ? TREADLE_OK : no_mapping();
}

static void far_unimport(treadle_imported *imported) {
  if (!imported) return;
  for (int i = 0; i < imported->count; i++) end_range(imported->views[i]);
  pieces_release(&imported->pieces);
  free(imported);
}

/* ---- Memory beside pools ---- */

static void *far_scratch(const treadle_device *device, size_t bytes) {
  (void)device;
  void *near = calloc(1, bytes + 1);
  return near ? far_of(near, bytes + 1) : NULL;
}

static void far_scratch_release(const treadle_device *device, void *scratch) {
  (void)device;
  size_t bytes;
  free(forget(scratch, &bytes));
}

/* ---- Pins ---- */

static treadle_status far_pin(const treadle_device *device, void *host, size_t bytes) {
  queue *q = queue_of(device);
  pinned *added = malloc(sizeof *added);
  assert_non_null(added);
  *added = (pinned){.next = q->pins, .at = host, .bytes = bytes};
  for (const pinned *p = q->pins; p; p = p->next)
    assert_true(added->at + bytes <= p->at || p->at + p->bytes <= added->at);
  q->pins = added;
  return TREADLE_OK;
}

static void far_unpin(const treadle_device *device, void *host) {
  queue *q = queue_of(device);
  assert_null(q->first);
  for (pinned **p = &q->pins; *p; p = &(*p)->next) {
    pinned *gone = *p;
    if (gone->at != host) continue;
    *p = gone->next;
    free(gone);
    break;
  }
}

static bool is_far(const char *first, const char *end) {
  bool is = false;
  pthread_mutex_lock(&lock);
  for (span *s = spans; s && !is; s = s->next) is = first >= s->far && end <= s->far + s->bytes;
  pthread_mutex_unlock(&lock);
  return is;
}

/* The device reaches its own memory, and what is pinned. */
static void check_reach(const treadle_device *device, const treadle_paged *view, const treadle_op *op,
                        bool written, const char *call) {
  const extent e = extent_of(op, written);
  const char *first = (const char *)view->base + (view->table ? 0 : e.first),
             *end = (const char *)view->base + (view->table ? 1 : e.end);
  if (op->elems == 0 || is_far(first, end)) return;
  for (const pinned *p = queue_of(device)->pins; p; p = p->next)
    if (first >= p->at && end <= p->at + p->bytes) return;
  fprintf(stderr, "the far device: %s %s %lld bytes of host memory at %p, which are not pinned\n", call,
          written ? "writes" : "reads", (long long)(end - first), (const void *)first);
  abort();
}

/* from: NULL: it reads nothing. */
static void check_views(const treadle_device *device, const treadle_op *op, const treadle_paged *from,
                        const treadle_paged *to, const char *call) {
  if (from) check_reach(device, from, op, false, call);
  check_reach(device, to, op, true, call);
}

/* ---- Work ---- */

static void run_copy(job *j, treadle_random *random) {
  const treadle_paged from = j->fills ? j->from : near_view(&j->from, &j->op, false),
                      to = near_view(&j->to, &j->op, true);
  (void)random;
  treadle_copy_op(&j->op, j->fills ? NULL : &from, &to, TREADLE_MOVER_PLAIN);
}

static void add_copy(const treadle_device *device, const treadle_op *op, const treadle_paged *from,
                     const treadle_paged *to) {
  const bool fills = op->source < 0;
  add(device, (job){.run = run_copy,
                    .op = *op,
                    .fills = fills,
                    .from = fills ? (treadle_paged){0} : *from,
                    .to = *to});
}

/* What is read may be any host memory: a real device brings it over first. */
static void far_copy(const treadle_device *device, const treadle_op *ops, const treadle_paged *from,
                     const treadle_paged *to, size_t count) {
  for (size_t i = 0; i < count; i++) {
    check_views(device, &ops[i], NULL, &to[i], "copy");
    add_copy(device, &ops[i], from ? &from[i] : NULL, &to[i]);
  }
}

static void far_pack(const treadle_device *device, const treadle_op *ops, const treadle_paged *from,
                     const treadle_paged *to, size_t count) {
  for (size_t i = 0; i < count; i++) {
    check_views(device, &ops[i], &from[i], &to[i], "pack");
    add_copy(device, &ops[i], &from[i], &to[i]);
  }
}

static treadle_matrix near_matrix(treadle_matrix m) {
  m.base = near_of(m.base);
  if (m.into) m.into = near_of(m.into);
  return m;
}

static void run_blocks(job *j, treadle_random *random) {
  treadle_strip strip = j->strip;
  (void)random;
  strip.values = near_matrix(strip.values);
  strip.codes = near_matrix(strip.codes);
  strip.scales = near_matrix(strip.scales);
  treadle_strip_make(&strip, TREADLE_MOVER_PLAIN);
}

/* The last one first. */
static void far_blocks(const treadle_device *device, const treadle_strip *strips, size_t count) {
  for (size_t i = count; i-- > 0;) add(device, (job){.run = run_blocks, .strip = strips[i]});
}

static void run_move(job *j, treadle_random *random) {
  (void)random;
  if (j->bytes > 0) memcpy(near_of(j->into), near_of(j->source), j->bytes);
}

static void far_move(const treadle_device *device, void *to, const void *from, size_t bytes) {
  add(device, (job){.run = run_move, .into = to, .source = from, .bytes = bytes});
}

static void run_fill(job *j, treadle_random *random) {
  (void)random;
  if (j->bytes > 0) memset(near_of(j->into), j->byte, j->bytes);
}

static void far_fill(const treadle_device *device, void *at, int byte, size_t bytes) {
  add(device, (job){.run = run_fill, .into = at, .byte = byte, .bytes = bytes});
}

static void run_generate(job *j, treadle_random *random) {
  (void)random;
  treadle_elements_generate(&j->elements, near_of(j->into));
}

static void far_generate(const treadle_device *device, const treadle_elements *elements, void *window) {
  add(device, (job){.run = run_generate, .elements = *elements, .into = window});
}

static treadle_status far_hash(const treadle_device *device, const treadle_elements *elements,
                               const void *const *windows, size_t count, uint64_t *sums) {
  treadle_status status;
  TRY(at_once(queue_of(device)));
  for (size_t i = 0; i < count; i++) sums[i] = treadle_elements_hash(&elements[i], near_of(windows[i]));
out:
  return status;
}

/* ---- Lists ---- */

struct treadle_work {
  const treadle_op *ops;
  treadle_paged *from, *to;
};

static treadle_status far_prepare(const treadle_device *device, const treadle_op *ops,
                                  const treadle_paged *from, const treadle_paged *to, size_t count,
                                  treadle_work **work_p) {
  (void)device;
  treadle_work *work = *work_p = malloc(sizeof *work);
  assert_non_null(work);
  *work = (treadle_work){
      .ops = ops, .from = calloc(count + 1, sizeof *from), .to = calloc(count + 1, sizeof *to)};
  for (size_t i = 0; i < count; i++) work->from[i] = from[i], work->to[i] = to[i];
  return TREADLE_OK;
}

static void far_work_release(treadle_work *work) {
  if (!work) return;
  free(work->from);
  free(work->to);
  free(work);
}

static void run_list(job *j, treadle_random *random) {
  size_t *order = malloc((j->count + 1) * sizeof *order);
  assert_non_null(order);
  for (size_t i = 0; i < j->count; i++) {
    const size_t other = (size_t)treadle_random_below(random, (int64_t)i + 1);
    order[i] = i;
    order[i] = order[other];
    order[other] = i;
  }
  for (size_t k = 0; k < j->count; k++) {
    const size_t i = order[k], at = j->first + i;
    const treadle_op *op = &j->work->ops[at];
    const bool fills = op->source < 0;
    const treadle_paged from = fills ? j->work->from[at] : near_view(&j->work->from[at], op, false),
                        to = near_view(&j->work->to[at], op, true);
    treadle_copy_op(op, fills ? NULL : &from, &to, TREADLE_MOVER_PLAIN);
    j->written[i].times++;
    j->written[i].bytes += op->elems * (int64_t)treadle_dtype_bytes((treadle_dtype)op->to_dtype);
    j->written[i].mark += treadle_op_mark(op);
  }
  free(order);
}

static void far_run(const treadle_device *device, const treadle_work *work, size_t first, size_t count,
                    treadle_written *written) {
  for (size_t i = first; i < first + count; i++)
    check_views(device, &work->ops[i], work->ops[i].source < 0 ? NULL : &work->from[i], &work->to[i],
                "run");
  add(device, (job){.run = run_list, .work = work, .first = first, .count = count, .written = written});
}

/* ---- Order ---- */

static treadle_ticket far_mark(const treadle_device *device) {
  return (treadle_ticket){(uint64_t)queue_of(device)->asked};
}

/* A question does a part of the work at most. */
static treadle_status far_passed(const treadle_device *device, treadle_ticket ticket, bool *passed_p) {
  queue *q = queue_of(device);
  const int64_t wanted = (int64_t)ticket.at, left = wanted - q->done;
  *passed_p = false;
  if (left > 0 && treadle_random_below(&q->random, 3) == 0) return say(q);
  treadle_status status = work_off(q, left > 2 ? q->done + (left + 1) / 2 : wanted);
  *passed_p = status == TREADLE_OK && q->done >= wanted;
  return status;
}

static treadle_status far_fence(const treadle_device *device) {
  queue *q = queue_of(device);
  return work_off(q, q->asked);
}

const treadle_device_ops device_far_ops = {.struct_size = sizeof device_far_ops,
                                           .name = "far",
                                           .net_memory = TREADLE_NET_CUDA,
                                           .open = far_open,
                                           .close = far_close,
                                           .renew = far_renew,
                                           .guards = true,
                                           .fault = far_fault,
                                           .room = far_room,
                                           .figures = far_figures,
                                           .create = far_create,
                                           .destroy = far_destroy,
                                           .base = far_base,
                                           .held_bytes = far_held_bytes,
                                           .map = far_map,
                                           .remap = far_remap,
                                           .follow = far_follow,
                                           .trim = far_trim,
                                           .protect = far_protect,
                                           .close_window = far_close_window,
                                           .export_count = far_export_count,
                                           .export_part = far_export,
                                           .import_begin = far_import_begin,
                                           .import_part = far_import,
                                           .view = far_view,
                                           .unimport = far_unimport,
                                           .scratch = far_scratch,
                                           .scratch_release = far_scratch_release,
                                           .pin = far_pin,
                                           .unpin = far_unpin,
                                           .copy = far_copy,
                                           .pack = far_pack,
                                           .blocks = far_blocks,
                                           .prepare = far_prepare,
                                           .work_release = far_work_release,
                                           .run = far_run,
                                           .mark = far_mark,
                                           .passed = far_passed,
                                           .fence = far_fence,
                                           .plain = &device_far_ops,
                                           .move = far_move,
                                           .fill = far_fill,
                                           .generate = far_generate,
                                           .hash = far_hash};
