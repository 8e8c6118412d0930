#include "generate/collect.h"

#include "base/alloc.h"
#include "group/group.h"

#include <string.h>

/* Counters of the engine's board. */
enum { STEPS = TREADLE_ENGINE_STEPS, MEETINGS = TREADLE_ENGINE_MEETINGS };
enum { SUMS = 16 };

/* Before tokens, log-probabilities, what was kept and line; the next one begins at a multiple of 8 bytes. */
typedef struct head {
  uint64_t job, bytes; /* bytes: of all, without the head */
  int64_t count;       /* tokens */
  uint64_t cut, kept;  /* cut: 1: there are counts of ids, `count` of them, and `kept` ids */
} head;

bool treadle_collect_is_needed(const treadle_generator *engine) { return engine->replica.place.count > 1; }

bool treadle_collect_has(const treadle_generator *engine, size_t job) {
  return (int64_t)(job % (size_t)engine->replica.place.count) == engine->replica.place.number;
}

/* One rank of each group brings what all of them have. */
static bool is_first(const treadle_generator *e) { return e->replica.place.leads; }

void treadle_collect_init(treadle_collect *collect, treadle_generator *engine, size_t jobs) {
  *collect = (treadle_collect){.engine = engine, .jobs = jobs};
}

void treadle_collect_release(treadle_collect *collect) {
  treadle_array_release(&collect->mine);
  treadle_free(collect->all);
  treadle_free(collect->answer);
}

/* ---- Before the meeting ----------------------------------------------------------------------------- */

static treadle_status append(treadle_collect *collect, const void *bytes, size_t count) {
  if (!count) return TREADLE_OK;
  while (collect->mine.capacity - collect->mine.count < count)
    if (treadle_array_grow((void **)&collect->mine.items, &collect->mine.capacity, collect->mine.capacity,
                           1))
      return treadle_fail(TREADLE_NO_MEMORY, "no memory for results of %zu bytes", collect->mine.count);
  memcpy(collect->mine.items + collect->mine.count, bytes, count);
  collect->mine.count += count;
  return TREADLE_OK;
}

treadle_status treadle_collect_put(treadle_collect *collect, size_t job, const treadle_answer *answer) {
  size_t tokens = (size_t)answer->count * sizeof *answer->tokens, text = strlen(answer->line) + 1;
  size_t counts = answer->kept_counts ? tokens : 0,
         kept = counts ? answer->kept_count * sizeof *answer->kept : 0;
  size_t all = 2 * tokens + counts + kept + text, padding = -all & 7;
  const head h = {.job = job,
                  .bytes = all + padding,
                  .count = answer->count,
                  .cut = answer->kept_counts != NULL,
                  .kept = kept / sizeof *answer->kept};
  treadle_status status;
  TRY(append(collect, &h, sizeof h));
  TRY(append(collect, answer->tokens, tokens));
  TRY(append(collect, answer->logprobs, tokens));
  TRY(append(collect, answer->kept_counts, counts));
  TRY(append(collect, answer->kept, kept));
  TRY(append(collect, answer->line, text));
  TRY(append(collect, "\0\0\0\0\0\0\0", padding));
out:
  return status;
}

void treadle_collect_go_on(treadle_generator *engine) {
  if (engine->board) treadle_board_signal(engine->board, STEPS, ++engine->steps);
}

/* ---- The meeting ------------------------------------------------------------------------------------ */

treadle_status treadle_collect_wait(treadle_generator *e, const treadle_watch *watch) {
  static const char what[] = "requests of another replica";
  treadle_status status = TREADLE_OK;
  if (!e->board) return TREADLE_OK;
  treadle_board_signal(e->board, MEETINGS, ++e->meetings);
  treadle_collect_go_on(e);
  for (int rank = 0; rank < treadle_group_size(e->group); rank++) {
    for (;;) {
      uint64_t seen = treadle_board_value(e->board, rank, STEPS);
      if (treadle_board_value(e->board, rank, MEETINGS) >= e->meetings) break;
      TRY(treadle_board_wait(e->board, rank, STEPS, seen + 1, what));
      if (watch) TRY(watch->look(watch->context));
    }
    TRY(treadle_board_wait(e->board, rank, MEETINGS, e->meetings, what)); /* fails if any rank has */
  }
out:
  return status;
}

/* How many bytes of records each rank brings: begin [ranks + 1]. */
static treadle_status count_records(const treadle_collect *collect, uint64_t *begin, uint64_t *most_p) {
  treadle_group *group = collect->engine->group;
  uint64_t mine = is_first(collect->engine) ? collect->mine.count : 0;
  treadle_status status;
  *most_p = 0;
  TRY(treadle_group_say(group, &mine, sizeof mine));
  for (int rank = 0; rank < treadle_group_size(group); rank++) {
    uint64_t theirs;
    memcpy(&theirs, treadle_group_said(group, rank), sizeof theirs);
    begin[rank + 1] = begin[rank] + theirs;
    if (theirs > *most_p) *most_p = theirs;
  }
out:
  return status;
}

/* Everybody's records, one rank's behind the other's: in rounds of what the group takes at once. */
static treadle_status gather(treadle_collect *collect, uint64_t *begin, uint64_t most) {
  treadle_group *group = collect->engine->group;
  const int size = treadle_group_size(group), self = treadle_group_rank(group);
  const uint64_t mine = begin[self + 1] - begin[self];
  treadle_status status = TREADLE_OK;
  for (uint64_t at = 0; at < most; at += TREADLE_GROUP_PAYLOAD) {
    uint64_t left = at < mine ? mine - at : 0;
    TRY(treadle_group_say(group, collect->mine.items ? collect->mine.items + (left ? at : 0) : "",
                          left < TREADLE_GROUP_PAYLOAD ? left : TREADLE_GROUP_PAYLOAD));
    for (int rank = 0; rank < size; rank++) {
      uint64_t theirs = begin[rank + 1] - begin[rank], part = at < theirs ? theirs - at : 0;
      if (part > TREADLE_GROUP_PAYLOAD) part = TREADLE_GROUP_PAYLOAD;
      memcpy(collect->all + begin[rank] + at, treadle_group_said(group, rank), part);
    }
  }
out:
  return status;
}

static void find_answers(treadle_collect *collect, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes;) {
    head h;
    memcpy(&h, collect->all + at, sizeof h);
    if (h.job < collect->jobs) collect->answer[h.job] = collect->all + at;
    at += sizeof h + h.bytes;
  }
}

/* A rank that has no memory for the others' answers tells them before they bring any. */
static treadle_status has(const treadle_collect *collect, const void *memory, uint64_t bytes) {
  return treadle_group_agree(collect->engine->group,
                             memory ? TREADLE_OK
                                    : treadle_fail(TREADLE_NO_MEMORY, "no memory for answers of %llu bytes",
                                                   (unsigned long long)bytes));
}

treadle_status treadle_collect_meet(treadle_collect *collect) {
  const size_t size = (size_t)treadle_group_size(collect->engine->group);
  uint64_t most, *begin = NULL;
  treadle_status status;
  TRY(treadle_collect_wait(collect->engine, NULL));
  begin = treadle_alloc_array(size + 1, sizeof *begin);
  collect->answer = treadle_alloc_array(collect->jobs + 1, sizeof(*collect->answer));
  TRY(has(collect, begin ? collect->answer : NULL, (collect->jobs + 1) * sizeof(*collect->answer)));
  TRY(count_records(collect, begin, &most));
  collect->all = treadle_alloc_array((size_t)begin[size] + 1, 1);
  TRY(has(collect, collect->all, begin[size]));
  TRY(gather(collect, begin, most));
  find_answers(collect, begin[size]);
out:
  treadle_free(begin);
  return status;
}

treadle_status treadle_collect_get(const treadle_collect *collect, size_t job, treadle_answer *answer_p) {
  const head *h = (const void *)collect->answer[job];
  if (!h) return treadle_fail(TREADLE_PEER, "no replica has answered job %zu", job);
  const char *bytes = (const char *)(h + 1), *logprobs = bytes + (size_t)h->count * sizeof(int32_t);
  const char *counts = logprobs + (size_t)h->count * sizeof(float);
  const char *kept = counts + (h->cut ? (size_t)h->count * sizeof(int32_t) : 0);
  *answer_p = (treadle_answer){.tokens = (const void *)bytes,
                               .logprobs = (const void *)logprobs,
                               .count = h->count,
                               .kept_counts = h->cut ? (const void *)counts : NULL,
                               .kept = (const void *)kept,
                               .kept_count = h->kept,
                               .line = kept + h->kept * sizeof(int32_t)};
  return TREADLE_OK;
}

treadle_status treadle_collect_sum(const treadle_generator *engine, int64_t *values, int count) {
  int64_t mine[SUMS + 1] = {is_first(engine)}, sums[SUMS] = {0};
  treadle_status status;
  for (int i = 0; i < count; i++) mine[i + 1] = values[i];
  TRY(treadle_group_say(engine->group, mine, sizeof mine));
  for (int rank = 0; rank < treadle_group_size(engine->group); rank++) {
    const int64_t *theirs = treadle_group_said(engine->group, rank);
    for (int i = 0; theirs[0] && i < count; i++) sums[i] += theirs[i + 1];
  }
  memcpy(values, sums, (size_t)count * sizeof *sums);
out:
  return status;
}
