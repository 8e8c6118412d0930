/* treadle for engines in other processes: they read the infer parameters of a switch where they lie.
 *
 * The conventions are those of treadle.h. */
#ifndef TREADLE_ATTACH_H
#define TREADLE_ATTACH_H

#include "treadle.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- Windows in other processes ------------------------------------------------------------------ */

/* Another process on the machine, such as an engine of its own, can read the infer parameters of a rank where they lie:
 *
 *   the rank    treadle_switch_handle makes a handle; send its bytes as you like, by a file, a socket or an argument
 *   the reader  treadle_attach maps the window read-only; it keeps its address until treadle_detach.
 *               treadle_attached_wait waits until a version is in the window. treadle_attached_hold keeps it there
 *               while the reader generates. treadle_attached_release ends that
 *
 * Each arrow out of mode INFER makes the version invalid, and then waits on every rank until no process holds a window.
 * If the switch's time limit passes first, all ranks refuse the arrow: TREADLE_TIMEOUT names the process that held a
 * window, and mode, bytes and version stay as they were. A holder that died is dropped at once. Without a hold, bytes
 * may change under the reader as soon as treadle_attached_is_valid is false.
 *
 * After the switch was destroyed or its process died, the window stays mapped with the bytes that it had. Then no
 * version is valid, and waits return TREADLE_PEER. The window's arrangement and its storage tensors never change:
 * treadle_switch_rejoin keeps the plan or is refused, so readers stay attached. */

enum { TREADLE_HANDLE_BYTES = 4096 }; /* more than any handle has */

/* Gives the handle of this rank's window of class TREADLE_INFER_PARAMS, the only class that has handles: *bytes_p
 * bytes, equal each time. With the first handle, the switch gets a thread and a local socket. Readers of the same user
 * get the pool there, to read, and a small file with versions and holds, as descriptors. Works in any mode. Refused:
 * another class; an engine that changes its weights (transforms); own infer tensors; double_infer; a `capacity` that is
 * too small (TREADLE_HANDLE_BYTES is enough). TREADLE_STATE: an arrow runs. Local. */
treadle_status treadle_switch_handle(treadle_switch *sw, treadle_class which, void *handle, size_t capacity,
                                     size_t *bytes_p);

/* Ends all handles of the switch, for an owner that is done with it but whose memory stays. Readers keep the window as
 * it is, but no version is valid for them, their holds are over, and their waits return TREADLE_PEER. New readers
 * cannot attach. TREADLE_STATE: an arrow runs. Local. */
treadle_status treadle_switch_withdraw(treadle_switch *sw);

/* A window of another process, or of this one. It needs no other object, and any number of threads may use it. A child
 * made by fork has the window too, but not the holds of its parent. On CUDA it has nothing, and may make no
 * call with it. */
typedef struct treadle_attached treadle_attached;

/* Attaches to a window by its handle. It maps the pages but does not touch them. Refused, before the handle is used:
 * one that was cut or altered, or comes from another format, machine, process namespace or user; a window in memory of
 * a kind that this process does not have. TREADLE_PEER: the owner's process died, or its switch was destroyed.
 * TREADLE_TIMEOUT: the owner does not answer. */
treadle_status treadle_attach(const void *handle, size_t bytes, double timeout_seconds, treadle_attached **attached_p);
/* Releases this process's holds by this object, and unmaps the window. Accepts NULL. */
void treadle_detach(treadle_attached *attached);

typedef struct treadle_attached_info {
  size_t struct_size;
  int32_t process; /* process id of the owner */
  int32_t rank, ranks;
  uint64_t version; /* the last committed one; 0: none */
  bool valid;       /* that version is in the window now */
  bool alive;       /* the owner lives, and has not destroyed its switch */
  size_t page_bytes;
  char layout[256];      /* the start of its text */
  treadle_memory memory; /* where the window lies: the device's number is that of this process, the stream is NULL */
} treadle_attached_info;

/* Copies bytes of the window to memory of the host, wherever the window lies. Refused: a range beyond the window. They
 * are those of one version as long as that is held. */
treadle_status treadle_attached_read(const treadle_attached *attached, size_t offset, size_t bytes, void *to);

void treadle_attached_get_info(const treadle_attached *attached, treadle_attached_info *info_p); /* else zeros */

/* The window's address, in the owner's kind of memory; read-only; fixed. *bytes_p (or NULL): its size. NULL: none. */
const void *treadle_attached_window(const treadle_attached *attached, size_t *bytes_p);
/* The storage tensors of the window, as treadle_plan_storage of the owner's plan gives them: how many there are, facts
 * by number from 0, and the number of the first one with a name. Else -1. */
int32_t treadle_attached_storage_count(const treadle_attached *attached);
treadle_status treadle_attached_storage(const treadle_attached *attached, int32_t storage,
                                        treadle_storage_info *info_p);
int32_t treadle_attached_find(const treadle_attached *attached, const char *name);

/* The last version that the owner committed, whether it is in the window or not; else 0. And whether it is there now,
 * which means that the owner is in mode INFER; else false. */
uint64_t treadle_attached_version(const treadle_attached *attached);
bool treadle_attached_is_valid(const treadle_attached *attached);

/* Waits until a version of at least `version` is in the window. Calls `watch` at least every 50 ms (NULL: nobody); if
 * it returns false, the wait ends with TREADLE_CANCELLED. TREADLE_TIMEOUT: the version did not come. TREADLE_PEER: the
 * owner died or destroyed its switch. */
treadle_status treadle_attached_wait(treadle_attached *attached, uint64_t version, double timeout_seconds,
                                     treadle_watcher watch, void *context);

/* Holds the version that is in the window, and says in *version_p which. Its bytes stay until each hold has been
 * released, or this process dies. Does not block. At most 64 objects hold a window at a time. TREADLE_STATE: no version
 * is valid, or 64 objects hold the window already. TREADLE_PEER: the owner died or destroyed its switch. */
treadle_status treadle_attached_hold(treadle_attached *attached, uint64_t *version_p);
/* Ends a hold of that version. TREADLE_STATE: this process does not hold that version by this object. */
treadle_status treadle_attached_release(treadle_attached *attached, uint64_t version);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
