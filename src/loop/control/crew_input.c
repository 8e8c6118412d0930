/* The rows of a call: all that other ranks have are asked for at once, and then waited for. */
#include "control/crew.h"

#include "base/alloc.h"

static treadle_status read_part(treadle_crew *crew, treadle_message *m, treadle_crew_part *p) {
  int64_t rank, call, count;
  const void *rows;
  treadle_status status;
  TRY(treadle_message_int(m, "rank", &rank));
  TRY(treadle_message_int(m, "call", &call));
  TRY(treadle_message_int(m, "number of rows", &count));
  if (rank < 0 || rank >= crew->group->size || count < 0)
    TRY(treadle_fail(TREADLE_PEER, "a call wants %lld rows of rank %lld", (long long)count,
                     (long long)rank));
  TRY(treadle_message_array(m, "rows", sizeof(int64_t), (size_t)count, &rows));
  p->rows.rank = (int)rank;
  p->rows.call = (uint64_t)call;
  p->rows.rows = rows;
  p->rows.count = (size_t)count;
out:
  return status;
}

/* names: good while the message is. */
static treadle_status read_parts(treadle_crew *crew, treadle_message *m, const char **names,
                                 treadle_crew_parts *all, int64_t *sources_p) {
  int64_t named, count;
  treadle_status status;
  TRY(treadle_call_read_names(m, names, TREADLE_CALL_NAMES, &named));
  TRY(treadle_message_int(m, "number of sources", sources_p));
  for (int64_t source = 0; source < *sources_p; source++) {
    TRY(treadle_message_int(m, "number of parts", &count));
    for (int64_t i = 0; i < count; i++) {
      treadle_crew_part one = {
          .source = source,
          .rows = {.names = named < 0 ? NULL : names, .name_count = named < 0 ? 0 : (size_t)named}};
      TRY(read_part(crew, m, &one));
      TRY(treadle_array_push(all, one));
    }
  }
out:
  return status;
}

treadle_status treadle_crew_get_parts(treadle_crew *crew, treadle_crew_parts *all) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < all->count && !status; i++) {
    status = treadle_request_send(crew, &all->items[i].rows, &all->items[i].request);
  }
  for (size_t i = 0; i < all->count; i++) {
    treadle_crew_part *p = &all->items[i];
    if (status)
      treadle_request_leave(crew, p->request);
    else
      status = treadle_request_wait(crew, &p->rows, p->request, &p->batch);
  }
  return status;
}

static treadle_status add_source(treadle_batch *batch, const treadle_crew_parts *all, int64_t source) {
  const treadle_batch **of = treadle_alloc_array(all->count + 1, sizeof(*of));
  treadle_batch *whole = NULL;
  size_t count = 0;
  treadle_status status = TREADLE_OK;
  if (!of) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu parts", all->count));
  for (size_t i = 0; i < all->count; i++)
    if (all->items[i].source == source) of[count++] = all->items[i].batch;
  if (!count) goto out;
  if (count > 1) TRY(treadle_batch_concat(of, count, &whole));
  TRY(treadle_batch_union(batch, whole ? whole : of[0]));
out:
  treadle_batch_destroy(whole);
  treadle_free((void *)of);
  return status;
}

treadle_status treadle_crew_add_parts(const treadle_crew_parts *all, int64_t sources,
                                      treadle_batch *batch) {
  treadle_status status = TREADLE_OK;
  for (int64_t source = 0; source < sources; source++) TRY(add_source(batch, all, source));
out:
  return status;
}

void treadle_crew_release_parts(treadle_crew_parts *all) {
  for (size_t i = 0; i < all->count; i++) treadle_batch_destroy(all->items[i].batch);
  treadle_array_release(all);
}

treadle_status treadle_crew_input(treadle_crew *crew, treadle_message *m, treadle_batch **batch_p) {
  const char *names[TREADLE_CALL_NAMES];
  treadle_batch *batch = NULL;
  treadle_crew_parts all = {0};
  int64_t sources;
  treadle_status status;
  *batch_p = NULL;
  TRY(treadle_call_read_batch(m, &batch));
  TRY(read_parts(crew, m, names, &all, &sources));
  TRY(treadle_crew_get_parts(crew, &all));
  TRY(treadle_crew_add_parts(&all, sources, batch));
  *batch_p = batch;
  batch = NULL;
out:
  treadle_crew_release_parts(&all);
  treadle_batch_destroy(batch);
  return status;
}
