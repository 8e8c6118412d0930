/* Ranks that meet by a store: they find out who is on which node (nodes_meet.h), and with the key of that meeting make their group. */
#include "group/group_nodes.h"
#include "meet/nodes_meet.h"
#include "group/shm.h"
#include "meet/store_tcp.h"

#include "treadle_tools.h"

#include "base/argument.h"
#include "base/clock.h"
#include "base/sized.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST_JOB = 200, KEY = 250 };

typedef struct near_meeting {
  treadle_meeting *meeting;
  int32_t node;
} near_meeting;

typedef struct courier_store { /* by which couriers find each other */
  const treadle_store *store;
  const char *job;
  treadle_meeting *meeting;
} courier_store;

static treadle_status find_key(void *context, double deadline, char *name) {
  const treadle_meeting *meeting = context;
  (void)deadline;
  for (size_t i = 0; i < sizeof meeting->key; i++) snprintf(name + 2 * i, 3, "%02x", meeting->key[i]);
  return TREADLE_OK;
}

/* Of the ranks of one node. */
static treadle_status find_near_key(void *context, double deadline, char *name) {
  const near_meeting *near = context;
  char key[TREADLE_SHM_NAME];
  treadle_status status = find_key(near->meeting, deadline, key);
  snprintf(name, TREADLE_SHM_NAME, "%.40sn%d", key, (int)near->node);
  return status;
}

/* ---- Where couriers are, said by way of the store: the key of the meeting is new, so nobody else's words are read ---- */

static void courier_key(const courier_store *of, int32_t node, char *key) {
  char name[TREADLE_SHM_NAME] = "";
  (void)find_key(of->meeting, 0, name);
  snprintf(key, KEY, "treadle/%s/%s/courier/%d", of->job, name, (int)node);
}

static treadle_status say_courier(void *context, int32_t node, const char *text) {
  const courier_store *of = context;
  char key[KEY];
  courier_key(of, node, key);
  treadle_status status = of->store->set(of->store->context, key, text, strlen(text));
  return status == TREADLE_OK ? status : treadle_fail_in(status, "the store's set of '%s': ", key);
}

static treadle_status ask_courier(void *context, int32_t node, double deadline, char *text,
                                  size_t capacity) {
  const courier_store *of = context;
  char key[KEY];
  size_t bytes = 0;
  double left = deadline - treadle_clock_seconds();
  courier_key(of, node, key);
  treadle_status status =
      of->store->get(of->store->context, key, left > 1e-3 ? left : 1e-3, text, capacity - 1, &bytes);
  if (status != TREADLE_OK) return treadle_fail_in(status, "the store's get of '%s': ", key);
  if (bytes >= capacity)
    return treadle_fail(TREADLE_REFUSED, "the store has %zu bytes under '%s', which are no address", bytes,
                        key);
  text[bytes] = 0;
  return TREADLE_OK;
}

/* ---- Groups ---- */

static treadle_status make_over_nodes(const treadle_store *store, const char *job, treadle_meeting *meeting,
                                      int rank, double timeout_seconds, double left,
                                      treadle_group **group_p) {
  treadle_status status = TREADLE_OK;
  treadle_group *near;
  const treadle_nodes *nodes = &meeting->nodes;
  int32_t node = nodes->of[rank];
  near_meeting of_node = {meeting, node};
  courier_store couriers = {store, job, meeting};
  treadle_courier_meeting all = {.nodes = nodes,
                                 .node = node,
                                 .host = meeting->hosts[rank],
                                 .say = say_courier,
                                 .ask = ask_courier,
                                 .context = &couriers};
  _Static_assert(sizeof all.key == sizeof meeting->key, "one key");
  memcpy(all.key, meeting->key, sizeof all.key);
  TRY(treadle_shm_open(&(treadle_shm_name){find_near_key, &of_node}, nodes->index[rank],
                       treadle_nodes_size(nodes, node), left, &near));
  TRY(treadle_group_over_nodes(near, &all, rank, left, NULL, group_p));
  treadle_group_limit(*group_p, timeout_seconds);
out:
  return status;
}

static treadle_status make_group(const treadle_store *store, const char *job, treadle_meeting *meeting,
                                 const treadle_meeting_options *options, double timeout_seconds,
                                 treadle_group **group_p) {
  treadle_status status = TREADLE_OK;
  double left = options->deadline - treadle_clock_seconds();
  if (left < 1e-3) left = 1e-3;
  if (meeting->nodes.count > 1)
    return make_over_nodes(store, job, meeting, options->rank, timeout_seconds, left, group_p);
  TRY(treadle_shm_open(&(treadle_shm_name){find_key, meeting}, options->rank, (int)meeting->nodes.ranks,
                       left, group_p));
  (*group_p)->timeout_seconds = timeout_seconds;
out:
  return status;
}

/* hurries: ranks that met at a store of treadle_store_open have no more time to meet than they had there. */
static treadle_status open_group(const treadle_store *store, treadle_meeting_options *options,
                                 double timeout_seconds, bool hurries, treadle_group **group_p) {
  treadle_status status = TREADLE_OK;
  treadle_meeting meeting = {0};
  treadle_store own;
  TRY(TREADLE_TAKE(store, &own));
  if (!own.set) return treadle_refuse_null("treadle_group_store", "store->set");
  if (!own.get) return treadle_refuse_null("treadle_group_store", "store->get");
  TRY(treadle_check_seconds("treadle_group_store", "timeout_seconds", timeout_seconds));
  const char *job = own.job ? own.job : "0";
  if (!*job || strlen(job) > LONGEST_JOB)
    return treadle_fail(TREADLE_REFUSED, "group: a job's name has 1 to %d bytes; this one has %zu",
                        LONGEST_JOB, strlen(job));
  TRY(treadle_shm_check_rank(job, options->rank, options->size));
  double most = hurries ? treadle_store_seconds(&own) : 0;
  options->deadline =
      treadle_clock_seconds() + (most > 0 && most < timeout_seconds ? most : timeout_seconds);
  TRY(treadle_nodes_meet(&own, options, &meeting));
  TRY(make_group(&own, job, &meeting, options, timeout_seconds, group_p));
out:
  treadle_meeting_release(&meeting);
  return status;
}

treadle_status treadle_group_store(const treadle_store *store, int rank, int size, int node,
                                   double timeout_seconds, treadle_group **group_p) {
  treadle_status status = TREADLE_OK;
  treadle_meeting_options options = {.rank = rank, .size = size, .number = node};
  TREADLE_NEED(group_p);
  *group_p = NULL;
  TREADLE_NEED(store);
  TRY(open_group(store, &options, timeout_seconds, false, group_p));
out:
  return status;
}

treadle_status treadle_group_nodes(const treadle_store *store, int rank, int size, int nodes,
                                   double timeout_seconds, treadle_group **group_p) {
  treadle_status status = TREADLE_OK;
  treadle_meeting_options options = {.rank = rank, .size = size, .number = -1, .nodes = nodes};
  TREADLE_NEED(group_p);
  *group_p = NULL;
  TREADLE_NEED(store);
  TRY(open_group(store, &options, timeout_seconds, true, group_p));
out:
  return status;
}
