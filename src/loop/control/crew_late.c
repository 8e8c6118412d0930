/* The rows of a call that was made before what it is given had been made (workers_late.c).
 *
 * The message says who makes it. This rank asks each of those how many rows it has made, which is answered when it has. Then it knows which rows are its own, and
 * where each of them is, and asks for them as any call does (crew_input.c). The controller does the same sums with the same numbers, and so knows what comes
 * back. */
#include "control/crew.h"

#include "base/alloc.h"

/* What an earlier call makes. */
typedef struct source {
  int64_t call;
  const char *name;                   /* "'scorer', score" */
  int64_t count;                      /* of workers whose rows come back: */
  const treadle_late_worker *workers; /* [count] */
  int64_t *rows;                      /* [count] how many each has, without padding */
  int64_t total;
  int64_t *places; /* of the rows that are wanted, each among those of its worker */
} source;

typedef struct late {
  const treadle_class_method *method;
  const char *names[TREADLE_CALL_NAMES];
  int64_t name_count; /* -1: all columns */
  int64_t has;        /* rows that each source must have; -1: as many as the others */
  const int64_t *
      rows; /* [count] the numbers of the rows of this rank; NULL: they are not known before sources have ended: */
  int64_t count, worker, workers;
  treadle_meshes *meshes;
  int64_t *own; /* the numbers, where they were found here */
  TREADLE_ARRAY(source) sources;
} late;

/* ---- Reading ---- */

static treadle_status read_division(treadle_message *m, late *l) {
  const void *rows = NULL;
  treadle_status status;
  TRY(treadle_message_int(m, "number of rows", &l->has));
  TRY(treadle_message_int(m, "number of own rows", &l->count));
  if (l->count >= 0) {
    TRY(treadle_message_array(m, "rows", sizeof *l->rows, (size_t)l->count, &rows));
    l->rows = rows;
    goto out;
  }
  TRY(treadle_message_int(m, "worker", &l->worker));
  TRY(treadle_message_int(m, "workers", &l->workers));
  if (l->workers < 1 || l->workers > INT32_MAX || l->worker < 0 || l->worker >= l->workers)
    TRY(treadle_fail(TREADLE_PEER, "a call is of worker %lld of %lld", (long long)l->worker,
                     (long long)l->workers));
  TRY(treadle_call_read_mesh(m, l->method, (int32_t)l->workers, &l->meshes));
out:
  return status;
}

static treadle_status read_source(const treadle_crew *crew, treadle_message *m, source *s) {
  const void *name, *workers;
  size_t length;
  treadle_status status;
  TRY(treadle_message_int(m, "call", &s->call));
  TRY(treadle_message_bytes(m, "name", &name, &length));
  s->name = name;
  TRY(treadle_message_int(m, "number of workers", &s->count));
  if (!length || s->name[length - 1] || s->count < 0)
    TRY(treadle_fail(TREADLE_PEER, "a call is given rows of %lld workers", (long long)s->count));
  TRY(treadle_message_array(m, "workers", sizeof *s->workers, (size_t)s->count, &workers));
  s->workers = workers;
  for (int64_t w = 0; w < s->count; w++)
    if (s->workers[w].rank < 0 || s->workers[w].rank >= crew->group->size)
      TRY(treadle_fail(TREADLE_PEER, "a call is given rows of rank %lld", (long long)s->workers[w].rank));
  s->rows = treadle_alloc_array((size_t)s->count + 1, sizeof *s->rows);
  if (!s->rows) status = treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld workers", (long long)s->count);
out:
  return status;
}

static treadle_status read_sources(const treadle_crew *crew, treadle_message *m, late *l) {
  int64_t count;
  treadle_status status;
  TRY(treadle_message_int(m, "number of sources", &count));
  for (int64_t i = 0; i < count; i++) {
    TRY(treadle_array_push(&l->sources, (source){0}));
    TRY(read_source(crew, m, &l->sources.items[i]));
  }
out:
  return status;
}

/* ---- How many rows there are ---- */

static treadle_status ask_counts(treadle_crew *crew, late *l) {
  treadle_crew_parts all = {0};
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < l->sources.count; i++)
    for (int64_t w = 0; w < l->sources.items[i].count; w++) {
      const source *s = &l->sources.items[i];
      const treadle_crew_part one = {
          .rows = {.rank = (int)s->workers[w].rank, .call = (uint64_t)s->call, .count_alone = true}};
      TRY(treadle_array_push(&all, one));
    }
  TRY(treadle_crew_get_parts(crew, &all));
  const treadle_crew_part *part = all.items;
  for (size_t i = 0; i < l->sources.count; i++) {
    source *s = &l->sources.items[i];
    for (int64_t w = 0; w < s->count; w++, part++) {
      s->rows[w] = treadle_batch_rows(part->batch) - s->workers[w].padding;
      if (s->rows[w] < 0)
        TRY(treadle_fail(TREADLE_PEER, "rank %lld has made %lld rows, %lld of which are padding",
                         (long long)s->workers[w].rank, (long long)treadle_batch_rows(part->batch),
                         (long long)s->workers[w].padding));
      s->total += s->rows[w];
    }
  }
out:
  treadle_crew_release_parts(&all);
  return status;
}

static treadle_status compare_counts(late *l) {
  for (size_t i = 0; i < l->sources.count; i++) {
    const source *s = &l->sources.items[i];
    if (l->has >= 0 && s->total != l->has)
      REFUSE("expecting all arg share same length: %s has %lld rows, and what was given before it has %lld",
             s->name, (long long)s->total, (long long)l->has);
    l->has = s->total;
  }
  return TREADLE_OK;
}

/* ---- Which of them are this rank's ---- */

/* Writes the numbers of the share's rows; those of padding are copies. */
static treadle_status write_rows(late *l, const treadle_dispatch_info *info,
                                 const treadle_dispatch_share *share) {
  const treadle_row_range range = share->whole ? (treadle_row_range){0, l->has} : share->rows;
  l->count = range.end - range.first;
  l->own = treadle_alloc_array((size_t)l->count + 1, sizeof *l->own);
  if (!l->own)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the numbers of %lld rows", (long long)l->count);
  for (int64_t i = 0; i < l->count; i++)
    l->own[i] = range.first + i < l->has ? range.first + i : info->pad_row;
  l->rows = l->own;
  return TREADLE_OK;
}

static treadle_status divide(late *l, treadle_dispatch_share *share_p) {
  const treadle_dispatch_argument argument = {TREADLE_ARGUMENT_BATCH, l->has};
  treadle_dispatch_info info = TREADLE_INIT(treadle_dispatch_info);
  treadle_dispatch *dispatch = NULL;
  treadle_status status;
  TRY(treadle_call_divide(l->method, (int32_t)l->workers, l->meshes, &argument, 1, &dispatch));
  TRY(treadle_dispatch_get_info(dispatch, &info));
  TRY(treadle_dispatch_get_share(dispatch, (int32_t)l->worker, share_p));
  TRY(write_rows(l, &info, share_p));
out:
  treadle_dispatch_destroy(dispatch);
  return status;
}

static treadle_status check_rows(const late *l) {
  for (int64_t i = 0; i < l->count; i++)
    if (l->rows[i] < 0 || l->rows[i] >= l->has)
      REFUSE("treadle_workers_call: row %lld of %lld is asked for", (long long)l->rows[i],
             (long long)l->has);
  return TREADLE_OK;
}

/* ---- Getting them ---- */

/* Of which worker's a row of a source is; *row_p becomes its number there. */
static int64_t find_worker(const source *s, int64_t *row_p) {
  int64_t worker = 0;
  while (*row_p >= s->rows[worker]) *row_p -= s->rows[worker++];
  return worker;
}

static treadle_status add_part(const late *l, size_t number, int64_t worker, int64_t first, int64_t count,
                               treadle_crew_parts *all) {
  const source *s = &l->sources.items[number];
  const bool every = l->name_count < 0;
  const treadle_crew_part one = {.source = (int64_t)number,
                                 .rows = {.rank = (int)s->workers[worker].rank,
                                          .call = (uint64_t)s->call,
                                          .rows = s->places + first,
                                          .count = (size_t)count,
                                          .names = every ? NULL : l->names,
                                          .name_count = every ? 0 : (size_t)l->name_count}};
  return treadle_array_push(all, one);
}

/* Runs of neighbours of one worker. Without rows there are columns all the same. */
static treadle_status add_source(late *l, size_t number, treadle_crew_parts *all) {
  source *s = &l->sources.items[number];
  int64_t first = 0, worker = 0;
  treadle_status status = TREADLE_OK;
  s->places = treadle_alloc_array((size_t)l->count + 1, sizeof *s->places);
  if (!s->places)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the numbers of %lld rows", (long long)l->count));
  for (int64_t i = 0; i < l->count; i++) {
    s->places[i] = l->rows[i];
    const int64_t other = find_worker(s, &s->places[i]);
    if (i && other != worker) {
      TRY(add_part(l, number, worker, first, i - first, all));
      first = i;
    }
    worker = other;
  }
  if (s->count) TRY(add_part(l, number, worker, first, l->count - first, all));
out:
  return status;
}

static treadle_status get_rows(treadle_crew *crew, late *l, treadle_batch *batch) {
  treadle_crew_parts all = {0};
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < l->sources.count; i++) TRY(add_source(l, i, &all));
  TRY(treadle_crew_get_parts(crew, &all));
  TRY(treadle_crew_add_parts(&all, (int64_t)l->sources.count, batch));
out:
  treadle_crew_release_parts(&all);
  return status;
}

static void release(late *l) {
  for (size_t i = 0; i < l->sources.count; i++) {
    treadle_free(l->sources.items[i].rows);
    treadle_free(l->sources.items[i].places);
  }
  treadle_array_release(&l->sources);
  treadle_meshes_destroy(l->meshes);
  treadle_free(l->own);
}

treadle_status treadle_crew_late_input(treadle_crew *crew, treadle_message *m,
                                       const treadle_class_method *method, treadle_batch **batch_p,
                                       int64_t *padding_p, bool *collected_p) {
  treadle_dispatch_share share = {.collected = true};
  treadle_batch *batch = NULL;
  late l = {.method = method};
  treadle_status status;
  *batch_p = NULL;
  TRY(treadle_call_read_batch(m, &batch));
  TRY(treadle_call_read_names(m, l.names, TREADLE_CALL_NAMES, &l.name_count));
  TRY(read_division(m, &l));
  TRY(read_sources(crew, m, &l));
  TRY(ask_counts(crew, &l));
  TRY(compare_counts(&l));
  if (!l.rows) TRY(divide(&l, &share));
  TRY(check_rows(&l));
  if (treadle_batch_rows(batch) != l.count) { /* it came without rows, as nobody knew how many */
    treadle_batch_destroy(batch);
    TRY(treadle_batch_create(l.count, &batch));
  }
  TRY(get_rows(crew, &l, batch));
  *padding_p = share.padding;
  *collected_p = share.collected;
  *batch_p = batch;
  batch = NULL;
out:
  treadle_batch_destroy(batch);
  release(&l);
  return status;
}
