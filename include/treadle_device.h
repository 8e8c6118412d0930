/* treadle for authors of devices and of nets: the tables of functions for memory that windows lie in, and for messages
 * between ranks on different nodes.
 *
 * treadle_device_register gives the table of a device to the process. treadle_group_set_net (treadle.h) gives the table
 * of a net to a group; examples/07_own_net.c has one. The conventions are those of treadle.h. */
#ifndef TREADLE_DEVICE_H
#define TREADLE_DEVICE_H

#include "treadle.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- Devices: memory, and who works on it --------------------------------------------------------------- */

/* Addresses in pools, windows and scratch memory are the device's own: only its functions read and write there. Where a
 * function says "host memory", it may be given that too. Where it says "pinned", that host memory lies in a range that
 * was pinned for the device. Addresses and offsets need no alignment.
 *
 *   order     A device does work in the order in which it was asked for; only the ops of one call of `run` may be done
 *             in any order. It may do the work after the call has returned. A ticket is a moment in that order: when it
 *             has passed, everything before it is done, and others see it. After a fence, the next work that is asked
 *             for first waits for what treadle_memory.stream has been given up to that moment. A fence that finds
 *             nothing new asked for waits for that stream, too.
 *   lifetime  A call reads ops, views and elements before it returns. Page tables, and host memory that the work reads
 *             or writes, stay until the work is done. When `fence` has returned, with whatever status, no earlier work
 *             touches memory any more.
 *   failures  The next `passed` or `fence` says what has failed, and so does each one after it until `renew`. What
 *             returns a status says why with treadle_error_set.
 *   threads   Any thread may call any function, and several may at once.
 *   others    Work may read pools of other devices of this kind: windows that `view` gave, and those of other ranks in
 *             this process.
 *   none      There may be pools, windows (map: *base_p is NULL) and views of 0 pages, scratch memory of 0 bytes (not
 *             NULL), a count of 0 in copy, pack, blocks, prepare, run and hash, and 0 bytes in move, fill and pin. What
 *             ends a thing (destroy, unimport, work_release, scratch_release) accepts NULL. */

enum { TREADLE_MAX_AXES = 6 }; /* of a strided box */

/* One strided copy, or a fill. Axes run from slow to fast. Only what has a comment matters to a device. Frozen. */
typedef struct treadle_op {
  int32_t wave;
  int32_t source; /* below 0: a fill, which reads nothing */
  bool twin;
  uint8_t ndim;                 /* of size and strides */
  uint8_t from_dtype, to_dtype; /* treadle_dtype: values are converted as torch converts them, to nearest even */
  int8_t add;                   /* -1, 0 or 1: added to each value in fp32, between the two types */
  uint8_t wire;
  int32_t tensor; /* of a fill: TREADLE_FILL_ZEROS or TREADLE_FILL_MINUS_INFINITY */
  int32_t storage;
  int64_t from, to; /* bytes: where the box begins in the two views */
  int64_t size[TREADLE_MAX_AXES];
  int64_t from_stride[TREADLE_MAX_AXES], to_stride[TREADLE_MAX_AXES]; /* bytes */
  int64_t elems;                                                      /* the product of size */
  int64_t made;
} treadle_op;

/* A view: memory seen through a page table. Byte b lies at base + table[b / page] * page + b % page. base itself may
 * lie outside of any memory. Frozen. */
typedef struct treadle_paged {
  const char *base;
  char *into;           /* equal to base where the view may be written; NULL: it is only read */
  const int32_t *table; /* NULL: the memory is contiguous at base */
  int page_shift;       /* log2 of the page size, if there is a table */
} treadle_paged;

/* Values in memory, as rows and columns. Frozen. */
typedef struct treadle_matrix {
  const void *base;
  void *into;                        /* equal to base where it may be written; NULL: it is only read */
  int64_t row_stride, column_stride; /* bytes, of any sign */
} treadle_matrix;

/* A strip: fp8 blocks side by side, of at most 128 rows and columns each. Frozen. */
typedef struct treadle_strip {
  treadle_matrix values, codes; /* [rows, columns] */
  treadle_matrix scales;        /* [1, blocks] fp32 */
  int64_t rows, columns;
  int32_t width, skip; /* columns of a whole block; how many of them the first one lacks. The last one may lack some */
  treadle_dtype dtype; /* of the values */
  bool back;           /* codes and scales are read, and values are written */
} treadle_strip;

/* A box of elements in a window, in the order of the canonical tensor: axes from slow to fast. Frozen. */
typedef struct treadle_elements {
  uint64_t tensor; /* a number that stands for its name */
  treadle_dtype dtype;
  int8_t add;        /* the window holds the value plus this */
  bool near_one;     /* generated values lie near one */
  int ndim;          /* at least 1 */
  int64_t at, index; /* of the first element: its byte in the window, and its index in the canonical tensor */
  int64_t size[TREADLE_MAX_AXES], stride[TREADLE_MAX_AXES]; /* stride: bytes */
  int64_t weight[TREADLE_MAX_AXES];                         /* by which the index grows; that of the last axis is 1 */
} treadle_elements;

typedef struct treadle_device_ops treadle_device_ops;

/* A device that was opened. Frozen. */
typedef struct treadle_device {
  const treadle_device_ops *ops;
  treadle_memory_kind kind;
  int number;   /* among the devices of its kind */
  void *stream; /* the caller's, as treadle_memory gave it */
  void *state;  /* of the table's functions */
} treadle_device;

typedef enum treadle_access { TREADLE_ACCESS_NONE = 0, TREADLE_ACCESS_READ, TREADLE_ACCESS_BOTH } treadle_access;

/* The author of a device defines these structs, each in the device's own files, but for the last one. */
typedef struct treadle_pool treadle_pool;         /* physical pages of one rank, and windows over them */
typedef struct treadle_imported treadle_imported; /* pages of another process's pool: read-only */
typedef struct treadle_work treadle_work;         /* ops that `prepare` has made ready, with their views */
typedef struct treadle_maps treadle_maps;         /* the library's own: what the system says of this process's memory */

/* A window of a pool: its page i lies on physical page table[i], or on none (-1). Frozen. */
typedef struct treadle_view_of {
  const int32_t *table; /* [pages]; NULL: the whole pool, in physical order */
  int64_t pages;
  int page_shift; /* log2 of the page size */
} treadle_view_of;

/* A moment in the order of a device's work. Frozen. */
typedef struct treadle_ticket {
  uint64_t at;
} treadle_ticket;

/* What an op has really written, as counted by whoever wrote it. Frozen. */
typedef struct treadle_written {
  int64_t times, bytes;
  uint64_t mark; /* the sum of treadle_op_mark over the times that it was written */
} treadle_written;

/* The memory of a device. Frozen. */
typedef struct treadle_device_room {
  uint64_t id;              /* equal for all who take from it, in whichever process; 0: it is the host's */
  size_t bytes, left_bytes; /* left_bytes: what may still be taken now */
} treadle_device_room;

/* What a device has done since it was opened. Frozen. */
typedef struct treadle_device_figures {
  double seconds;     /* during which it had work, by its own clock */
  uint64_t launches;  /* of kernels */
  size_t table_bytes; /* of its memory that prepared ops take now */
  size_t slab_bytes;  /* of its pools that are now in pieces of more than one page */
} treadle_device_figures;

/* The functions of one kind of memory. A test of treadle's own, tests/core/memory/device_far.c, has such a table, whose
 * memory the processor cannot touch. */
struct treadle_device_ops {
  size_t struct_size;
  const char *name;
  /* A flag of treadle_net_memory: what kind of memory windows are. A net with that flag sends and receives right there;
   * 0: no net does. So far only windows in host memory are sent from and received into; others go through slots. */
  unsigned net_memory;
  bool guards; /* protect and close_window keep others out; else guard_pages (treadle_switch_options) is refused */

  /* Fills *device_p, whose ops, kind, number and stream are there. The struct may be copied: what must stay belongs in
   * its state. Refused by name: what this machine does not have. close is called once for each open that succeeded. */
  treadle_status (*open)(const treadle_memory *memory, treadle_device *device_p);
  void (*close)(treadle_device *device);
  /* Begins anew while nothing is under way: before a call asks for work, and after one has failed. What has failed is
   * forgotten if the device still works; if not, its failure is returned. TREADLE_REFUSED: the caller's stream cannot
   * be followed now, since it captures a graph, for example; nothing has changed then. */
  treadle_status (*renew)(const treadle_device *device) __attribute__((warn_unused_result));
  /* What keeps the device from reading and writing memory that somebody else has made, for a message ("that memory may
   * not be written"), or NULL. With maps_p, the caller asks for many ranges in a row, and the answer is thorough; leave
   * *maps_p as it is. Without it, the answer is quick: is the memory there at all? */
  const char *(*fault)(const treadle_device *device, const void *memory, size_t bytes, treadle_maps **maps_p);
  /* How much memory there is for pools. */
  treadle_status (*room)(const treadle_device *device, treadle_device_room *room_p);

  void (*figures)(const treadle_device *device, treadle_device_figures *figures_p);

  /* Pages. create makes all pages that the pool will ever have, zeroed; TREADLE_NO_MEMORY: more bytes than the budget.
   * views [view_count]: every window that will be made of the pool or viewed by others, except by remap and follow. So
   * a device may make one piece of pages that follow each other in all of them. NULL: any window may be made. The array
   * is not kept.
   * held_bytes: what the system has given the pool now. map makes a window, whose address never changes, and which
   * ends with the pool. remap puts it on other pages; whoever reads it meanwhile finds the old or the new page at each
   * address. follow does the same by taking the mappings of `shadow`, a second window, which is not used until it is
   * mapped again. trim gives the pages whose class is `nobody` back to the system: they hold zeros afterwards; classes
   * [pages]. A device may refuse remap, follow and trim. */
  treadle_status (*create)(const treadle_device *device, int64_t pages, int64_t page_bytes, int64_t budget_bytes,
                           const treadle_view_of *views, int view_count, treadle_pool **pool_p);
  void (*destroy)(treadle_pool *pool);
  void *(*base)(const treadle_pool *pool); /* all pages, in physical order; NULL: it has none */
  size_t (*held_bytes)(const treadle_pool *pool);
  treadle_status (*map)(treadle_pool *pool, const int32_t *table, int64_t pages, void **base_p);
  treadle_status (*remap)(treadle_pool *pool, void *base, const int32_t *table, int64_t pages);
  treadle_status (*follow)(treadle_pool *pool, void *base, void *shadow, const int32_t *table, int64_t pages);
  treadle_status (*trim)(treadle_pool *pool, const uint8_t *classes, uint8_t nobody);
  /* Who may use a part of a window, from the moment on when everything asked for before is done. The mapping of the
   * whole pool stays as it is. A failure may leave some of the part as it was. Without `guards` this and close_window
   * do nothing. */
  treadle_status (*protect)(treadle_pool *pool, void *at, size_t bytes, treadle_access access)
      __attribute__((warn_unused_result));
  /* Does what protect does for a whole window that is one mapping, and is quick. closed: it may be read; else it may be
   * written too. The first call, when the pool is made, opens it, and gets what later calls need. */
  treadle_status (*close_window)(treadle_pool *pool, void *base, size_t bytes, bool closed)
      __attribute__((warn_unused_result));

  /* The pool as other processes get it: descriptors, each of some of its pages. export_count: how many; 0 for an empty
   * pool. export_part makes `count` of them from number `first` on, or none; the caller sends and closes them.
   * reading: who gets them cannot write by them, if the system can see to that. Any thread. */
  int64_t (*export_count)(const treadle_pool *pool);
  treadle_status (*export_part)(const treadle_pool *pool, int64_t first, int count, bool reading, int *descriptors);
  /* The pool of another process, of `bytes` bytes. Its descriptors come in order, some at a time. They stay the
   * caller's, who may close them when import_part returns. only: the one window that will be viewed, as one range of
   * addresses; its table stays until view has returned. TREADLE_PEER: that table leads beyond the pool. NULL: any may
   * be viewed. */
  treadle_status (*import_begin)(const treadle_device *device, int64_t count, size_t bytes, const treadle_view_of *only,
                                 treadle_imported **imported_p);
  treadle_status (*import_part)(treadle_imported *imported, int64_t first, int count, const int *descriptors);
  /* A window of it, when all is imported. The view lives as long as that, and so does the table, unless import_begin
   * was given `only`. The caller has checked that the table leads to pages of the pool. unimport accepts NULL. */
  treadle_status (*view)(treadle_imported *imported, const treadle_view_of *window, treadle_paged *paged_p);
  void (*unimport)(treadle_imported *imported);

  /* Memory beside pools, zeroed; NULL: there is none. */
  void *(*scratch)(const treadle_device *device, size_t bytes);
  void (*scratch_release)(const treadle_device *device, void *scratch);

  /* Pinned host memory: the device reads and writes it itself, where it lies. Ranges do not overlap. A range is
   * unpinned when all work with it is done, and before it is freed. unpin does nothing where no pinned range begins.
   * Memory of the device itself that `fault` has let pass may come here, too: pin does nothing then. */
  treadle_status (*pin)(const treadle_device *device, void *host, size_t bytes);
  void (*unpin)(const treadle_device *device, void *host);

  /* Ops that are asked for once: [count] of ops, from and to; in any order, none reads what another one writes. What
   * they read and write may be pinned; copy may also read any host memory, as files are loaded. A fill has no view to
   * read from, and never comes to pack; from may be NULL if there is nothing but fills. pack is for what is read again
   * right away, and leaves it in caches. */
  void (*copy)(const treadle_device *device, const treadle_op *ops, const treadle_paged *from, const treadle_paged *to,
               size_t count);
  void (*pack)(const treadle_device *device, const treadle_op *ops, const treadle_paged *from, const treadle_paged *to,
               size_t count);
  /* Makes fp8 codes and scales of values, or values of them, in strips [count], in any order: none reads what another
   * one writes. Both ways have the bits that src/core/memory/quantise.h describes. */
  void (*blocks)(const treadle_device *device, const treadle_strip *strips, size_t count);

  /* Makes ops ready that run again and again: [count] of ops, from and to. The views are copied; the ops stay where
   * they are until work_release. A fill has no view to read from, and a view whose base is NULL belongs to an op that
   * is never run. What ops read and write may be pinned. */
  treadle_status (*prepare)(const treadle_device *device, const treadle_op *ops, const treadle_paged *from,
                            const treadle_paged *to, size_t count, treadle_work **work_p);
  void (*work_release)(treadle_work *work);
  /* Runs `count` ops from number `first` on, in any order: none reads what another one writes. What each has written is
   * added to written [count], host memory, which is whole when the ticket of a later mark has passed. */
  void (*run)(const treadle_device *device, const treadle_work *work, size_t first, size_t count,
              treadle_written *written);

  /* mark: the moment after everything that was asked for so far. passed: is a ticket's moment over? It never waits, and
   * any ticket may be asked about as often as wanted. fence waits for everything that was asked for. */
  treadle_ticket (*mark)(const treadle_device *device);
  treadle_status (*passed)(const treadle_device *device, treadle_ticket ticket, bool *passed_p)
      __attribute__((warn_unused_result));
  treadle_status (*fence)(const treadle_device *device) __attribute__((warn_unused_result));

  /* The same device without what makes it fast, for tests: its functions get devices that this table has opened. It may
   * be this table. */
  const struct treadle_device_ops *plain;

  /* Bytes from anywhere to anywhere: memory of devices of this kind, or host memory, pinned or not. If it is not, the
   * copy may be done before the call returns. */
  void (*move)(const treadle_device *device, void *to, const void *from, size_t bytes);
  void (*fill)(const treadle_device *device, void *at, int byte, size_t bytes);

  /* generate makes values, which depend on tensor and index alone. hash gives sums [count], one for each of elements
   * [count] in its own of windows [count]: of tensor, index and value of each element. It returns when they are whole,
   * and may read pinned memory. Both have the bits that src/core/memory/value.h describes. */
  void (*generate)(const treadle_device *device, const treadle_elements *elements, void *window);
  treadle_status (*hash)(const treadle_device *device, const treadle_elements *elements, const void *const *windows,
                         size_t count, uint64_t *sums) __attribute__((warn_unused_result));
};

/* Gives this process a table for a kind of memory, in place of the library's own; NULL takes it away. The table
 * stays where it is. Not while a switch or an attached window of that kind exists, or a thread makes one. Refused:
 * TREADLE_MEMORY_HOST; a table, or its `plain`, that is too short for this library or lacks a function or the name.
 * Local. */
treadle_status treadle_device_register(treadle_memory_kind kind, const treadle_device_ops *ops);

/* What an op adds to treadle_written.mark: a hash of what it writes and where, alike for equal ops. Else 0. */
uint64_t treadle_op_mark(const treadle_op *op);

/* ---- Nets: messages between ranks on different nodes ---------------------------------------------------- */

/* A part of a message: where its bytes lie. Frozen. */
typedef struct treadle_net_part {
  void *at;
  size_t bytes;
} treadle_net_part;

/* Flags: the kinds of memory in which parts may lie. */
typedef enum treadle_net_memory { TREADLE_NET_HOST = 1, TREADLE_NET_CUDA = 2 } treadle_net_memory;

typedef struct treadle_net_options {
  size_t struct_size;
  int rank, ranks;
  const char *devices; /* network devices, "eth0,eth1"; NULL: those of `host` */
  const char *host;    /* the address of this rank's machine by which it met the others; NULL: not known */
  void *context;       /* what the caller gave with the table */
} treadle_net_options;

/* How messages go from rank to rank where memory cannot be read in place. `net` is the table's own state, which one
 * thread at a time uses.
 *
 *   matching   A send and a receive match by the other rank and the tag, below 2^40, whichever is called first. A pair
 *              of ranks never has two messages of one tag and one direction at a time.
 *   order      A message may wait until messages that were sent to that rank before it have been received.
 *   contents   A received message has the sent bytes, all of them. If the lengths differ, it fails with TREADLE_PEER
 *              and both numbers, and the contents of the parts are undefined.
 *   parts      The two sides may cut a message into parts in different ways.
 *   failures   After a failure of one pair, the other pairs go on. */
struct treadle_net_ops {
  size_t struct_size;
  const char *name; /* "ucx" */
  /* Flags of treadle_net_memory: where parts may lie. All nets have TREADLE_NET_HOST. Without the flag of a window's
   * memory, no part lies there: what it holds is copied to host memory, and sent from it. */
  unsigned memory;
  int most_parts; /* of a message; at least 1 */
  /* Makes the net of this rank. Refused: a net that cannot work here, with what to install; devices that do not exist;
   * an address of another machine. Local. */
  treadle_status (*open)(const treadle_net_options *options, void **net_p);
  /* Gives the bytes by which others connect, at most `capacity` of them. */
  treadle_status (*address)(void *net, void *room, size_t capacity, size_t *bytes_p);
  /* Connects to rank `peer`. Called once, before the first message to or from it. Both sides call it, in any order, and
   * neither waits: messages wait until both have. Refused: bytes that are not the address of that rank. TREADLE_PEER:
   * nobody is there. */
  treadle_status (*connect)(void *net, int peer, const void *address, size_t bytes);
  /* Start to send or receive a message of `count` parts. The array is copied; the parts' memory stays until the request
   * has ended. A message may have no bytes. A send that has ended may not have arrived yet. TREADLE_STATE: `peer` is
   * not connected. TREADLE_PEER: it was lost before. */
  treadle_status (*send)(void *net, int peer, uint64_t tag, const treadle_net_part *parts, int count, void **request_p);
  treadle_status (*receive)(void *net, int peer, uint64_t tag, const treadle_net_part *parts, int count,
                            void **request_p);
  /* Advances all requests that are under way, and says in *done_p whether this one has ended. If so, or with a status
   * other than TREADLE_OK, the request no longer exists. TREADLE_PEER: the other rank cannot be reached any more. A
   * peer that is there and silent is not an error, since the caller has a time limit. */
  treadle_status (*test)(void *net, void *request, bool *done_p);
  /* Advances requests, and returns when a test may say more, after `seconds` at most. */
  void (*wait)(void *net, double seconds);
  /* Ends a request that no test has ended. Its memory is not touched any more. The pair has no more messages until the
   * net is opened again: other requests of the pair, on both sides, may end with TREADLE_PEER. The caller cancels those
   * that do not. */
  void (*cancel)(void *net, void *request);
  /* Closes the net, and cancels requests that are under way. Messages that others have not received yet may be lost,
   * even if their send has ended. So ranks close when all have received what they wait for, and tell each other so in
   * another way. A child made by fork may call only this function. There it frees memory, and leaves the parent's
   * connections alone. */
  void (*close)(void *net);
};

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
