/* The reader's side of handles: a window of another process is mapped read-only.
 *
 * Nothing that the handle or the sheet says is used unchecked: the handle's numbers were checked before anything else
 * (handle_form.c), the sheet must have the size that it says and the page table lead to pages of the pool, and the facts of the sheet are copied, then checked, then used. */
#include "attach/attached.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/thread_watch.h"
#include "group/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- Meeting the owner ---- */

static treadle_status gone(const treadle_handle *h) {
  return treadle_fail(TREADLE_PEER,
                      "attach: process %d has destroyed the switch that the handle (rank %d of %d) is of",
                      h->process, h->rank, h->ranks);
}

static treadle_status find_owner(treadle_attached *a) {
  const treadle_handle *h = &a->handle;
  treadle_status status =
      treadle_shm_process(h->process, h->start_time, "the owner of the handle", &a->owner);
  if (status == TREADLE_OK && !treadle_shm_is_alive(a->owner))
    status =
        treadle_fail(TREADLE_PEER, "attach: process %d, which made the handle (rank %d of %d), has ended",
                     h->process, h->rank, h->ranks);
  return status;
}

static treadle_status knock(const treadle_handle *h, double deadline, int *socket_p) {
  struct sockaddr_un address;
  socklen_t length = treadle_service_address(h->name, &address);
  for (;;) {
    int socket = treadle_shm_socket();
    if (socket < 0) return treadle_fail(TREADLE_SYSTEM, "attach: no local socket: %s", strerror(errno));
    if (connect(socket, (struct sockaddr *)&address, length) == 0) {
      *socket_p = socket;
      return TREADLE_OK;
    }
    int why = errno;
    close(socket);
    if (why == ECONNREFUSED) return gone(h);
    if (why != EAGAIN && why != EINTR) /* many knock at once */
      return treadle_fail(TREADLE_SYSTEM, "attach: process %d cannot be reached: %s", h->process,
                          strerror(why));
    if (treadle_clock_seconds() > deadline)
      return treadle_fail(TREADLE_TIMEOUT, "attach: process %d does not answer", h->process);
    treadle_status asked = treadle_thread_ask("the owner of a handle");
    if (asked != TREADLE_OK) return asked;
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
  }
}

static treadle_status meet(const treadle_attached *a, double deadline, int *socket_p) {
  treadle_status status = TREADLE_OK;
  const treadle_handle *h = &a->handle;
  pid_t process;
  uid_t user;
  TRY(knock(h, deadline, socket_p));
  TRY(treadle_shm_peer(*socket_p, &process, &user));
  if (process != h->process || user != h->user)
    status = treadle_fail(TREADLE_REFUSED,
                          "attach: the socket of the handle belongs to process %d of user %u, not to %d",
                          (int)process, (unsigned)user, h->process);
out:
  return status;
}

/* What came with an answer: the sheet, if it is the first, then descriptors of the pool. */
typedef struct answered {
  int files[TREADLE_SHM_DESCRIPTORS], count;
  int64_t pieces; /* of the pool, all together */
} answered;

static void close_files(answered *got) {
  for (int i = 0; i < got->count; i++) close(got->files[i]);
  got->count = 0;
}

static treadle_status hear_answer(const treadle_handle *h, int socket, int64_t first, double deadline,
                                  answered *got) {
  treadle_status status = TREADLE_OK;
  treadle_service_answer answer;
  char who[40];
  snprintf(who, sizeof who, "attach: process %d", h->process);
  int count = TREADLE_SHM_DESCRIPTORS;
  TRY(treadle_shm_receive(socket, &answer, sizeof answer, got->files, &count, deadline, who));
  got->count = count;
  answer.text[sizeof answer.text - 1] = 0;
  if (answer.magic != TREADLE_SERVICE_MAGIC || answer.version != TREADLE_SERVICE_VERSION)
    return treadle_fail(TREADLE_PEER, "attach: process %d answers as another version of treadle does",
                        h->process);
  if (answer.status != TREADLE_OK) return treadle_fail(TREADLE_REFUSED, "%s", answer.text);
  if (answer.pieces < 0 || answer.pieces > h->pool_pages + 1 ||
      /* one may say what the others are */ (first > 0 && answer.pieces != got->pieces))
    return treadle_fail(TREADLE_PEER,
                        "attach: process %d says that its pool of %lld pages has %lld descriptors",
                        h->process, (long long)h->pool_pages, (long long)answer.pieces);
  got->pieces = answer.pieces;
  const int wanted = treadle_service_count(first, got->pieces) + (first == 0);
  if (count != wanted)
    return treadle_fail(TREADLE_PEER, "attach: process %d gave %d descriptors, not %d", h->process, count,
                        wanted);
out:
  return status;
}

/* The descriptors of the pool from `first` on. */
static treadle_status ask(const treadle_handle *h, int socket, int64_t first, double deadline,
                          answered *got) {
  treadle_status status = TREADLE_OK;
  treadle_service_message hello = {.magic = TREADLE_SERVICE_MAGIC,
                                   .version = TREADLE_SERVICE_VERSION,
                                   .process = (int32_t)getpid(),
                                   .start_time = treadle_shm_start_time(getpid()),
                                   .sum = h->sum,
                                   .first = first};
  TRY(treadle_shm_send(socket, &hello, sizeof hello, NULL, 0, deadline, "the owner of the handle"));
  TRY(hear_answer(h, socket, first, deadline, got));
out:
  return status;
}

/* ---- What it gave ---- */

static treadle_status map_sheet(treadle_attached *a, int file) {
  const treadle_handle *h = &a->handle;
  struct stat info;
  int seals = fcntl(file, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(file, &info) != 0 || info.st_size != h->sheet_bytes)
    return treadle_fail(TREADLE_PEER,
                        "attach: what process %d shares with readers has not the size that the handle says",
                        h->process);
  void *at = mmap(NULL, (size_t)h->sheet_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED)
    return treadle_fail(TREADLE_SYSTEM, "attach: what process %d shares with readers cannot be mapped: %s",
                        h->process, strerror(errno));
  a->sheet = at;
  return TREADLE_OK;
}

/* Who reads it takes what its shape and type say. */
static bool is_storage(const treadle_sheet_storage *s, int64_t window_bytes) {
  int64_t bytes;
  return s->ndim >= 0 && s->ndim <= 4 && memchr(s->name, 0, sizeof s->name) && s->offset_bytes >= 0 &&
         s->bytes >= 0 && s->offset_bytes <= window_bytes && s->bytes <= window_bytes - s->offset_bytes &&
         s->dtype > TREADLE_DTYPE_NONE && s->dtype <= TREADLE_INT32 &&
         treadle_product_fits(s->shape, s->ndim, &bytes) &&
         treadle_mul_fits(bytes, (int64_t)treadle_dtype_bytes((treadle_dtype)s->dtype), &bytes) &&
         bytes == s->bytes;
}

static treadle_status read_sheet(treadle_attached *a) {
  const treadle_handle *h = &a->handle;
  const treadle_sheet *sheet = a->sheet;
  int32_t count = sheet->storages;
  if (sheet->magic != TREADLE_SHEET_MAGIC || sheet->format != TREADLE_HANDLE_FORMAT || count < 0 ||
      treadle_sheet_size(count, h->pages) != h->sheet_bytes)
    return treadle_fail(TREADLE_PEER,
                        "attach: what process %d shares with readers is not what the handle says",
                        h->process);
  a->storages = treadle_alloc_array((size_t)count + 1, sizeof *a->storages);
  if (!a->storages) return treadle_fail(TREADLE_NO_MEMORY, "attach: memory is out");
  a->storage_count = count;
  memcpy(a->storages, treadle_sheet_storages(a->sheet), (size_t)count * sizeof *a->storages);
  memcpy(a->layout, sheet->layout, sizeof a->layout);
  a->layout[sizeof a->layout - 1] = 0;
  for (int32_t i = 0; i < count; i++)
    if (!is_storage(&a->storages[i], h->window_bytes))
      return treadle_fail(TREADLE_PEER,
                          "attach: storage tensor %d of process %d does not lie in its window", (int)i,
                          h->process);
  return TREADLE_OK;
}

/* Of the pool, `got` has the first descriptors. */
static treadle_status import_pool(treadle_attached *a, const treadle_view_of *window, int socket,
                                  double deadline, answered *got) {
  treadle_status status = TREADLE_OK;
  const treadle_handle *h = &a->handle;
  const treadle_device_ops *ops = a->device.ops;
  TRY(ops->import_begin(&a->device, got->pieces, (size_t)(h->pool_pages * h->page_bytes), window,
                        &a->imported));
  for (int64_t first = 0; first < got->pieces;) {
    const int count = treadle_service_count(first, got->pieces);
    if (first > 0) TRY(ask(h, socket, first, deadline, got));
    TRY(ops->import_part(a->imported, first, count, got->files + (first == 0)));
    close_files(got);
    first += count;
  }
out:
  return status;
}

static treadle_status map_window(treadle_attached *a, int socket, double deadline, answered *got) {
  treadle_status status = TREADLE_OK;
  const treadle_handle *h = &a->handle;
  treadle_paged paged;
  if (h->pages == 0) return TREADLE_OK;
  int32_t *table = treadle_alloc_array((size_t)h->pages, sizeof *table);
  if (!table) return treadle_fail(TREADLE_NO_MEMORY, "attach: memory is out");
  memcpy(table, treadle_sheet_table(a->sheet), (size_t)h->pages * sizeof *table);
  const treadle_view_of window = {
      .table = table, .pages = h->pages, .page_shift = __builtin_ctzll((unsigned long long)h->page_bytes)};
  TRY(import_pool(a, &window, socket, deadline, got));
  TRY(a->device.ops->view(a->imported, &window, &paged));
  TRY(treadle_device_claim(&a->device, paged.base, (size_t)(h->pages * h->page_bytes)));
  a->base = paged.base;
out:
  treadle_free(table);
  return status;
}

/* ---- Attaching ---- */

static treadle_status open_device(treadle_attached *a) {
  const treadle_handle *h = &a->handle;
  treadle_memory memory = {.kind = (treadle_memory_kind)h->kind};
  treadle_status status;
  TRY(treadle_device_find(memory.kind, h->device_id, h->device, &memory.device));
  TRY(treadle_device_open(&memory, &a->device));
out:
  return status == TREADLE_OK ? status
                              : treadle_fail_in(status, "attach: the window of process %d: ", h->process);
}

static treadle_status attach(treadle_attached *a, double deadline) {
  treadle_status status = TREADLE_OK;
  answered got = {.count = 0};
  int socket = -1;
  TRY(treadle_handle_check_here(&a->handle));
  TRY(open_device(a));
  TRY(find_owner(a));
  TRY(meet(a, deadline, &socket));
  TRY(ask(&a->handle, socket, 0, deadline, &got));
  TRY(map_sheet(a, got.files[0]));
  TRY(read_sheet(a));
  TRY(map_window(a, socket, deadline, &got));
out:
  close_files(&got);
  if (socket >= 0) close(socket);
  return status;
}

treadle_status treadle_attach(const void *handle, size_t bytes, double timeout_seconds,
                              treadle_attached **attached_p) {
  treadle_status status = TREADLE_OK;
  treadle_attached *a = NULL;
  treadle_handle h;
  TREADLE_NEED(attached_p);
  *attached_p = NULL;
  TREADLE_NEED(handle);
  TRY(TREADLE_CHECK_SECONDS(timeout_seconds));
  TRY(treadle_handle_check(handle, bytes, &h));
  a = treadle_alloc(sizeof *a);
  if (!a) return treadle_fail(TREADLE_NO_MEMORY, "attach: memory is out");
  *a = (treadle_attached){
      .handle = h, .owner = -1, .lock = PTHREAD_MUTEX_INITIALIZER, .process = getpid(), .place = -1};
  TRY(attach(a, treadle_clock_seconds() + timeout_seconds));
  *attached_p = a;
out:
  if (status != TREADLE_OK) treadle_detach(a);
  return status;
}

void treadle_detach(treadle_attached *attached) {
  if (!attached) return;
  if (attached->holds > 0 && attached->process == getpid())
    treadle_hold_release(attached->sheet, attached->place);
  if (attached->device.ops) {
    treadle_device_let_go(&attached->device);
    attached->device.ops->unimport(attached->imported);
  }
  treadle_device_close(&attached->device);
  if (attached->sheet) munmap(attached->sheet, (size_t)attached->handle.sheet_bytes);
  if (attached->owner >= 0) close(attached->owner);
  pthread_mutex_destroy(&attached->lock);
  treadle_free(attached->storages);
  treadle_free(attached);
}
