/* Groups of workers, as the controller makes and ends them. */
#include "control/workers.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/sized.h"

#include <stdio.h>
#include <string.h>

void treadle_workers_name(const treadle_workers *w, const char *method, char name[TREADLE_WORKERS_NAME]) {
  snprintf(name, TREADLE_WORKERS_NAME, "'%.64s', %.64s", w->class->name, method);
}

/* ---- Making ---- */

static treadle_status check_ranks(const treadle_crew *crew, const int32_t *ranks, size_t count) {
  if (!count) REFUSE("treadle_workers_create: no ranks; a group has one worker at least");
  for (size_t i = 0; i < count; i++) {
    if (ranks[i] < 0 || ranks[i] >= crew->group->size)
      REFUSE("treadle_workers_create: worker %zu is to be on rank %d; the crew has %d", i, ranks[i],
             crew->group->size);
    for (size_t k = 0; k < i; k++)
      if (ranks[k] == ranks[i])
        REFUSE("treadle_workers_create: workers %zu and %zu are both to be on rank %d", k, i, ranks[i]);
  }
  return TREADLE_OK;
}

static treadle_status check_controller(const treadle_crew *crew, const char *function) {
  treadle_status status = treadle_crew_check_open(crew, function);
  if (status || crew->group->rank == 0) return status;
  return treadle_fail(TREADLE_STATE, "%s: rank %d is not the controller, which rank 0 is", function,
                      crew->group->rank);
}

/* The same call to all of them; it has ended. */
static treadle_status call_all(treadle_workers *w, const char *what, treadle_message *call,
                               treadle_future **future_p) {
  char name[TREADLE_WORKERS_NAME];
  treadle_endpoint_content *content = NULL;
  treadle_status status;
  *future_p = NULL;
  treadle_workers_name(w, what, name);
  TRY(treadle_future_content(call, &content));
  TRY(treadle_future_make(w->crew, w->ranks, w->count, name, future_p));
  for (size_t i = 0; i < w->count; i++) treadle_future_start(*future_p, i, content);
  TRY(treadle_future_wait(*future_p));
out:
  treadle_endpoint_content_drop(content);
  return status;
}

static bool are_on_one_node(const treadle_workers *w) {
  for (size_t i = 1; i < w->count; i++)
    if (treadle_group_node(w->crew->group, w->ranks[i]) != treadle_group_node(w->crew->group, w->ranks[0]))
      return false;
  return true;
}

/* Where workers on several nodes can meet: the first of them says it. "": they need no such place. */
static treadle_status find_address(treadle_workers *w, char *address) {
  treadle_message call = {0};
  treadle_endpoint_content *content = NULL;
  treadle_future *f = NULL;
  treadle_batch *made = NULL;
  treadle_status status;
  address[0] = 0;
  if (are_on_one_node(w)) return TREADLE_OK;
  treadle_call_put_head(&call, &(treadle_call_head){.kind = TREADLE_CALL_ADDRESS, .name = ""});
  TRY(treadle_future_content(&call, &content));
  TRY(treadle_future_make(w->crew, w->ranks, 1, "an address", &f));
  treadle_future_start(f, 0, content);
  TRY(treadle_future_take(f, NULL, 0, &made));
  const char *json = treadle_batch_meta(made, "address");
  const size_t length = json ? strlen(json) : 0;
  if (length < 3 || length - 1 > TREADLE_PART_ADDRESS)
    TRY(treadle_fail(TREADLE_PEER, "rank %d says no address", w->ranks[0]));
  snprintf(address, TREADLE_PART_ADDRESS, "%.*s", (int)(length - 2), json + 1);
out:
  treadle_batch_destroy(made);
  treadle_future_destroy(f);
  treadle_endpoint_content_drop(content);
  treadle_message_release(&call);
  return status;
}

static treadle_status create(treadle_workers *w, const treadle_batch *options) {
  char name[TREADLE_PART_NAME], address[TREADLE_PART_ADDRESS];
  treadle_message call = {0};
  treadle_future *f = NULL;
  treadle_status status;
  TRY(treadle_part_draw_name(name));
  TRY(find_address(w, address));
  treadle_call_put_head(
      &call,
      &(treadle_call_head){.kind = TREADLE_CALL_CREATE, .workers = w->number, .name = w->class->name});
  treadle_message_put_int(&call, (int64_t)w->count);
  treadle_message_put_bytes(&call, w->ranks, w->count * sizeof *w->ranks);
  treadle_message_put_bytes(&call, name, sizeof name);
  treadle_message_put_bytes(&call, address, strlen(address) + 1);
  (void)treadle_call_put_batch(&call, options, NULL, options ? (size_t)treadle_batch_rows(options) : 0);
  TRY(call_all(w, "create", &call, &f));
  for (size_t i = 0; i < w->count; i++)
    TRY(treadle_call_hear_meshes(w->meshes, (int32_t)i, treadle_future_made(f, i)));
out:
  treadle_future_destroy(f);
  treadle_message_release(&call);
  return status;
}

treadle_status treadle_workers_create(treadle_crew *crew, const int32_t *ranks, size_t count,
                                      const char *class_name, const treadle_batch *options,
                                      treadle_workers **workers_p) {
  treadle_workers *w = NULL;
  treadle_status status;
  TREADLE_NEED(workers_p);
  *workers_p = NULL;
  TREADLE_NEED(crew);
  TREADLE_NEED(ranks);
  TREADLE_NEED(class_name);
  TRY(check_controller(crew, __func__));
  TRY(check_ranks(crew, ranks, count));
  const treadle_worker_class *class = treadle_crew_class(crew, class_name);
  if (!class) REFUSE("treadle_workers_create: the crew has no class '%.64s'", class_name);
  w = treadle_alloc_array(1, sizeof *w + count * sizeof *w->ranks);
  if (!w) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu workers", count));
  *w = (treadle_workers){
      .crew = crew, .class = class, .number = (int64_t)treadle_crew_number(crew), .count = count};
  memcpy(w->ranks, ranks, count * sizeof *ranks);
  crew->users++;
  TRY(treadle_meshes_create((int32_t)count, &w->meshes));
  TRY(create(w, options));
  *workers_p = w;
  w = NULL;
out:
  if (w) treadle_workers_destroy(w);
  return status;
}

treadle_status treadle_workers_create_in_pool(treadle_crew *crew, const treadle_resource_pool *pool,
                                              int32_t first_rank, const char *class_name,
                                              const treadle_batch *options, treadle_workers **workers_p) {
  treadle_resource_pool_info info = TREADLE_INIT(treadle_resource_pool_info);
  treadle_slot slot;
  int32_t *ranks = NULL;
  treadle_status status;
  TREADLE_NEED(workers_p);
  *workers_p = NULL;
  TREADLE_NEED(pool);
  if (first_rank < 0 || first_rank > 1)
    REFUSE("treadle_workers_create_in_pool: first_rank is %d: 0 or 1", (int)first_rank);
  treadle_resource_pool_get_info(pool, &info);
  ranks = treadle_alloc_array((size_t)info.slots, sizeof *ranks);
  if (!ranks) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %d workers", (int)info.slots));
  for (int32_t w = 0; w < info.slots; w++) {
    TRY(treadle_resource_pool_get_slot(pool, w, &slot));
    ranks[w] = first_rank + slot.number;
  }
  TRY(treadle_workers_create(crew, ranks, (size_t)info.slots, class_name, options, workers_p));
out:
  treadle_free(ranks);
  return status;
}

/* A failure that stands stays. */
void treadle_workers_destroy(treadle_workers *w) {
  char before[TREADLE_GROUP_MESSAGE];
  treadle_message call = {0};
  treadle_future *f = NULL;
  if (!w) return;
  snprintf(before, sizeof before, "%s", treadle_error_message());
  treadle_call_put_head(
      &call, &(treadle_call_head){.kind = TREADLE_CALL_DESTROY, .workers = w->number, .name = ""});
  if (w->crew->endpoint && !w->crew->ended) (void)call_all(w, "destroy", &call, &f);
  treadle_future_destroy(f);
  if (before[0]) (void)treadle_fail(TREADLE_STATE, "%s", before);
  treadle_message_release(&call);
  treadle_meshes_destroy(w->meshes);
  treadle_crew_leave(w->crew);
  treadle_free(w);
}

int64_t treadle_workers_size(const treadle_workers *workers) {
  TREADLE_NEED_OR(workers, -1);
  return (int64_t)workers->count;
}

treadle_status treadle_workers_alive(const treadle_workers *w) {
  treadle_status status = TREADLE_OK;
  TREADLE_NEED(w);
  pthread_mutex_lock(&w->crew->lock);
  for (size_t i = 0; i < w->count && !status; i++) {
    status = treadle_crew_lost(w->crew, w->ranks[i]);
    if (status)
      (void)treadle_fail_in(status, "worker %zu of %zu of '%.64s': ", i, w->count, w->class->name);
  }
  pthread_mutex_unlock(&w->crew->lock);
  return status;
}
