/* What the files of the stand-in share. One lock guards the state of the process (fake_lock); a card has a lock of
 * its own among processes. Work runs without either. */
#ifndef FAKE_PARTS_H
#define FAKE_PARTS_H

#include "cuda/fake_cuda.h"

#include <pthread.h>
#include <stdbool.h>

#define FAKE_API __attribute__((visibility("default")))

/* ---- Calls (fake_calls.c) ---- */

/* clang-format off */
#define FAKE_CALLS(X) \
  X(cuInit) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceGetUuid) \
  X(cuDeviceGetAttribute) X(cuDeviceTotalMem) X(cuDeviceCanAccessPeer) X(cuDevicePrimaryCtxRetain) \
  X(cuDevicePrimaryCtxRelease) X(cuCtxSetCurrent) X(cuCtxGetCurrent) X(cuCtxPushCurrent) \
  X(cuCtxPopCurrent) X(cuCtxGetDevice) X(cuCtxSynchronize) X(cuMemGetInfo) \
  X(cuMemGetAllocationGranularity) X(cuMemCreate) X(cuMemRelease) X(cuMemExportToShareableHandle) \
  X(cuMemImportFromShareableHandle) X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemMap) X(cuMemUnmap) \
  X(cuMemSetAccess) X(cuMemGetAccess) X(cuMemAlloc) X(cuMemFree) X(cuMemHostAlloc) X(cuMemFreeHost) \
  X(cuMemHostRegister) X(cuMemHostUnregister) X(cuMemHostGetDevicePointer) X(cuPointerGetAttribute) \
  X(cuPointerGetAttributes) X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamQuery) \
  X(cuStreamWaitEvent) X(cuStreamBeginCapture) X(cuStreamEndCapture) X(cuStreamIsCapturing) X(cuThreadExchangeStreamCaptureMode) X(cuEventCreate) \
  X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize) X(cuEventElapsedTime) \
  X(cuMemcpyAsync) X(cuMemcpyDtoDAsync) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyHtoD) \
  X(cuMemcpyDtoH) X(cuMemsetD8Async) X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) \
  X(cuFuncLoad) X(cuFuncGetAttribute) X(cuLaunchKernel)
/* clang-format on */

#define FAKE_CALL_NUMBER(name) FAKE_##name,
typedef enum fake_call { FAKE_CALLS(FAKE_CALL_NUMBER) FAKE_launch, FAKE_CALL_COUNT } fake_call;

/* Counts a call. Ends the function that names itself here if the call is to fail, if something has failed for good,
 * or if there is no driver in this process. With FAKE_LOCKED the rest of the function runs under the lock. */
#define FAKE_ENTER(name)                                                                                   \
  do {                                                                                                     \
    CUresult entered_ = fake_enter(FAKE_##name);                                                           \
    if (entered_ != CUDA_SUCCESS) return entered_;                                                         \
  } while (0)
#define FAKE_LOCKED                                                                                        \
  __attribute__((cleanup(fake_unlock))) int locked_ = fake_lock();                                         \
  (void)locked_

CUresult fake_enter(fake_call call);
/* The text of FAKE_CUDA_FAIL. */
void fake_fail(const char *text);
/* Counts down; what the call is to fail with. */
CUresult fake_fails(fake_call call);
/* Every call from now on returns `error`; the first one counts. */
void fake_stick(CUresult error);
CUresult fake_stuck(void);

extern pthread_mutex_t fake_mutex;
int fake_lock(void);
void fake_unlock(int *unused);

/* ---- Ledger (fake_ledger.c) ---- */

/* Written under the lock. */
extern fake_cuda_ledger fake_ledger;
void fake_level_add(fake_cuda_level *level, int64_t count);
void fake_count_call(fake_call call);
const char *fake_call_name(fake_call call);
/* FAKE_CALL_COUNT: none has this name. */
fake_call fake_call_named(const char *name, size_t length);
/* When the process ends: a line to the file that the environment names. */
void fake_ledger_write(void);

/* ---- Tables (fake_table.c): things at addresses or numbers, in order, without overlap ---- */

typedef struct fake_span {
  uint64_t at, bytes; /* what lies in a table begins with this */
} fake_span;

typedef struct fake_table {
  fake_span **spans; /* [count], by their place */
  size_t count, room;
} fake_table;

/* The thing that `at` lies in; NULL. */
void *fake_table_find(const fake_table *table, uint64_t at);
/* The index of the first one that ends after `at`. */
size_t fake_table_from(const fake_table *table, uint64_t at);
/* Those from `first` to before `end` fill [at, at + bytes) without a gap, and none reaches out of it. */
bool fake_table_fills(const fake_table *table, uint64_t at, uint64_t bytes, size_t *first_p, size_t *end_p);
bool fake_table_is_free(const fake_table *table, uint64_t at, uint64_t bytes);
void fake_table_add(fake_table *table, fake_span *span);
/* Takes them out of the table; they are the caller's. */
void fake_table_remove(fake_table *table, size_t first, size_t end);

/* ---- Cards (fake_card.c) ---- */

enum { FAKE_CARDS = 8 };

/* Memory of a card: an offset in its file. The generation says whether the range is still the one that was taken. */
typedef struct fake_range {
  uint64_t at, bytes, generation;
} fake_range;

typedef struct fake_card {
  char *path;
  int file, slot; /* this process holds memory under this number */
  struct fake_header *header;
} fake_card;

extern fake_card fake_cards[FAKE_CARDS];
extern _Atomic int fake_card_count; /* 0 before cuInit */

CUresult fake_card_open(fake_card *card, const char *path);
uint64_t fake_card_total(const fake_card *card);
uint64_t fake_card_granularity(const fake_card *card);
const char *fake_card_identity(const fake_card *card); /* [16] */
uint64_t fake_card_free(fake_card *card);
/* Zeroed memory, held by this process; false: there is too little. */
bool fake_card_take(fake_card *card, uint64_t bytes, fake_range *range_p);
/* This process holds what another one has taken; false: nobody has it any more. */
bool fake_card_hold(fake_card *card, const fake_range *range);
void fake_card_drop(fake_card *card, const fake_range *range);
/* Gives back what this process holds. The last process of a card takes its file away. */
void fake_card_close(fake_card *card);

/* ---- Devices and contexts (fake_device.c, fake_context.c) ---- */

struct CUctx_st {
  _Atomic int retained;
};

bool fake_was_forked(void);

/* The device of this thread's current context; -1. */
int fake_current_device(void);
CUcontext fake_context(int device);
bool fake_can_reach(int device, int peer);

/* ---- Memory (fake_memory.c, fake_windows.c, fake_host.c, fake_pointer.c) ---- */

/* Memory of a card that this process holds: by handles, and by mappings. */
typedef struct fake_memory {
  fake_span span; /* of the card's file */
  fake_range range;
  fake_card *card;
  int users;
  bool is_exportable;
} fake_memory;

typedef struct fake_window { /* a reservation */
  fake_span span;
  bool is_alloc; /* made by cuMemAlloc */
  int device;
} fake_window;

typedef struct fake_mapping {
  fake_span span;
  fake_memory *memory;
  uint8_t access[FAKE_CARDS]; /* CUmemAccess_flags of each device */
} fake_mapping;

typedef struct fake_pin { /* host memory */
  fake_span span;
  bool is_own; /* made by cuMemHostAlloc */
  int device;
} fake_pin;

/* Device addresses are those in [fake_space, fake_space + fake_space_bytes); their memory lies fake_space_bytes
 * further on. */
extern uint64_t fake_space, fake_space_bytes;
extern fake_table fake_windows, fake_mappings, fake_pins;
extern pthread_rwlock_t fake_pins_lock; /* besides the lock: work reads them, too */

bool fake_space_open(void);
/* After a fork: the child sees no memory of a card. */
void fake_space_forget(void);
static inline bool fake_is_device(uint64_t address) { return address - fake_space < fake_space_bytes; }
/* A device reads (or writes) all of it. */
bool fake_is_accessible(uint64_t address, uint64_t bytes, bool written);
/* The device whose work this thread does was given access to that device memory, if it is mapped. */
bool fake_is_reached(uint64_t address);
bool fake_is_pinned(uint64_t address, uint64_t bytes);
static inline void *fake_pointer(uint64_t address) { return (void *)(uintptr_t)address; }
static inline uint64_t fake_address(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }

/* Under the lock. */
fake_memory *fake_handle_memory(CUmemGenericAllocationHandle handle);
fake_memory *fake_memory_take(fake_card *card, uint64_t bytes);
void fake_memory_release(fake_memory *memory);
CUresult fake_reserve(uint64_t bytes, uint64_t alignment, int device, fake_window **window_p);
CUresult fake_map(uint64_t at, fake_memory *memory);
CUresult fake_set_access(uint64_t at, uint64_t bytes, int device, CUmemAccess_flags flags);
CUresult fake_unmap(uint64_t at, uint64_t bytes);

/* ---- Streams (fake_streams.c) ---- */

/* Whether something is done that others wait for: an event's record. */
typedef struct fake_mark {
  int users;
  bool is_done;
  int64_t nanoseconds; /* when */
} fake_mark;

typedef struct fake_kernel fake_kernel;

typedef struct fake_work {
  struct fake_work *next;
  uint64_t number;                           /* what was asked for later has a greater one */
  void (*run)(const struct fake_work *work); /* NULL: nothing, it waits or marks */
  fake_mark *awaited, *marks;                /* the work's own uses; NULL */
  uint64_t to, from, bytes;
  int value;
  void *own; /* source of a copy or arguments of a kernel, freed with it */
  const fake_kernel *kernel;
  unsigned blocks;
} fake_work;

struct CUstream_st {
  fake_span span; /* its own address, in the table of streams */
  int device;
  bool is_blocking, is_null; /* it and the NULL stream wait for each other */
  bool is_busy, is_ended;    /* its first work runs; it goes when it is empty */
  bool is_capturing;         /* nothing is taken for real: here, nothing at all */
  fake_work *first, **last;
};

extern _Thread_local int fake_worker; /* the device whose work this thread does */
void fake_streams_open(const char *mode, uint64_t seed, int devices);
/* All under the lock, which fake_advance leaves meanwhile. */
CUresult fake_stream_of(CUstream given, struct CUstream_st **stream_p);
/* The same for work that is asked for. */
CUresult fake_stream_takes(CUstream given, struct CUstream_st **stream_p);
void fake_put(struct CUstream_st *stream, fake_work work);
/* Does a piece of work of any stream, or waits for a thread that does one; false: none is left. */
bool fake_advance(void);
void fake_look(void);
void fake_finish(const struct CUstream_st *stream);
void fake_finish_all(void);
uint64_t fake_random(void);
fake_mark *fake_mark_use(fake_mark *mark);
void fake_mark_leave(fake_mark *mark);

/* ---- Copies (fake_copies.c) ---- */

CUresult fake_copy(uint64_t to, uint64_t from, uint64_t bytes, CUstream stream);

#endif
