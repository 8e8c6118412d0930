/* Ranks that meet by a store: rank 0 leaves a random name there, by which they meet as processes of one machine.
 *
 * A store may still have the name that an older job left. Its hub is gone, so that nobody listens to it; then the store is asked again,
 * until rank 0 of this job has written its own.
 *
 * Nobody listens on another node either. So with the name rank 0 leaves its node, and a number that grows as long as it waits: a rank on
 * another node that sees the number grow knows that this name is not an older job's, and is refused. It has left a word under a key with the
 * name, which rank 0 looks for.
 *
 *     treadle/JOB/name        NAME/NUMBER/NODE      rank 0
 *     treadle/JOB/NAME        RANK/NODE             a rank on another node */
#include "transport/node.h"
#include "transport/shm.h"

#include "base/argument.h"
#include "base/clock.h"
#include "base/sized.h"
#include "base/thread_watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { KEY = 300, LONGEST_JOB = 200, VALUE = TREADLE_SHM_NAME + 24 + TREADLE_NODE_TEXT };
static const double EVERY = 0.2; /* seconds between two numbers */

typedef struct meeting {
  treadle_store store;
  int rank;
  char key[KEY], word_key[KEY]; /* of the name, and of the word about it */
  treadle_node here;
  char
      name[TREADLE_SHM_NAME]; /* rank 0: its own; others: the last one from another node, with its number */
  unsigned long number;
  double next; /* rank 0: when the number grows */
} meeting;

/* What the store's own function says, in words about the key. */
static treadle_status failed(treadle_status status, const char *what, const char *key) {
  return treadle_fail_in(status, "the store's %s of '%s': ", what, key);
}

static treadle_status set(const meeting *m, const char *key, const char *value) {
  treadle_thread_ask_soon();
  treadle_status status = treadle_thread_ask("a store");
  if (status != TREADLE_OK) return status;
  status = m->store.set(m->store.context, key, value, strlen(value));
  return status == TREADLE_OK ? status : failed(status, "set", key);
}

/* value [VALUE] */
static treadle_status get(const meeting *m, const char *key, double seconds, char *value) {
  size_t bytes = 0;
  treadle_thread_ask_soon();
  treadle_status status = treadle_thread_ask("a store");
  if (status != TREADLE_OK) return status;
  status = m->store.get(m->store.context, key, seconds, value, VALUE - 1, &bytes);
  if (status != TREADLE_OK) return failed(status, "get", key);
  if (bytes >= VALUE)
    return treadle_fail(TREADLE_REFUSED, "the store has %zu bytes under '%s', which are no name of a group",
                        bytes, key);
  value[bytes] = 0;
  return TREADLE_OK;
}

/* "treadle/JOB/name" to "treadle/JOB/NAME" */
static void set_word_key(meeting *m) {
  size_t front = strlen(m->key) - strlen("name");
  snprintf(m->word_key, sizeof m->word_key, "%.*s%s", (int)front, m->key, m->name);
}

/* ---- Rank 0 ---- */

static treadle_status tell_name(meeting *m) {
  char value[VALUE], node[TREADLE_NODE_TEXT];
  treadle_node_write(&m->here, node);
  snprintf(value, sizeof value, "%s/%lu/%s", m->name, m->number, node);
  m->number++;
  m->next = treadle_clock_seconds() + EVERY;
  return set(m, m->key, value);
}

static treadle_status leave_name(meeting *m, char *name) {
  unsigned char random[16];
  if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
    return treadle_fail(TREADLE_SYSTEM, "group: there are no random numbers: %s", strerror(errno));
  for (size_t i = 0; i < sizeof random; i++) snprintf(m->name + 2 * i, 3, "%02x", random[i]);
  set_word_key(m);
  memcpy(name, m->name, sizeof m->name);
  return tell_name(m);
}

/* Is there a rank on another node? */
static treadle_status look_for_word(void *context) {
  treadle_status status = TREADLE_OK;
  meeting *m = context;
  char value[VALUE], *end;
  treadle_node node;
  if (treadle_clock_seconds() < m->next) return TREADLE_OK;
  TRY(tell_name(m));
  status = get(m, m->word_key, 0, value);
  if (status == TREADLE_TIMEOUT) return TREADLE_OK;
  if (status != TREADLE_OK) return status;
  long rank = strtol(value, &end, 10);
  if (*end != '/' || !treadle_node_read(end + 1, &node)) return TREADLE_OK;
  TRY(tell_name(m)); /* that rank may have seen the last number alone */
  TRY(treadle_node_check(&m->here, 0, &node, (int)rank));
out:
  return status;
}

/* ---- The others ---- */

/* Rank 0, of this job or of an older one, is on another node. */
static treadle_status hear_elsewhere(meeting *m, const char *name, unsigned long number,
                                     const treadle_node *node) {
  char value[VALUE], text[TREADLE_NODE_TEXT];
  if (strcmp(m->name, name) == 0)
    return number == m->number ? TREADLE_OK : treadle_node_check(node, 0, &m->here, m->rank);
  snprintf(m->name, sizeof m->name, "%s", name);
  m->number = number;
  set_word_key(m);
  treadle_node_write(&m->here, text);
  snprintf(value, sizeof value, "%d/%s", m->rank, text);
  return set(m, m->word_key, value);
}

static treadle_status find_name(void *context, double deadline, char *name) {
  treadle_status status = TREADLE_OK;
  meeting *m = context;
  char value[VALUE];
  treadle_node node;
  if (m->rank == 0) return leave_name(m, name);
  double left = deadline - treadle_clock_seconds();
  TRY(get(m, m->key, left > 1e-3 ? left : 1e-3, value));
  char *rest = strchr(value, '/'), *end = NULL;
  if (rest) *rest++ = 0;
  if (strlen(value) >= TREADLE_SHM_NAME)
    return treadle_fail(TREADLE_REFUSED, "the store has %zu bytes under '%s', which are no name of a group",
                        strlen(value), m->key);
  *name = 0;
  unsigned long number = rest ? strtoul(rest, &end, 10) : 0;
  if (end && *end == '/' && treadle_node_read(end + 1, &node) && !treadle_node_is_same(&m->here, &node))
    return hear_elsewhere(m, value, number, &node);
  snprintf(name, TREADLE_SHM_NAME, "%s", value);
out:
  return status;
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
  TRY(treadle_node_here(&m.here));
  TRY(treadle_shm_open(&(treadle_shm_name){find_name, look_for_word, &m}, rank, size, timeout_seconds,
                       group_p));
out:
  return status;
}
