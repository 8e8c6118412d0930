#include "group/group_nodes.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "group/link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const double GRACE = 1; /* seconds, in which a leader that has waited in vain says so */

typedef struct span { /* the state of such a group */
  treadle_group *near;
  treadle_nodes nodes;
  treadle_peer_memory *shared; /* [near size] the leader's control block */
  void *made;                  /* the leader: where it has made it; given: where it was before */
  size_t bytes;
  bool given;
  treadle_courier *courier; /* the leader's */
  char host[128];
} span;

/* ---- The control block, as memory that all ranks of a node may write ---- */

struct treadle_pool {
  int descriptor;
};

struct treadle_imported {
  size_t bytes;
  void *base;
};

static treadle_status map_control(int descriptor, size_t bytes, void **base_p) {
  *base_p = NULL;
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, 0);
  if (at == MAP_FAILED)
    return treadle_fail(TREADLE_SYSTEM, "the control block cannot be mapped: %s", strerror(errno));
  *base_p = at;
  return TREADLE_OK;
}

static void unmap_control(void *base, size_t bytes) {
  if (base) munmap(base, bytes);
}

static int64_t export_count(const treadle_pool *pool) {
  (void)pool;
  return 1;
}

static treadle_status export(const treadle_pool *pool, int64_t first, int count, bool reading,
                             int *descriptors) {
  (void)first, (void)count, (void)reading;
  *descriptors = fcntl(pool->descriptor, F_DUPFD_CLOEXEC, 0);
  if (*descriptors >= 0) return TREADLE_OK;
  return treadle_fail(TREADLE_SYSTEM, "the control block cannot be given away: %s", strerror(errno));
}

static treadle_status import_begin(const treadle_device *device, int64_t count, size_t bytes,
                                   const treadle_view_of *only, treadle_imported **imported_p) {
  (void)device, (void)only;
  *imported_p = NULL;
  if (count != 1)
    return treadle_fail(TREADLE_PEER, "the control block comes in %lld descriptors, not in one",
                        (long long)count);
  treadle_imported *imported = *imported_p = treadle_alloc(sizeof *imported);
  if (!imported) return treadle_fail(TREADLE_NO_MEMORY, "group: memory is out");
  *imported = (treadle_imported){.bytes = bytes};
  return TREADLE_OK;
}

static treadle_status import(treadle_imported *imported, int64_t first, int count, const int *descriptors) {
  (void)first, (void)count;
  return map_control(*descriptors, imported->bytes, &imported->base);
}

static treadle_status view(treadle_imported *imported, const treadle_view_of *window,
                           treadle_paged *paged_p) {
  (void)window;
  *paged_p = treadle_paged_of(imported->base);
  return TREADLE_OK;
}

static void unimport(treadle_imported *imported) {
  if (imported) unmap_control(imported->base, imported->bytes);
  treadle_free(imported);
}

static const treadle_device_ops control_ops = {.name = "control block",
                                               .export_count = export_count,
                                               .export_part = export,
                                               .import_begin = import_begin,
                                               .import_part = import,
                                               .view = view,
                                               .unimport = unimport};
static const treadle_device control_device = {.ops = &control_ops};

static treadle_status make_control(span *s, int *descriptor_p) {
  *descriptor_p = memfd_create("treadle-control", MFD_CLOEXEC);
  if (*descriptor_p < 0 || ftruncate(*descriptor_p, (off_t)s->bytes) != 0)
    return treadle_fail(TREADLE_SYSTEM, "group: no memory for the control block: %s", strerror(errno));
  return map_control(*descriptor_p, s->bytes, &s->made);
}

/* The leader's is everybody's. */
static treadle_status share_control(span *s, treadle_control **control_p) {
  treadle_status status = TREADLE_OK;
  treadle_pool pool = {.descriptor = -1};
  treadle_paged control;
  bool leads = s->near->rank == 0;
  *control_p = s->made;
  if (s->given) return TREADLE_OK;
  TRY(treadle_group_agree(s->near, leads ? make_control(s, &pool.descriptor) : TREADLE_OK));
  s->shared = treadle_alloc_array((size_t)s->near->size, sizeof *s->shared);
  TRY(treadle_group_agree(s->near, s->shared ? TREADLE_OK
                                             : treadle_fail(TREADLE_NO_MEMORY, "group: memory is out")));
  const treadle_offer offer = {
      .device = &control_device, .pool = &pool, .base = s->made, .bytes = leads ? s->bytes : 0};
  TRY(s->near->link->publish(s->near, &offer, s->shared));
  control = treadle_paged_of(s->made);
  if (!leads) TRY(view(s->shared[0].imported, NULL, &control));
  *control_p = (void *)control.into;
out:
  if (pool.descriptor >= 0) close(pool.descriptor);
  return status;
}

/* ---- The row ---- */

/* The near group gives what the ranks of this node have published; of others nothing is known. */
static treadle_status nodes_publish(treadle_group *group, const treadle_offer *mine,
                                    treadle_peer_memory *all) {
  treadle_status status = TREADLE_OK;
  span *s = group->state;
  treadle_peer_memory *near = treadle_alloc_array((size_t)s->near->size, sizeof *near);
  for (int rank = 0; rank < group->size; rank++) all[rank] = (treadle_peer_memory){0};
  TRY(treadle_group_agree(s->near,
                          near ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "group: memory is out")));
  s->near->timeout_seconds = group->timeout_seconds;
  TRY(s->near->link->publish(s->near, mine, near));
  const int32_t *list = s->nodes.list + s->nodes.first[s->nodes.of[group->rank]];
  for (int i = 0; i < s->near->size; i++) all[list[i]] = near[i];
out:
  treadle_free(near);
  return status;
}

static void nodes_withdraw(treadle_group *group, const treadle_device *device, treadle_peer_memory *all) {
  span *s = group->state;
  const int32_t *list = s->nodes.list + s->nodes.first[s->nodes.of[group->rank]];
  treadle_peer_memory *near = treadle_alloc_array((size_t)s->near->size, sizeof *near);
  for (int i = 0; near && i < s->near->size; i++) near[i] = all[list[i]];
  if (near)
    s->near->link->withdraw(s->near, device, near); /* else it stays mapped until this process ends */
  treadle_free(near);
  memset(all, 0, (size_t)group->size * sizeof *all);
}

static const treadle_link nodes_link = {"nodes", nodes_publish, nodes_withdraw};

/* Ranks of other nodes are gone when a courier says so; and when there is none any more. */
static bool nodes_alive(treadle_group *group, int rank) {
  span *s = group->state;
  if (treadle_group_is_near(group, rank)) return s->near->ops->alive(s->near, s->nodes.index[rank]);
  return atomic_load(&group->control->lines[rank].gone) == 0 && s->near->ops->alive(s->near, 0);
}

static void release(span *s) {
  if (!s) return;
  treadle_courier_stop(s->courier);
  if (s->shared && s->near) s->near->link->withdraw(s->near, &control_device, s->shared);
  if (!s->given) unmap_control(s->made, s->bytes);
  treadle_group_close(s->near);
  treadle_free(s->shared);
  treadle_nodes_release(&s->nodes);
  treadle_free(s);
}

static void nodes_destroy(treadle_group *group) { release(group->state); }

static const treadle_group_ops nodes_ops = {"several nodes", &nodes_link, nodes_alive, nodes_destroy};

/* ---- Opening ---- */

static treadle_status start_courier(span *s, treadle_group *group, const treadle_courier_meeting *meeting,
                                    double deadline) {
  treadle_status status = TREADLE_OK;
  int *sockets = treadle_alloc_array((size_t)s->nodes.count, sizeof *sockets);
  if (!sockets) return treadle_fail(TREADLE_NO_MEMORY, "group: memory is out");
  TRY(treadle_courier_meet(meeting, deadline, sockets));
  TRY(treadle_courier_start(group, s->near, treadle_courier_key(meeting->key), sockets, &s->courier));
out:
  treadle_free(sockets);
  return status;
}

static treadle_status open_span(span *s, treadle_group *group, const treadle_courier_meeting *meeting,
                                double deadline) {
  treadle_status status = TREADLE_OK;
  const treadle_rank_line *near = treadle_group_line(s->near);
  TRY(share_control(s, &group->control));
  treadle_rank_line *line = treadle_group_line(group);
  atomic_store(&line->pid, atomic_load(&near->pid));
  atomic_store(&line->start_time, atomic_load(&near->start_time));
  treadle_group_limit(group, deadline - treadle_clock_seconds());
  s->near->timeout_seconds = deadline - treadle_clock_seconds() + GRACE;
  TRY(treadle_group_agree(s->near,
                          s->near->rank == 0 ? start_courier(s, group, meeting, deadline) : TREADLE_OK));
  TRY(treadle_group_barrier(group));
out:
  return status;
}

treadle_status treadle_group_over_nodes(treadle_group *near, const treadle_courier_meeting *meeting,
                                        int rank, double timeout_seconds, void *control,
                                        treadle_group **group_p) {
  treadle_status status = TREADLE_OK;
  treadle_group *group = NULL;
  double deadline = treadle_clock_seconds() + timeout_seconds;
  span *s = treadle_alloc(sizeof *s);
  *group_p = NULL;
  if (s)
    *s = (span){.near = near,
                .made = control,
                .given = control,
                .bytes = treadle_control_bytes((int)meeting->nodes->ranks)};
  if (s) status = treadle_nodes_make(meeting->nodes->of, meeting->nodes->ranks, &s->nodes);
  if (status == TREADLE_OK && s)
    status =
        treadle_group_make(&nodes_ops, rank, (int)meeting->nodes->ranks, timeout_seconds, NULL, s, &group);
  if (!s) status = treadle_fail(TREADLE_NO_MEMORY, "group: memory is out");
  TRY(treadle_group_agree(near, status));
  group->nodes = &s->nodes;
  group->near = near;
  group->job = treadle_courier_key(meeting->key);
  snprintf(s->host, sizeof s->host, "%s", meeting->host ? meeting->host : "");
  group->host = s->host[0] ? s->host : NULL;
  TRY(open_span(s, group, meeting, deadline));
  treadle_group_limit(group, timeout_seconds);
  *group_p = group;
out:
  if (status != TREADLE_OK && group && group->control) {
    treadle_group_fail(group);
    treadle_group_close(group);
  } else if (status != TREADLE_OK) {
    treadle_free(group);
    if (s)
      release(s);
    else
      treadle_group_close(near);
  }
  return status;
}
