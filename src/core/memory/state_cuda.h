/* A CUDA device that was opened: its context, its stream, and what is under way on it.
 *
 *   driver_cuda.c   the driver's library
 *   state_cuda.c    open and close; order: tickets, failures, what was written
 *   pool_cuda.c     pages and windows; import_cuda.c: those of others; pieces_cuda.h: what both are made of
 *   work_cuda.c     ops that run again and again; once_cuda.c: those that are asked for once; values_cuda.c: blocks and elements
 *   cut_cuda.c      ops in the form that kernels read; slices_cuda.c: their page tables; kernel_cuda.cu: the kernels
 *   device_cuda.c   the table
 *
 * Work goes to a stream of the device's own. What is asked for while nothing is under way waits for what the caller's stream was given before; a
 * call of the library leaves nothing under way. Every function enters the context and leaves it, and holds the lock while it does. What fails where no status can be returned is kept, and said by each `passed` and `fence` from
 * then on, until `renew` finds that the device still works. */
#ifndef TREADLE_MEMORY_STATE_CUDA_H
#define TREADLE_MEMORY_STATE_CUDA_H

#include "memory/device.h"
#include "memory/driver_cuda.h"
#include "memory/kernel_cuda.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum {
  TREADLE_CUDA_MARKS = 64, /* tickets that have not passed */
  TREADLE_CUDA_RUNS = 256, /* calls of run whose counts have not been read */
  TREADLE_CUDA_ROOM = 4 << 20
};

/* A call of run, until its counts are added to the caller's. */
typedef struct treadle_cuda_run {
  const treadle_work *work;
  size_t first, count; /* ops */
  treadle_written *written;
  uint64_t at; /* the ticket with which it is done */
} treadle_cuda_run;

typedef struct treadle_cuda {
  const treadle_cuda_driver *driver;
  CUdevice card;
  CUcontext context;
  CUmodule module;
  CUfunction copy, blocks, generate, hash;
  CUstream stream, callers;
  CUevent given; /* what the caller's stream had been given */
  size_t granularity;
  unsigned blocks_at_once; /* of threads, in a launch of many */
  pthread_mutex_t lock;
  bool entered;     /* the context is the thread's */
  int capture_mode; /* of the thread that has entered, as it was */
  bool failed;      /* text says why */
  char text[300];
  uint64_t marked, done;             /* numbers of tickets */
  bool asked;                        /* since the last mark */
  CUevent marks[TREADLE_CUDA_MARKS]; /* of ticket number n: n % TREADLE_CUDA_MARKS */
  CUevent begun, ended;              /* of the work since the device had none */
  bool works;                        /* `begun` is recorded */
  treadle_device_figures figures;
  treadle_cuda_run runs[TREADLE_CUDA_RUNS];
  int run_count;
  char *room; /* pinned memory that kernels read: of calls that have no work of their own */
  size_t used;
} treadle_cuda;

/* An address of the driver's, as the table's functions have it. */
static inline void *treadle_cuda_pointer(CUdeviceptr at) {
  void *pointer;
  memcpy(&pointer, &at, sizeof pointer);
  return pointer;
}

static inline treadle_cuda *treadle_cuda_of(const treadle_device *device) { return device->state; }

treadle_status treadle_cuda_open(const treadle_memory *memory, treadle_device *device_p);
void treadle_cuda_close(treadle_device *device);

/* Cards that devices of this process are open on: which of [cards] it is. */
enum { TREADLE_CUDA_CARDS = 64 };
void treadle_cuda_cards(bool in_use[TREADLE_CUDA_CARDS]);

/* Around every call of the driver: lock and context. */
void treadle_cuda_enter(treadle_cuda *cuda);
void treadle_cuda_leave(treadle_cuda *cuda);

/* A call that failed as a status: "cuda: device 0: cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY, 2 (out of memory)". TREADLE_NO_MEMORY or TREADLE_SYSTEM. */
treadle_status treadle_cuda_fail(const treadle_cuda *cuda, const char *call, CUresult result);
/* The same where there is no status to return: kept. Was it a success? */
bool treadle_cuda_keep(treadle_cuda *cuda, const char *call, CUresult result);
void treadle_cuda_keep_text(treadle_cuda *cuda, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* What was kept, as a status: before a call that returns one does anything. */
treadle_status treadle_cuda_say(const treadle_cuda *cuda);
/* false: the driver does not know that memory; or the question has failed, which is kept. */
bool treadle_cuda_ask_pointer(treadle_cuda *cuda, int attribute, const void *at, void *value_p);
#define CUDA_TRY(cuda, call, result_of)                                                                    \
  do {                                                                                                     \
    const CUresult result_ = (result_of);                                                                  \
    if (result_ != CUDA_SUCCESS) TRY(treadle_cuda_fail(cuda, call, result_));                              \
  } while (0)

/* Host memory that the device reads and writes where it lies, until cuMemHostUnregister. */
treadle_status treadle_cuda_pin(const treadle_cuda *cuda, void *host, size_t bytes);

/* ---- Order. Between enter and leave ---- */

/* Before work is asked for: what the caller's stream was given before comes first. False: nothing can be asked for any more. */
bool treadle_cuda_ask(treadle_cuda *cuda);
/* What was kept is forgotten, if the device still works. Nothing is under way. Refused: the caller's stream cannot be followed now. */
treadle_status treadle_cuda_renew(treadle_cuda *cuda);
/* As many blocks of threads as there is work for, and as a launch of many has. */
void treadle_cuda_launch(treadle_cuda *cuda, CUfunction function, int64_t count, void *arguments);
treadle_ticket treadle_cuda_mark(treadle_cuda *cuda);
treadle_status treadle_cuda_passed(treadle_cuda *cuda, treadle_ticket ticket, bool *passed_p);
/* Nothing is under way any more when it returns. */
treadle_status treadle_cuda_fence(treadle_cuda *cuda);
/* Pinned memory for a call of at most TREADLE_CUDA_ROOM bytes, which stays until all that was asked for is done; it may wait for that. */
void *treadle_cuda_room(treadle_cuda *cuda, size_t bytes);
/* The next calls do not wait, if they are for no more bytes together. */
void treadle_cuda_make_room(treadle_cuda *cuda, size_t bytes);

/* ---- pool_cuda.c, import_cuda.c ---- */

treadle_status treadle_cuda_pool_create(const treadle_device *device, int64_t pages, int64_t page_bytes,
                                        int64_t budget_bytes, const treadle_view_of *views, int view_count,
                                        treadle_pool **pool_p);
void treadle_cuda_pool_destroy(treadle_pool *pool);
void *treadle_cuda_pool_base(const treadle_pool *pool);
size_t treadle_cuda_pool_held_bytes(const treadle_pool *pool);
treadle_status treadle_cuda_pool_map(treadle_pool *pool, const int32_t *table, int64_t pages,
                                     void **base_p);
treadle_status treadle_cuda_pool_remap(treadle_pool *pool, void *base, const int32_t *table, int64_t pages);
treadle_status treadle_cuda_pool_follow(treadle_pool *pool, void *base, void *shadow, const int32_t *table,
                                        int64_t pages);
treadle_status treadle_cuda_pool_trim(treadle_pool *pool, const uint8_t *classes, uint8_t nobody);
int64_t treadle_cuda_pool_export_count(const treadle_pool *pool);
treadle_status treadle_cuda_pool_export_part(const treadle_pool *pool, int64_t first, int count,
                                             bool reading, int *descriptors);
treadle_status treadle_cuda_import_begin(const treadle_device *device, int64_t count, size_t bytes,
                                         const treadle_view_of *only, treadle_imported **imported_p);
treadle_status treadle_cuda_import_part(treadle_imported *imported, int64_t first, int count,
                                        const int *descriptors);
treadle_status treadle_cuda_import_view(treadle_imported *imported, const treadle_view_of *window,
                                        treadle_paged *paged_p);
void treadle_cuda_unimport(treadle_imported *imported);

/* ---- work_cuda.c, once_cuda.c, values_cuda.c ---- */

treadle_status treadle_cuda_prepare(const treadle_device *device, const treadle_op *ops,
                                    const treadle_paged *from, const treadle_paged *to, size_t count,
                                    treadle_work **work_p);
void treadle_cuda_work_release(treadle_work *work);
void treadle_cuda_run_work(const treadle_device *device, const treadle_work *work, size_t first,
                           size_t count, treadle_written *written);
void treadle_cuda_copy(const treadle_device *device, const treadle_op *ops, const treadle_paged *from,
                       const treadle_paged *to, size_t count);
void treadle_cuda_make_blocks(const treadle_device *device, const treadle_strip *strips, size_t count);
void treadle_cuda_generate(const treadle_device *device, const treadle_elements *elements, void *window);
treadle_status treadle_cuda_hash(const treadle_device *device, const treadle_elements *elements,
                                 const void *const *windows, size_t count, uint64_t *sums);
/* A run is done: its counts go to where the caller wants them, and begin anew. */
void treadle_cuda_add_written(treadle_cuda_run *run);
/* Would a run of these ops count where another one's counts have not been read? */
bool treadle_cuda_run_overlaps(const treadle_cuda_run *run, const treadle_work *work, size_t first,
                               size_t count);

#endif
