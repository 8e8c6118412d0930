/* Ranks that meet by a store: they find out who is on which node (nodes_meet.h), and with the key of that meeting make their group. */
#include "transport/nodes_meet.h"
#include "transport/shm.h"

#include "treadle_tools.h"

#include "base/argument.h"
#include "base/clock.h"
#include "base/sized.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST_JOB = 200 };

static treadle_status find_key(void *context, double deadline, char *name) {
  const treadle_meeting *meeting = context;
  (void)deadline;
  for (size_t i = 0; i < sizeof meeting->key; i++) snprintf(name + 2 * i, 3, "%02x", meeting->key[i]);
  return TREADLE_OK;
}

/* "ranks 0, 1 on 10.0.0.1, rank 2 on 10.0.0.2": as many as fit. */
static void add_nodes(treadle_builder *text, const treadle_meeting *meeting) {
  const treadle_nodes *nodes = &meeting->nodes;
  for (int32_t node = 0; node < nodes->count && text->length < 500; node++) {
    int32_t size = treadle_nodes_size(nodes, node), leader = treadle_nodes_leader(nodes, node);
    treadle_builder_add(text, "%s rank%s ", node ? "," : "", size > 1 ? "s" : "");
    for (int32_t i = 0; i < size && i < 16; i++)
      treadle_builder_add(text, "%s%d", i ? ", " : "", nodes->list[nodes->first[node] + i]);
    treadle_builder_add(text, "%s on %s", size > 16 ? ", ..." : "", meeting->hosts[leader]);
  }
}

static treadle_status make_group(treadle_meeting *meeting, int rank, double timeout_seconds,
                                 double deadline, treadle_group **group_p) {
  treadle_status status = TREADLE_OK;
  treadle_builder text = {0};
  if (meeting->nodes.count == 1) {
    double left = deadline - treadle_clock_seconds();
    TRY(treadle_shm_open(&(treadle_shm_name){find_key, meeting}, rank, (int)meeting->nodes.ranks,
                         left > 1e-3 ? left : 1e-3, group_p));
    (*group_p)->timeout_seconds = timeout_seconds;
  } else {
    add_nodes(&text, meeting);
    status = treadle_fail(TREADLE_REFUSED,
                          "the %d ranks are on %d nodes:%.600s: a switch works on one node so far",
                          (int)meeting->nodes.ranks, meeting->nodes.count, text.text ? text.text : "");
  }
out:
  treadle_builder_release(&text);
  return status;
}

static treadle_status open_group(const treadle_store *store, treadle_meeting_options *options,
                                 double timeout_seconds, treadle_group **group_p) {
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
  options->deadline = treadle_clock_seconds() + timeout_seconds;
  TRY(treadle_nodes_meet(&own, options, &meeting));
  TRY(make_group(&meeting, options->rank, timeout_seconds, options->deadline, group_p));
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
  TRY(open_group(store, &options, timeout_seconds, group_p));
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
  TRY(open_group(store, &options, timeout_seconds, group_p));
out:
  return status;
}
