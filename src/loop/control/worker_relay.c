/* A call travels as one row with its message. Answers come as a row of each rank, or of the first one. */
#include "control/worker_relay.h"

#include "base/alloc.h"
#include "control/future.h"

#include <stdio.h>
#include <string.h>

/* ---- Messages in a batch ---- */

treadle_status treadle_worker_relay_pack(const treadle_message *m, treadle_batch **batch_p) {
  const int64_t offsets[] = {0, (int64_t)m->length};
  const char *bytes = m->given ? m->given : m->bytes;
  treadle_column c = {
      .struct_size = sizeof c, .name = "message", .type = TREADLE_COLUMN_BYTES, .offsets = offsets};
  memcpy(&c.data, &bytes, sizeof bytes); /* it is copied */
  static char none[1];
  treadle_status status;
  if (!c.data) c.data = none;
  TRY(treadle_batch_create(1, batch_p));
  TRY(treadle_batch_add(*batch_p, &c));
out:
  return status;
}

treadle_message treadle_worker_relay_unpack(const treadle_batch *batch, int64_t row) {
  treadle_column c = TREADLE_INIT(treadle_column);
  if (treadle_batch_column(batch, "message", &c) || c.type != TREADLE_COLUMN_BYTES || !c.offsets ||
      row >= treadle_batch_rows(batch))
    return (treadle_message){0};
  return (treadle_message){.given = (const char *)c.data + c.offsets[row],
                           .length = (size_t)(c.offsets[row + 1] - c.offsets[row])};
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

treadle_status treadle_worker_relay_call(void *of, const treadle_batch *in, treadle_batch **made_p) {
  treadle_worker_team *team = of;
  const treadle_worker_method *method;
  treadle_message given = treadle_worker_relay_unpack(in, 0), message = {0};
  char name[TREADLE_WORKER_NAME], *to;
  treadle_status status;
  TRY(find_method(team, in, name, &method));
  to = treadle_message_grow(&message, given.length);
  if (!to) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its call", name));
  if (given.length) memcpy(to, given.given, given.length);
  TRY(treadle_worker_group_call(team->group, name, &message, team->out));
  TRY(take_answers(team->group, method->collects, team->out, made_p));
out:
  treadle_message_release(&message);
  return status;
}

treadle_status treadle_worker_relay_create(const treadle_worker_place *place, const treadle_batch *options,
                                           void **worker_p) {
  (void)options;
  if (!place->context) REFUSE("this rank is not the first of a group");
  *worker_p = place->context;
  return TREADLE_OK;
}

/* ---- The controller ---- */

treadle_status treadle_worker_relay_open(treadle_crew *crew, const char *class_name,
                                         treadle_worker_relay *relay) {
  relay->crew = crew;
  return treadle_workers_create(crew, relay->rank_of, 1, class_name, NULL, &relay->workers);
}

void treadle_worker_relay_close(treadle_worker_relay *relay) {
  treadle_batch_destroy(relay->answers);
  treadle_workers_destroy(relay->workers);
  *relay = (treadle_worker_relay){0};
}

static treadle_status start(treadle_worker_relay *relay, const char *method, const treadle_message *in,
                            treadle_future **future_p) {
  char json[TREADLE_WORKER_NAME + 2];
  treadle_batch *batch = NULL;
  treadle_status status;
  if (in->failed) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its call", method));
  TRY(treadle_worker_relay_pack(in, &batch));
  snprintf(json, sizeof json, "\"%s\"", method);
  TRY(treadle_batch_set_meta(batch, "method", json));
  const treadle_call_input input = {.struct_size = sizeof input, .batch = batch};
  TRY(treadle_workers_call(relay->workers, "call", &input, future_p));
out:
  treadle_batch_destroy(batch);
  return status;
}

treadle_status treadle_worker_relay_ask(treadle_worker_relay *relay, const char *method,
                                        const treadle_message *in, treadle_message *out) {
  const int64_t before = relay->crew->books.row_bytes;
  treadle_future *future = NULL;
  treadle_status status;
  treadle_message_clear(out);
  treadle_batch_destroy(relay->answers);
  relay->answers = NULL;
  TRY(start(relay, method, in, &future));
  TRY(treadle_future_wait_or_leave(future));
  TRY(treadle_future_take_of(future, 0, NULL, 0, &relay->answers));
  *out = treadle_worker_relay_answer(relay, 0);
out:
  relay->carried += relay->crew->books.row_bytes - before;
  if (status && relay->explain) status = relay->explain(relay->context, relay, method, status);
  treadle_future_destroy(future);
  return status;
}

treadle_message treadle_worker_relay_answer(const treadle_worker_relay *relay, int rank) {
  return treadle_worker_relay_unpack(relay->answers, rank);
}
