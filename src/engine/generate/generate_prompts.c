/* Prompts in a batch, and sampling values of a program, as requests of a call. */
#include "generate/generate_prompts.h"

#include "base/argument.h"
#include "batch/batch.h"

/* ---- Sampling values -------------------------------------------------------------------------------- */

static treadle_status check_never(const treadle_generate_call *call) {
  const treadle_generate_options *o = &call->options;
  const int64_t vocabulary = call->engine->transformer->vocabulary;
  for (size_t i = 0; i < o->never_count; i++)
    if (o->never[i] < 0 || o->never[i] >= vocabulary)
      REFUSE("sampling: never[%zu] is %d, which is not in the vocabulary of %lld tokens", i, o->never[i],
             (long long)vocabulary);
  return TREADLE_OK;
}

static treadle_status check_stops(const treadle_sampling *s) {
  if (s->stop_token_id_count && !s->stop_token_ids)
    REFUSE("sampling: stop_token_id_count is %zu, and stop_token_ids is NULL", s->stop_token_id_count);
  if (s->stop_token_id_count > TREADLE_MOST_STOPS)
    REFUSE("sampling: stop_token_ids has %zu items; the limit is %d", s->stop_token_id_count,
           TREADLE_MOST_STOPS);
  return TREADLE_OK;
}

static treadle_sampling_values values_of(const treadle_sampling *s) {
  return (treadle_sampling_values){.temperature = s->temperature,
                                   .top_k = s->top_k,
                                   .top_p = s->top_p,
                                   .min_p = s->min_p,
                                   .repetition_penalty = s->repetition_penalty,
                                   .presence_penalty = s->presence_penalty,
                                   .frequency_penalty = s->frequency_penalty,
                                   .max_tokens = s->max_tokens,
                                   .min_tokens = s->min_tokens,
                                   .n = s->n,
                                   .ignore_eos = s->ignore_eos,
                                   .stop_ids = s->stop_token_ids,
                                   .stop_id_count = (int32_t)s->stop_token_id_count};
}

treadle_status treadle_generate_take_sampling(treadle_generate_call *call, const treadle_sampling *sampling,
                                              treadle_sampling_values *values_p) {
  static const char what[] = "sampling";
  const treadle_transformer *transformer = call->engine->transformer;
  treadle_generate_options *o = &call->options;
  treadle_status status;
  TRY(treadle_transformer_sampling(transformer, NULL, &call->arena, sampling ? NULL : values_p,
                                   &call->eos));
  if (!sampling) goto out;
  TRY(treadle_check_enum(what, "logprobs_of", (long long)sampling->logprobs_of,
                         TREADLE_LOGPROBS_DRAWN + 1));
  TRY(check_stops(sampling));
  *values_p = values_of(sampling);
  TRY(treadle_sampling_check(what, values_p));
  TRY(treadle_sampling_check_ids(what, values_p, transformer->vocabulary));
  o->seed = sampling->seed;
  o->scaled = sampling->logprobs_of == TREADLE_LOGPROBS_SCALED;
  o->drawn = sampling->logprobs_of == TREADLE_LOGPROBS_DRAWN;
  o->never = sampling->never;
  o->never_count = sampling->never_count;
  o->most_kept = sampling->most_kept;
  TRY(treadle_generate_call_check_options(o));
  TRY(check_never(call));
  if (o->drawn) TRY(treadle_sampling_check_drawn(what, values_p));
out:
  return status;
}

/* ---- Prompts ---------------------------------------------------------------------------------------- */

/* "ragged int32", "fp64 of width 1" */
static void describe(treadle_column_type type, int64_t width, char text_p[64]) {
  const char *name = treadle_column_about_of(type)->name;
  if (width)
    snprintf(text_p, 64, "%s of width %lld", name, (long long)width);
  else
    snprintf(text_p, 64, "ragged %s", name);
}

static treadle_status find_column(const treadle_batch *prompts, const char *name, treadle_column_type type,
                                  int64_t width, treadle_batch_entry **entry_p) {
  char is[64], wanted[64];
  treadle_status status = treadle_batch_need(prompts, name, entry_p);
  if (status) return treadle_fail_in(status, "prompts: ");
  if ((*entry_p)->type == type && (*entry_p)->width == width) return TREADLE_OK;
  describe((*entry_p)->type, (*entry_p)->width, is);
  describe(type, width, wanted);
  REFUSE("prompts: column '%s' is %s; it must be %s", name, is, wanted);
}

static treadle_status check_count(int64_t rows, int64_t samples_of_row) {
  if (rows > TREADLE_MOST_REQUESTS)
    REFUSE("prompts: %lld rows; the limit is %d", (long long)rows, TREADLE_MOST_REQUESTS);
  if (rows * samples_of_row > TREADLE_MOST_ALL_SAMPLES)
    REFUSE("prompts: %lld rows with n=%lld each; the limit is %d samples of all rows", (long long)rows,
           (long long)samples_of_row, TREADLE_MOST_ALL_SAMPLES);
  return TREADLE_OK;
}

static treadle_status check_prompt(const treadle_generate_call *call, const treadle_request *request) {
  const treadle_generator *e = call->engine;
  char name[TREADLE_LINE_NAME];
  treadle_status status;
  treadle_generate_call_name(call, request, name);
  TRY(treadle_request_check_prompt(name, "prompt_ids", &request->input, e->transformer->vocabulary,
                                   e->most_tokens));
  TRY(treadle_generate_call_check_room(call, request));
out:
  return status;
}

treadle_status treadle_generate_take_prompts(treadle_generate_call *call, const treadle_batch *prompts,
                                             const treadle_sampling_values *values) {
  const int64_t rows = treadle_batch_rows(prompts);
  treadle_batch_entry *ids, *seed = NULL;
  treadle_status status;
  TRY(find_column(prompts, "prompt_ids", TREADLE_COLUMN_INT32, 0, &ids));
  if (treadle_batch_has(prompts, "seed")) TRY(find_column(prompts, "seed", TREADLE_COLUMN_INT64, 1, &seed));
  TRY(check_count(rows, values->n));
  for (int64_t row = 0; row < rows; row++) {
    treadle_request request = {.line = row, .number = row, .sampling = *values};
    request.input = (treadle_request_input){.type = TREADLE_REQUEST_TOKENS,
                                            .tokens = (const void *)treadle_entry_data(ids, row),
                                            .token_count = treadle_entry_count(ids, row)};
    request.sampling.has_seed = seed != NULL;
    if (seed) request.sampling.seed = ((const int64_t *)(const void *)seed->data)[row];
    TRY(check_prompt(call, &request));
    if (treadle_array_push(&call->requests.items, request))
      return treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld prompts", (long long)rows);
  }
out:
  return status;
}
