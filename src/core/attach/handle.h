/* Windows in other processes: what the rank that owns one and the processes that attach to it share.
 *
 *   handle_form.c   the bytes of a handle, and their check
 *   outlet.c        the owner: makes the sheet and the handle, ends holds (outlet.h)
 *   service.c       the owner's thread that takes readers in and gives them the descriptors
 *   holds.c         versions and holds, both sides
 *   attach.c        the reader: how it gets the window
 *   attached.c      what it may ask then
 *
 * A reader gets descriptors: of the sheet, a small file that both write, and of the pool, which it may only read, as the device of its memory
 * exports it; the handle says which kind of memory that is. The sheet has the facts of
 * the window, its page table and its storage tensors, all of which never change: a switch keeps its pages and its plan for life (to
 * rejoin with another plan is refused). And it has the words by which versions and holds are told (holds.c). */
#ifndef TREADLE_ATTACH_HANDLE_H
#define TREADLE_ATTACH_HANDLE_H

#include "base/status.h"
#include "memory/device.h"

#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/types.h>

enum {
  TREADLE_SHEET_MAGIC = 0x74726473,
  TREADLE_HANDLE_FORMAT = 3, /* 1: host memory alone; 2: devices by number alone */
  TREADLE_SHEET_TEXT = 256,
  TREADLE_HOLDS = 64,
  TREADLE_PROCESS_BITS = 22 /* the kernel's PID_MAX_LIMIT */
};

/* What a handle says, as it lies in its bytes. A user copies handles around, so nothing of it is used before it was checked. */
typedef struct treadle_handle {
  char magic[8];
  uint32_t format, bytes; /* of this struct */
  uint32_t library;       /* the version that made it */
  int32_t process;        /* the owner's, */
  uint64_t start_time;    /* and when it began, against numbers that are used again */
  uint64_t process_space; /* the namespace that process numbers are of */
  uint8_t machine[16];    /* the boot of it */
  uint32_t user, which;   /* treadle_class */
  int32_t rank, ranks;
  uint32_t kind;      /* treadle_memory_kind, */
  int32_t device;     /* the number that the device has in the owner's process, */
  uint64_t device_id; /* and treadle_device_room.id, which it has in all */
  uint64_t name[2]; /* random: the name of the owner's socket */
  int64_t page_bytes, pages, pool_pages, window_bytes, sheet_bytes;
  uint64_t sum; /* of the bytes before */
} treadle_handle;

/* A storage tensor of the window. */
typedef struct treadle_sheet_storage {
  char name[TREADLE_SHEET_TEXT];
  int32_t chunk, ndim, dtype, derived;
  int64_t shape[4];
  int64_t offset_bytes, bytes;
} treadle_sheet_storage;

/* One hold: a reader's claim that the window keeps its bytes. `process` alone says whether there is one, and of whom; the
 * others are for messages. */
typedef struct treadle_hold {
  _Alignas(64) _Atomic uint64_t process; /* treadle_hold_process; 0: no hold */
  _Atomic uint64_t version;
  _Atomic uint64_t since; /* microseconds of treadle_clock_seconds */
} treadle_hold;

typedef struct treadle_sheet {
  uint64_t magic;
  int32_t format, storages;
  int64_t bytes; /* of the sheet */
  char layout[TREADLE_SHEET_TEXT];
  _Alignas(64) _Atomic uint64_t committed; /* the last version that was */
  _Atomic uint64_t valid;     /* the version that is in the window; 0: none. Written by the owner */
  _Atomic uint32_t closed;    /* the owner is gone, and says so */
  _Atomic uint32_t told;      /* counts what the owner has said; a futex */
  _Atomic uint32_t freed;     /* counts holds that were let go; a futex */
  _Atomic uint32_t listeners; /* readers that sleep on `told` */
  _Atomic uint32_t waits;     /* the owner sleeps on `freed` */
  treadle_hold holds[TREADLE_HOLDS];
} treadle_sheet; /* then treadle_sheet_storage [storages], then int32_t physical page [pages] */

static inline treadle_sheet_storage *treadle_sheet_storages(treadle_sheet *sheet) {
  return (treadle_sheet_storage *)(void *)(sheet + 1);
}
static inline int32_t *treadle_sheet_table(treadle_sheet *sheet) {
  return (int32_t *)(void *)(treadle_sheet_storages(sheet) + sheet->storages);
}
static inline int64_t treadle_sheet_size(int64_t storages, int64_t pages) {
  return (int64_t)sizeof(treadle_sheet) + storages * (int64_t)sizeof(treadle_sheet_storage) +
         pages * (int64_t)sizeof(int32_t);
}

/* ---- handle_form.c ---- */

/* Magic, format, size, version and sum of a handle whose other fields are there. */
void treadle_handle_seal(treadle_handle *handle);
/* Are these bytes a handle, whole and unaltered, whose numbers can be? *handle_p is a copy. No call to the system. */
treadle_status treadle_handle_check(const void *bytes, size_t count, treadle_handle *handle_p);
/* Where this process runs, and as whom: the fields machine, process_space, user. */
treadle_status treadle_handle_here(treadle_handle *handle);
/* Was it made here, and may this process use it? */
treadle_status treadle_handle_check_here(const treadle_handle *handle);

/* ---- service.c ---- */

typedef struct treadle_service treadle_service;

/* What a reader says, and the answer, with which descriptors come: that of the sheet with the first one, and those of the pool from `first` on,
 * as many as there is room for. The reader asks until it has all of them. */
enum { TREADLE_SERVICE_MAGIC = 0x74726468, TREADLE_SERVICE_VERSION = 2, TREADLE_SERVICE_TEXT = 400 };
typedef struct treadle_service_message {
  uint32_t magic, version;
  int32_t process, pad;
  uint64_t start_time, sum; /* of the reader's process; of its handle */
  int64_t first;            /* which of the pool's descriptors is wanted next */
} treadle_service_message;
typedef struct treadle_service_answer {
  uint32_t magic, version;
  int32_t status, pad;
  int64_t pieces;                  /* descriptors of the pool, all together */
  char text[TREADLE_SERVICE_TEXT]; /* why not */
} treadle_service_answer;

/* Of the `pieces` of a pool, how many come with the answer that begins with `first`. */
int treadle_service_count(int64_t first, int64_t pieces);

/* What readers get. All of it stays the caller's, and is there until the service stops. */
typedef struct treadle_service_files {
  int sheet; /* a descriptor */
  const treadle_device *device;
  const treadle_pool *pool; /* of the device, whose export runs in the service's thread */
} treadle_service_files;

/* A new name for a socket, and the thread that listens there and gives the files to readers who say the sum of the handle. */
treadle_status treadle_service_start(const treadle_service_files *files, uint64_t name[2],
                                     treadle_service **service_p);
void treadle_service_expect(treadle_service *service, uint64_t sum);
/* Ends the thread; in a child made by fork, which has none, only what is the child's. */
void treadle_service_stop(treadle_service *service);
/* The socket of a name. */
struct sockaddr_un;
socklen_t treadle_service_address(const uint64_t name[2], struct sockaddr_un *address);

/* ---- holds.c ---- */

/* Process number and start time as one word, never 0. */
uint64_t treadle_hold_process(pid_t process, uint64_t start_time);
pid_t treadle_hold_number(uint64_t process); /* of the process */

/* The reader: takes a place for the version that is in the window; TREADLE_STATE when there is none, or all places are taken. */
treadle_status treadle_hold_take(treadle_sheet *sheet, uint64_t process, int *place_p, uint64_t *version_p);
/* One attempt at a version that was seen in it: *place_p is -1 when it is there no more. */
treadle_status treadle_hold_try(treadle_sheet *sheet, uint64_t process, uint64_t version, int *place_p);
void treadle_hold_release(treadle_sheet *sheet, int place);
/* Sleeps until the owner says something after `told`, not longer than `seconds`. */
void treadle_sheet_listen(treadle_sheet *sheet, uint32_t told, double seconds);

/* The owner: says which version is in the window (0: none) and what was committed, and wakes who listens. */
void treadle_sheet_tell(treadle_sheet *sheet, uint64_t valid, uint64_t committed);
/* The first place that is taken by a process that lives; -1: none. Holds of the dead are dropped. */
int treadle_sheet_find_hold(treadle_sheet *sheet);
/* Sleeps until a hold is let go, not longer than `seconds`; none when place `place` is free already. */
void treadle_sheet_wait_free(treadle_sheet *sheet, int place, double seconds);

#endif
