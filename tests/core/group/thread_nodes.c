#include "group/thread_nodes.h"

#include "base/alloc.h"
#include "net/net_threads.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct treadle_thread_nodes {
  treadle_nodes nodes;
  double timeout_seconds;
  treadle_group **near; /* [size] by rank; NULL once it was opened */
  pthread_mutex_t lock;
  pthread_cond_t said;
  char (*addresses)[128]; /* [nodes] */
  treadle_net_hub *hub;
  void **controls; /* [nodes] threads see each other's memory, so it stays until the end */
};

static treadle_status say_address(void *context, int32_t node, const char *text) {
  treadle_thread_nodes *all = context;
  pthread_mutex_lock(&all->lock);
  snprintf(all->addresses[node], sizeof all->addresses[node], "%s", text);
  pthread_cond_broadcast(&all->said);
  pthread_mutex_unlock(&all->lock);
  return TREADLE_OK;
}

static treadle_status ask_address(void *context, int32_t node, double deadline, char *text,
                                  size_t capacity) {
  treadle_thread_nodes *all = context;
  (void)deadline;
  pthread_mutex_lock(&all->lock);
  while (!all->addresses[node][0]) pthread_cond_wait(&all->said, &all->lock);
  snprintf(text, capacity, "%s", all->addresses[node]);
  pthread_mutex_unlock(&all->lock);
  return TREADLE_OK;
}

treadle_status treadle_thread_nodes_make(const int32_t *of, int size, double timeout_seconds,
                                         treadle_thread_nodes **all_p) {
  treadle_status status = TREADLE_OK;
  treadle_thread_nodes *all = treadle_alloc(sizeof *all);
  *all_p = all;
  if (!all) return treadle_fail(TREADLE_NO_MEMORY, "group: memory is out");
  *all = (treadle_thread_nodes){.timeout_seconds = timeout_seconds,
                                .lock = PTHREAD_MUTEX_INITIALIZER,
                                .said = PTHREAD_COND_INITIALIZER};
  TRY(treadle_nodes_make(of, size, &all->nodes));
  TRY(treadle_net_hub_create(size, &all->hub));
  all->near = treadle_alloc_array((size_t)size, sizeof *all->near);
  all->addresses = treadle_alloc_array((size_t)all->nodes.count, sizeof *all->addresses);
  all->controls = treadle_alloc_array((size_t)all->nodes.count, sizeof *all->controls);
  if (!all->near || !all->addresses || !all->controls)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "group: memory is out"));
  for (int32_t node = 0; node < all->nodes.count; node++) {
    treadle_group *groups[TREADLE_GROUP_MAX];
    size_t bytes = (treadle_control_bytes(size) + 63) / 64 * 64;
    all->controls[node] = aligned_alloc(64, bytes);
    if (!all->controls[node]) TRY(treadle_fail(TREADLE_NO_MEMORY, "group: memory is out"));
    memset(all->controls[node], 0, bytes);
    TRY(treadle_group_threads(treadle_nodes_size(&all->nodes, node), timeout_seconds, groups));
    for (int32_t i = 0; i < treadle_nodes_size(&all->nodes, node); i++)
      all->near[all->nodes.list[all->nodes.first[node] + i]] = groups[i];
  }
out:
  if (status != TREADLE_OK) {
    treadle_thread_nodes_destroy(all);
    *all_p = NULL;
  }
  return status;
}

treadle_status treadle_thread_nodes_open(treadle_thread_nodes *all, int rank, treadle_group **group_p) {
  treadle_group *near = all->near[rank];
  const treadle_courier_meeting meeting = {.nodes = &all->nodes,
                                           .node = all->nodes.of[rank],
                                           .key = {1},
                                           .host = "127.0.0.1",
                                           .say = say_address,
                                           .ask = ask_address,
                                           .context = all};
  all->near[rank] = NULL;
  treadle_status status = treadle_group_over_nodes(near, &meeting, rank, all->timeout_seconds,
                                                   all->controls[meeting.node], group_p);
  return status == TREADLE_OK ? treadle_group_set_net(*group_p, &treadle_net_threads, all->hub) : status;
}

void treadle_thread_nodes_destroy(treadle_thread_nodes *all) {
  if (!all) return;
  for (int64_t rank = 0; all->near && rank < all->nodes.ranks; rank++) treadle_group_close(all->near[rank]);
  treadle_free(all->near);
  treadle_net_hub_destroy(all->hub);
  treadle_free(all->addresses);
  for (int32_t node = 0; all->controls && node < all->nodes.count; node++) free(all->controls[node]);
  treadle_free(all->controls);
  treadle_nodes_release(&all->nodes);
  treadle_free(all);
}
