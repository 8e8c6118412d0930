/* Versions and holds: how a window is not overwritten under those who read it from other processes.
 *
 * The two sides, each with what it stores before what it reads:
 *
 *     reader                                       owner, before it takes the window away
 *     1. a free place: process = me                 1. valid = 0
 *     2. is `valid` still the version I saw?       2. is every place free?
 *        yes: held. No: the place is free again        yes: on. No: sleeps, and looks again at this place
 *
 * All four are sequentially consistent, so they have one order. If the reader's 1 comes before the owner's look at that place,
 * the owner sees the hold and waits. Else the owner's look, and its 1 before that, come before the reader's 1; so the reader's 2 finds 0,
 * or a later version, and it does not hold. It cannot find the version that it saw, unless the owner has given up taking the window away and
 * said again that it is there: then the bytes are there, and the next attempt is a new 1 that the owner makes after the reader's 1. A
 * version is never said again once its window was taken: numbers only grow.
 *
 * The word `process` alone is the hold. It goes from 0 to a process by the compare-and-swap of that process, and back by its store. If the
 * process is dead, anybody may take the place from it, by a compare-and-swap of its word: to 0 (the owner), or for itself (a
 * reader who finds all places taken). A word is number and start time of a process, so that two processes never have the same. What
 * else is in a place is for messages, and may be that of the last hold.
 *
 * Sleeping: who waits says so and then looks at the counter, which who wakes raises before it looks whether somebody waits. Each
 * sleep is short in any case, since a process can die without a word. */
#include "attach/handle.h"

#include "base/clock.h"
#include "group/shm.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint64_t treadle_hold_process(pid_t process, uint64_t start_time) {
  return start_time << TREADLE_PROCESS_BITS | (uint64_t)process;
}

pid_t treadle_hold_number(uint64_t process) { return (pid_t)(process & ((1 << TREADLE_PROCESS_BITS) - 1)); }

/* A process that cannot be looked at counts as alive. */
static bool is_dead(uint64_t process) {
  int descriptor;
  if (treadle_shm_process(treadle_hold_number(process), process >> TREADLE_PROCESS_BITS, "a reader",
                          &descriptor) != TREADLE_OK)
    return false;
  bool dead = !treadle_shm_is_alive(descriptor);
  if (descriptor >= 0) close(descriptor);
  return dead;
}

static void sleep_on(_Atomic uint32_t *word, uint32_t seen, double seconds) {
  if (!(seconds > 0)) return;
  const struct timespec limit = {.tv_sec = (time_t)seconds,
                                 .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
  syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

static void wake(_Atomic uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0); }

/* ---- The reader ---- */

static int take_place(treadle_sheet *sheet, uint64_t process) {
  for (int dead = 0; dead < 2; dead++) /* free ones first */
    for (int i = 0; i < TREADLE_HOLDS; i++) {
      uint64_t there = atomic_load(&sheet->holds[i].process);
      if (dead ? there != 0 && !is_dead(there) : there != 0) continue;
      if (atomic_compare_exchange_strong(&sheet->holds[i].process, &there, process)) return i;
    }
  return -1;
}

treadle_status treadle_hold_try(treadle_sheet *sheet, uint64_t process, uint64_t version, int *place_p) {
  int place = take_place(sheet, process);
  *place_p = -1;
  if (place < 0)
    return treadle_fail(TREADLE_STATE, "hold: %d processes hold this window, and no more can",
                        TREADLE_HOLDS);
  atomic_store(&sheet->holds[place].version, version);
  atomic_store(&sheet->holds[place].since, (uint64_t)(treadle_clock_seconds() * 1e6));
  if (atomic_load(&sheet->valid) == version)
    *place_p = place;
  else
    treadle_hold_release(sheet, place);
  return TREADLE_OK;
}

treadle_status treadle_hold_take(treadle_sheet *sheet, uint64_t process, int *place_p,
                                 uint64_t *version_p) {
  treadle_status status = TREADLE_OK;
  do {
    *version_p = atomic_load(&sheet->valid);
    if (*version_p == 0)
      return treadle_fail(TREADLE_STATE, "hold: no version is in the window now (the last one was %llu)",
                          (unsigned long long)atomic_load(&sheet->committed));
    TRY(treadle_hold_try(sheet, process, *version_p, place_p));
  } while (*place_p < 0);
out:
  return status;
}

void treadle_hold_release(treadle_sheet *sheet, int place) {
  atomic_store(&sheet->holds[place].process, 0);
  atomic_fetch_add(&sheet->freed, 1);
  if (atomic_load(&sheet->waits)) wake(&sheet->freed);
}

void treadle_sheet_listen(treadle_sheet *sheet, uint32_t told, double seconds) {
  atomic_fetch_add(&sheet->listeners, 1);
  sleep_on(&sheet->told, told, seconds);
  atomic_fetch_sub(&sheet->listeners, 1);
}

/* ---- The owner ---- */

void treadle_sheet_tell(treadle_sheet *sheet, uint64_t valid, uint64_t committed) {
  atomic_store(&sheet->committed, committed);
  atomic_store(&sheet->valid, valid);
  atomic_fetch_add(&sheet->told, 1);
  if (atomic_load(&sheet->listeners)) wake(&sheet->told);
}

int treadle_sheet_find_hold(treadle_sheet *sheet) {
  for (int i = 0; i < TREADLE_HOLDS; i++) {
    uint64_t there = atomic_load(&sheet->holds[i].process);
    if (there == 0) continue;
    if (!is_dead(there)) return i;
    if (!atomic_compare_exchange_strong(&sheet->holds[i].process, &there, 0))
      return i; /* another's by now */
  }
  return -1;
}

void treadle_sheet_wait_free(treadle_sheet *sheet, int place, double seconds) {
  atomic_store(&sheet->waits, 1);
  uint32_t freed = atomic_load(&sheet->freed);
  if (atomic_load(&sheet->holds[place].process) != 0) sleep_on(&sheet->freed, freed, seconds);
  atomic_store(&sheet->waits, 0);
}
