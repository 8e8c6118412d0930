/* Devices: the memory that windows lie in, and who works on it. One table of functions for each kind; nothing outside of
 * memory/ reads or writes through a window's pointer but by these.
 *
 *   host         RAM, by whatever this processor is best served with
 *   host, plain  the same by plain loops: the twin that tests compare with, and what a sanitizer sees through
 *
 * Addresses in windows, pools and scratch are the device's. Where a function says host memory, it may be given that too:
 * files, buffers, twins. Where it says pinned, that host memory lies in a range that was pinned for the device.
 *
 * Work on a device is done in the order in which it was asked for, but the ops of one call of `run` in any order. It may be done later than
 * the call returns: a ticket is a moment in that order, and when it has passed, all that was asked for before it is done and seen by others.
 * Host memory that a call reads or writes stays as it is until then. What fails is said by the next `passed` or `fence`, and by all after it. */
#ifndef TREADLE_MEMORY_DEVICE_H
#define TREADLE_MEMORY_DEVICE_H

#include "memory/elements.h"
#include "memory/mapped.h"
#include "memory/paged.h"
#include "memory/pool.h"
#include "memory/quantise.h"
#include "move/move.h"

typedef struct treadle_device_ops treadle_device_ops;

/* A device that treadle_device_open has opened. */
typedef struct treadle_device {
  const treadle_device_ops *ops;
  treadle_memory_kind kind;
  int number;   /* among those of its kind */
  void *stream; /* the caller's, NULL: the kind has none */
  void *state;  /* the row's own */
} treadle_device;

typedef enum treadle_access {
  TREADLE_ACCESS_NONE = 0,
  TREADLE_ACCESS_READ,
  TREADLE_ACCESS_BOTH
} treadle_access;

/* A pool of another process, or some of it, as it was imported: read only. */
typedef struct treadle_imported treadle_imported;

/* A window of a pool: page i lies on the physical page table[i], -1: on none. Without a table: the whole pool, in physical order. */
typedef struct treadle_view_of {
  const int32_t *table; /* [pages] */
  int64_t pages;
  int page_shift; /* log2 of the page size */
} treadle_view_of;

/* Ops that were made ready for a device, with the views that they go between. */
typedef struct treadle_work treadle_work;

/* A moment in the order of a device's work. */
typedef struct treadle_ticket {
  uint64_t at;
} treadle_ticket;

/* What an op of a work has really written, as whoever wrote it has counted: how often, bytes, and the sum of treadle_op_mark. */
typedef struct treadle_written {
  int64_t times, bytes;
  uint64_t mark;
} treadle_written;

struct treadle_device_ops {
  const char *name;
  /* Flag of treadle_net_memory (treadle_device.h): what kind of memory windows are. A net that has it sends and receives right there; 0: no net
   * does. */
  unsigned net_memory;

  /* Life: fills *device, whose ops are there. Refused by name: what is not on this machine. */
  treadle_status (*open)(const treadle_memory *memory, treadle_device *device);
  void (*close)(treadle_device *device);
  /* What keeps the device from reading and writing memory that somebody else has made, for a message ("that memory may not be written"), or
   * NULL. maps_p: what was looked up for that, for many ranges in a row: NULL at first, ended by treadle_maps_release. Without it, the answer
   * is quick, and says whether the memory is there at all. */
  const char *(*fault)(const treadle_device *device, const void *memory, size_t bytes,
                       treadle_maps **maps_p);

  /* Pages: what memory/pool.h says of each. */
  treadle_status (*create)(const treadle_device *device, int64_t pages, int64_t page_bytes,
                           int64_t budget_bytes, treadle_pool **pool_p);
  void (*destroy)(treadle_pool *pool);
  void *(*base)(const treadle_pool *pool);
  size_t (*held_bytes)(const treadle_pool *pool);
  treadle_status (*map)(treadle_pool *pool, const int32_t *table, int64_t pages, void **base_p);
  treadle_status (*remap)(treadle_pool *pool, void *base, const int32_t *table, int64_t pages);
  treadle_status (*follow)(treadle_pool *pool, void *base, void *shadow, const int32_t *table,
                           int64_t pages);
  treadle_status (*trim)(treadle_pool *pool, const uint8_t *classes, uint8_t nobody);
  /* Who may use a part of a window of the pool, once all that was asked for before is done; the mapping of the whole pool stays as it is. A
   * failure may leave some of the part as it was. */
  treadle_status (*protect)(treadle_pool *pool, void *at, size_t bytes, treadle_access access)
      __attribute__((warn_unused_result));
  /* As protect, of a whole window that is one mapping, and quick: closed, it may be read; else it may be written, too. The first call, when the
   * pool is made, opens it: that gets what the later ones need. */
  treadle_status (*close_window)(treadle_pool *pool, void *base, size_t bytes, bool closed)
      __attribute__((warn_unused_result));

  /* A pool as others may have it: descriptors, each of some of its pages; 0: it has none. export makes those from `first` on, all or none of
   * them, for sending: the caller closes them. reading: who gets them cannot write by them, where the system can see to that. Any thread. */
  int64_t (*export_count)(const treadle_pool *pool);
  treadle_status (*export)(const treadle_pool *pool, int64_t first, int count, bool reading,
                           int *descriptors);
  /* The pool of another process, of `bytes` bytes, whose descriptors come in order, some at a time. They stay the caller's, who may close them
   * when import returns. only: the one window of it that will be viewed, as one range of addresses; its table stays until all are imported,
   * and is checked here: TREADLE_PEER where it leads beyond the pool. NULL: any may be. */
  treadle_status (*import_begin)(const treadle_device *device, int64_t count, size_t bytes,
                                 const treadle_view_of *only, treadle_imported **imported_p);
  treadle_status (*import)(treadle_imported *imported, int64_t first, int count, const int *descriptors);
  /* A window of it, once all is imported; it lives as long as that, and its table does, too. The table was checked: it leads to pages of the
   * pool. */
  treadle_status (*view)(treadle_imported *imported, const treadle_view_of *window, treadle_paged *paged_p);
  void (*unimport)(treadle_imported *imported);

  /* Memory beside pools, touched and zero; NULL: there is none. */
  void *(*scratch)(const treadle_device *device, size_t bytes);
  void (*scratch_release)(const treadle_device *device, void *scratch);

  /* Host memory that the device may read and write itself, where it lies: slots of messages, twins. Ranges do not overlap. A range is unpinned
   * before it is freed, and after all that was asked for with it is done. Nothing happens where no pinned range begins. */
  treadle_status (*pin)(const treadle_device *device, void *host, size_t bytes);
  void (*unpin)(const treadle_device *device, void *host);

  /* Ops and blocks (memory/copy.h, quantise.h). What `copy` and `pack` read and write may be pinned, and `copy` may read any host
   * memory (files, to load them). The processor may read what they wrote there after a ticket or a fence. `scale` is where it lies. */
  void (*copy)(const treadle_device *device, const treadle_op *op, const treadle_paged *from,
               const treadle_paged *to);
  /* The same, where what is written is read again right away: it stays in caches, which copies at the speed of memory go around. */
  void (*pack)(const treadle_device *device, const treadle_op *op, const treadle_paged *from,
               const treadle_paged *to);
  void (*quantise)(const treadle_device *device, treadle_matrix codes, float *scale, treadle_matrix values,
                   treadle_dtype dtype, int64_t rows, int64_t columns);
  void (*dequantise)(const treadle_device *device, treadle_matrix values, treadle_dtype dtype,
                     treadle_matrix codes, const float *scale, int64_t rows, int64_t columns);

  /* The same ops again and again: [count] of each; the views are copied, the ops stay where they are until work_release. A fill reads no
   * view. What they read and write may be pinned. */
  treadle_status (*prepare)(const treadle_device *device, const treadle_op *ops, const treadle_paged *from,
                            const treadle_paged *to, size_t count, treadle_work **work_p);
  void (*work_release)(treadle_work *work);
  /* Runs ops first .. first + count - 1, in any order: none reads what another one writes. What each has written is added to
   * written [count], which is host memory, and whole when the ticket of a later `mark` has passed. */
  void (*run)(const treadle_device *device, const treadle_work *work, size_t first, size_t count,
              treadle_written *written);

  /* The moment after all that was asked for so far. Any ticket may be asked about as often as wanted. */
  treadle_ticket (*mark)(const treadle_device *device);
  /* Has it passed? Never waits. */
  treadle_status (*passed)(const treadle_device *device, treadle_ticket ticket, bool *passed_p)
      __attribute__((warn_unused_result));
  /* Waits for all that was asked for. */
  treadle_status (*fence)(const treadle_device *device) __attribute__((warn_unused_result));

  /* The same device without what makes it fast: what others are measured against. */
  const struct treadle_device_ops *plain;

  /* Bytes, between windows and host memory either way. It need not be pinned, and may be copied sooner where it is. */
  void (*move)(const treadle_device *device, void *to, const void *from, size_t bytes);
  void (*fill)(const treadle_device *device, void *at, int byte, size_t bytes);

  /* Elements (memory/elements.h). hash: each in a window of its own, [count] of both, once all that was asked for before is done; sums
   * [count] are whole when it returns. */
  void (*generate)(const treadle_device *device, const treadle_elements *elements, void *window);
  treadle_status (*hash)(const treadle_device *device, const treadle_elements *elements,
                         const void *const *windows, size_t count, uint64_t *sums)
      __attribute__((warn_unused_result));
};

/* What is asked for; NULL: host. Kinds that this library has not are refused by name. */
treadle_status treadle_device_open(const treadle_memory *memory, treadle_device *device_p);
void treadle_device_close(treadle_device *device);
/* The row of a kind that this library has not, from the program; NULL takes it away. Before anything opens one. */
void treadle_device_register(treadle_memory_kind kind, const treadle_device_ops *ops);

/* Host memory: windows that are the caller's, files, buffers. */
const treadle_device *treadle_device_host(void);
const treadle_device *treadle_device_plain(void);
bool treadle_device_is_host(const treadle_device *device);

/* Waits for all that was asked for; returns `status`, with its message, where something has failed before. */
treadle_status treadle_device_finish(const treadle_device *device, treadle_status status);

/* ---- Whose memory is it? device_at.c. Any thread ---- */

/* The device that has claimed the memory at an address; the host where none has. */
const treadle_device *treadle_device_at(const void *address);
/* A device other than the host claims memory that it has mapped, so that calls that are given an address alone find the device. It stays where
 * it is until it lets go of all that it has claimed, and lets go before the memory is unmapped. Nothing is done for the host. */
treadle_status treadle_device_claim(const treadle_device *device, const void *memory, size_t bytes);
void treadle_device_let_go(const treadle_device *device);
/* Refused: memory of another device. who: "the built-in engine". */
treadle_status treadle_device_need_host(const char *who, const void *memory);

#endif
