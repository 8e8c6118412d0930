/* Ranks that meet by a store: rank 0 leaves a random name there, by which they meet as processes of one machine.
 *
 * A store may still have the name that an older job left. Its hub is gone, so that nobody listens to it; then the store is asked again,
 * until rank 0 of this job has written its own. */
#include "transport/shm.h"

#include "base/argument.h"
#include "base/clock.h"
#include "base/sized.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum { KEY = 240, LONGEST_JOB = 200 };

typedef struct meeting {
  treadle_store store;
  int rank;
  char key[KEY];
} meeting;

/* What the store's own function says, in words about the key. */
static treadle_status failed(const meeting *m, treadle_status status, const char *what) {
  return treadle_fail_in(status, "the store's %s of '%s': ", what, m->key);
}

static treadle_status leave_name(const meeting *m, char *name) {
  unsigned char random[16];
  if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
    return treadle_fail(TREADLE_SYSTEM, "group: there are no random numbers: %s", strerror(errno));
  for (size_t i = 0; i < sizeof random; i++) snprintf(name + 2 * i, 3, "%02x", random[i]);
  treadle_status status = m->store.set(m->store.context, m->key, name, strlen(name));
  return status == TREADLE_OK ? status : failed(m, status, "set");
}

static treadle_status find_name(void *context, double deadline, char *name) {
  const meeting *m = context;
  if (m->rank == 0) return leave_name(m, name);
  size_t bytes = 0;
  double left = deadline - treadle_clock_seconds();
  treadle_status status =
      m->store.get(m->store.context, m->key, left > 1e-3 ? left : 1e-3, name, TREADLE_SHM_NAME - 1, &bytes);
  if (status != TREADLE_OK) return failed(m, status, "get");
  if (bytes >= TREADLE_SHM_NAME)
    return treadle_fail(TREADLE_REFUSED, "the store has %zu bytes under '%s', which are no name of a group",
                        bytes, m->key);
  name[bytes] = 0;
  return TREADLE_OK;
}

treadle_status treadle_group_store(const treadle_store *store, int rank, int size, double timeout_seconds,
                                   treadle_group **group_p) {
  treadle_status status = TREADLE_OK;
  meeting m = {.rank = rank};
  TREADLE_NEED(group_p);
  *group_p = NULL;
  TREADLE_NEED(store);
  TRY(TREADLE_TAKE(store, &m.store));
  if (!m.store.set) return treadle_refuse_null(__func__, "store->set");
  if (!m.store.get) return treadle_refuse_null(__func__, "store->get");
  TRY(TREADLE_CHECK_SECONDS(timeout_seconds));
  const char *job = m.store.job ? m.store.job : "0";
  if (!*job || strlen(job) > LONGEST_JOB)
    return treadle_fail(TREADLE_REFUSED, "group: a job's name has 1 to %d bytes; this one has %zu",
                        LONGEST_JOB, strlen(job));
  snprintf(m.key, sizeof m.key, "treadle/%s/name", job);
  TRY(treadle_shm_check_rank(m.key, rank, size));
  TRY(treadle_shm_open(&(treadle_shm_name){find_name, &m}, rank, size, timeout_seconds, group_p));
out:
  return status;
}
