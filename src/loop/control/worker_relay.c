/* A call travels as a batch: its rows, where it has some, or one row with its message; the message in front of rows is in the meta, as digits. Answers come as a
 * column of bytes. */
#include "control/worker_relay.h"

#include "base/alloc.h"
#include "control/future.h"
#include "group/group.h"

#include <stdio.h>
#include <string.h>

/* ---- Messages in a batch ---- */

/* A column of one row, which lies where the message does. */
static treadle_status add_message(treadle_batch *batch, const treadle_message *m) {
  const int64_t offsets[] = {0, (int64_t)m->length};
  const char *bytes = m->given ? m->given : m->bytes;
  treadle_column c = {
      .struct_size = sizeof c, .name = "message", .type = TREADLE_COLUMN_BYTES, .offsets = offsets};
  memcpy(&c.data, &bytes, sizeof bytes); /* it is copied */
  static char none[1];
  if (!c.data) c.data = none;
  return treadle_batch_add(batch, &c);
}

static treadle_message message_at(const treadle_batch *batch, int64_t row) {
  treadle_column c = TREADLE_INIT(treadle_column);
  if (treadle_batch_column(batch, "message", &c) || c.type != TREADLE_COLUMN_BYTES || !c.offsets ||
      row >= treadle_batch_rows(batch))
    return (treadle_message){0};
  return (treadle_message){.given = (const char *)c.data + c.offsets[row],
                           .length = (size_t)(c.offsets[row + 1] - c.offsets[row])};
}

/* "\"00ff\"": in front of rows there are some numbers. */
static treadle_status set_digits(treadle_batch *batch, const treadle_message *m) {
  char *json = treadle_alloc_array(2 * m->length + 3, 1);
  treadle_status status;
  if (!json) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the message of a call");
  for (size_t i = 0; i < m->length; i++) snprintf(json + 1 + 2 * i, 3, "%02x", (unsigned char)m->bytes[i]);
  json[0] = json[1 + 2 * m->length] = '"';
  status = treadle_batch_set_meta(batch, "message", json);
  treadle_free(json);
  return status;
}

static treadle_status put_digits(const treadle_batch *batch, treadle_message *m) {
  const char *json = treadle_batch_meta(batch, "message");
  const size_t length = json && strlen(json) > 2 ? (strlen(json) - 2) / 2 : 0;
  char *to = treadle_message_grow(m, length);
  for (size_t i = 0; i < length; i++) {
    unsigned value;
    if (!to || sscanf(json + 1 + 2 * i, "%2x", &value) != 1)
      return treadle_fail(to ? TREADLE_PEER : TREADLE_NO_MEMORY, "the message of a call cannot be read");
    to[i] = (char)value;
  }
  return TREADLE_OK;
}

/* ---- The first rank ---- */

static treadle_message answer_of(const treadle_worker_group *g, bool all, const treadle_message *out,
                                 int rank) {
  if (all) return treadle_worker_group_answer(g, rank, out);
  return (treadle_message){.given = out->given ? out->given : out->bytes, .length = out->length};
}

/* What all ranks have answered, or the first alone. */
static treadle_status take_answers(const treadle_worker_group *g, bool all, const treadle_message *out,
                                   treadle_batch **made_p) {
  const int ranks = all ? treadle_worker_group_ranks(g) : 1;
  int64_t *offsets = treadle_alloc_array((size_t)ranks + 1, sizeof *offsets);
  char *bytes = NULL;
  treadle_status status = TREADLE_OK;
  if (!offsets) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the answers of %d ranks", ranks));
  for (int rank = 0; rank < ranks; rank++)
    offsets[rank + 1] = offsets[rank] + (int64_t)answer_of(g, all, out, rank).length;
  bytes = treadle_alloc_array((size_t)offsets[ranks] + 1, 1);
  if (!bytes) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the answers of %d ranks", ranks));
  for (int rank = 0; rank < ranks; rank++) {
    const treadle_message one = answer_of(g, all, out, rank);
    if (one.length) memcpy(bytes + offsets[rank], one.given ? one.given : one.bytes, one.length);
  }
  TRY(treadle_batch_create(ranks, made_p));
  TRY(treadle_batch_add(*made_p, &(treadle_column){.struct_size = sizeof(treadle_column),
                                                   .name = "message",
                                                   .type = TREADLE_COLUMN_BYTES,
                                                   .offsets = offsets,
                                                   .data = bytes}));
out:
  treadle_free(offsets);
  treadle_free(bytes);
  return status;
}

static treadle_status find_method(const treadle_worker_team *team, const treadle_batch *in, char *name,
                                  const treadle_worker_method **method_p) {
  const char *json = treadle_batch_meta(in, "method");
  snprintf(name, TREADLE_WORKER_NAME, "%.*s", json && strlen(json) > 2 ? (int)strlen(json) - 2 : 0,
           json ? json + 1 : "");
  *method_p = treadle_worker_group_find(team->group, name);
  if (!*method_p) REFUSE("the controller calls '%s', which is not a method", name);
  return TREADLE_OK;
}

static treadle_status call(void *of, const treadle_batch *in, treadle_batch **made_p) {
  treadle_worker_team *team = of;
  const treadle_worker_method *method;
  treadle_message given = message_at(in, 0), message = {0}, out = {0};
  char name[TREADLE_WORKER_NAME], *to;
  treadle_status status;
  TRY(find_method(team, in, name, &method));
  to = treadle_message_grow(&message, given.length);
  if (!to) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its call", name));
  if (given.length) memcpy(to, given.given, given.length);
  TRY(treadle_worker_group_call(team->group, name, &message, &out));
  TRY(take_answers(team->group, method->collects, &out, made_p));
out:
  treadle_message_release(&message);
  treadle_message_release(&out);
  return status;
}

/* By their prompts and answers together. */
static treadle_status find_lengths(const treadle_batch *rows, int64_t *lengths) {
  static const char *const names[] = {"prompt_ids", "ids"};
  treadle_status status = TREADLE_OK;
  for (int i = 0; i < 2; i++) {
    treadle_column c = TREADLE_INIT(treadle_column);
    if (!treadle_batch_has(rows, names[i])) continue;
    TRY(treadle_batch_column(rows, names[i], &c));
    if (!c.offsets) TRY(treadle_fail(TREADLE_PEER, "column '%s' of a call is not ragged", names[i]));
    for (int64_t r = 0; r < treadle_batch_rows(rows); r++) lengths[r] += c.offsets[r + 1] - c.offsets[r];
  }
out:
  return status;
}

static treadle_status call_rows(void *of, const treadle_batch *in, treadle_batch **made_p) {
  treadle_worker_team *team = of;
  const treadle_worker_method *method;
  const int64_t count = treadle_batch_rows(in);
  int64_t *numbers = treadle_alloc_array((size_t)count + 1, sizeof *numbers),
          *lengths = treadle_alloc_array((size_t)count + 1, sizeof *lengths);
  treadle_row_range *by_rank =
      treadle_alloc_array((size_t)treadle_worker_group_ranks(team->group), sizeof *by_rank);
  treadle_message message = {0}, out = {0};
  char name[TREADLE_WORKER_NAME];
  treadle_status status = TREADLE_OK;
  if (!numbers || !lengths || !by_rank)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld rows", (long long)count));
  TRY(find_method(team, in, name, &method));
  for (int64_t i = 0; i < count; i++) numbers[i] = i;
  TRY(find_lengths(in, lengths));
  TRY(team->divide(team->group->worker, name, lengths, count, by_rank));
  TRY(put_digits(in, &message));
  const treadle_worker_rows rows = {.rows = {.batch = in, .rows = numbers, .row_count = (size_t)count},
                                    .by_rank = by_rank};
  TRY(treadle_worker_group_call_rows(team->group, name, &message, &rows, &out));
  TRY(take_answers(team->group, method->collects, &out, made_p));
out:
  treadle_free(numbers);
  treadle_free(lengths);
  treadle_free(by_rank);
  treadle_message_release(&message);
  treadle_message_release(&out);
  return status;
}

static treadle_status create(const treadle_worker_place *place, const treadle_batch *options,
                             void **worker_p) {
  (void)options;
  if (!place->context) REFUSE("this rank is not the first of a group");
  *worker_p = place->context;
  return TREADLE_OK;
}

treadle_worker_class treadle_worker_relay_class(const char *name, treadle_worker_team *team) {
  static const treadle_class_method methods[] = {
      {.name = "call", .function = call, .dispatch = TREADLE_DISPATCH_ONE_TO_ALL},
      {.name = "call_rows", .function = call_rows, .dispatch = TREADLE_DISPATCH_ONE_TO_ALL}};
  return (treadle_worker_class){.struct_size = sizeof(treadle_worker_class),
                                .name = name,
                                .methods = methods,
                                .method_count = sizeof methods / sizeof *methods,
                                .create = create,
                                .context = team};
}

/* ---- The controller ---- */

treadle_status treadle_worker_relay_open(treadle_crew *crew, const char *class_name,
                                         treadle_worker_relay *relay) {
  relay->crew = crew;
  return treadle_workers_create(crew, relay->rank_of, 1, class_name, NULL, &relay->workers);
}

void treadle_worker_relay_close(treadle_worker_relay *relay) {
  treadle_future_destroy(relay->future);
  treadle_batch_destroy(relay->answers);
  treadle_workers_destroy(relay->workers);
  *relay = (treadle_worker_relay){0};
}

/* The rows, with the columns that are wanted. */
static treadle_status choose(const treadle_message_rows *rows, treadle_batch **batch_p) {
  treadle_batch *some = NULL;
  treadle_status status;
  TRY(treadle_call_select(rows->batch, rows->names, rows->count, &some));
  TRY(treadle_batch_index(some, rows->rows, rows->row_count, batch_p));
out:
  treadle_batch_destroy(some);
  return status;
}

treadle_status treadle_worker_relay_start(treadle_worker_relay *relay, const char *method,
                                          const treadle_message *in, const treadle_message_rows *rows) {
  char json[TREADLE_WORKER_NAME + 2];
  treadle_batch *batch = NULL;
  treadle_status status;
  treadle_batch_destroy(relay->answers);
  relay->answers = NULL;
  snprintf(relay->method, sizeof relay->method, "%s", method);
  if (in->failed) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its call", method));
  if (rows)
    TRY(choose(rows, &batch));
  else
    TRY(treadle_batch_create(1, &batch));
  snprintf(json, sizeof json, "\"%s\"", method);
  TRY(treadle_batch_set_meta(batch, "method", json));
  TRY(rows ? set_digits(batch, in) : add_message(batch, in));
  const treadle_call_input input = {.struct_size = sizeof input, .batch = batch};
  TRY(treadle_workers_call(relay->workers, rows ? "call_rows" : "call", &input, &relay->future));
out:
  treadle_batch_destroy(batch);
  return status;
}

/* A rank of the group may be lost where its first rank is not, which then says what it has seen of it. */
static treadle_status find_lost(const treadle_worker_relay *relay, treadle_status status) {
  char why[TREADLE_GROUP_MESSAGE], said[TREADLE_GROUP_MESSAGE];
  int rank;
  if (status != TREADLE_PEER && status != TREADLE_TIMEOUT && status != TREADLE_CANCELLED) return status;
  snprintf(said, sizeof said, "%s", treadle_error_message());
  if (!treadle_crew_find_lost(relay->crew, relay->rank_of, relay->ranks, &rank, why))
    return treadle_fail(status, "%s, %s: %s", relay->roles, relay->method, said);
  return treadle_fail(TREADLE_PEER, "rank %d (node %d) of %s is lost in %s: %s", rank,
                      treadle_group_node(relay->crew->group, rank), relay->roles, relay->method, why);
}

treadle_status treadle_worker_relay_wait(treadle_worker_relay *relay, treadle_message *out) {
  treadle_status status;
  treadle_message_clear(out);
  treadle_future_wait_with(relay->future, relay->rank_of, relay->ranks);
  TRY(treadle_future_take_of(relay->future, 0, NULL, 0, &relay->answers));
  *out = treadle_worker_relay_answer(relay, 0);
out:
  if (status) status = find_lost(relay, status);
  treadle_future_destroy(relay->future);
  relay->future = NULL;
  return status;
}

treadle_message treadle_worker_relay_answer(const treadle_worker_relay *relay, int rank) {
  return message_at(relay->answers, rank);
}
