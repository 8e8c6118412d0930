/* Generating for the rows of a batch. They are this replica's alone: other ranks matter before the first step and at the end, where a
 * rank waits for all others, so that all fare well or all fail. Answers stay with their samples until all are there. */
#include "base/alloc.h"
#include "base/argument.h"
#include "base/sized.h"
#include "batch/batch.h"
#include "generate/generate_call.h"
#include "generate/generate_prompts.h"

#include <string.h>

/* ---- Answers ---------------------------------------------------------------------------------------- */

/* A ragged column of answers: of each sample, its values. */
typedef struct list {
  const char *name;
  treadle_column_type type;
  const void *(*values)(const treadle_sample *sample, size_t *count_p);
} list;

static const void *ids(const treadle_sample *sample, size_t *count_p) {
  *count_p = sample->tokens.count;
  return sample->tokens.items;
}

static const void *logprobs(const treadle_sample *sample, size_t *count_p) {
  *count_p = sample->logprobs.count;
  return sample->logprobs.items;
}

static const void *kept_counts(const treadle_sample *sample, size_t *count_p) {
  *count_p = sample->kept_counts.count;
  return sample->kept_counts.items;
}

static const void *kept(const treadle_sample *sample, size_t *count_p) {
  *count_p = sample->kept.count;
  return sample->kept.items;
}

static const void *experts(const treadle_sample *sample, size_t *count_p) {
  *count_p = sample->expert_bytes;
  return sample->experts;
}

static const list always[] = {{"ids", TREADLE_COLUMN_INT32, ids},
                              {"rollout_log_probs", TREADLE_COLUMN_FP32, logprobs}},
                  of_cuts[] = {{"kept_counts", TREADLE_COLUMN_INT32, kept_counts},
                               {"kept", TREADLE_COLUMN_INT32, kept}},
                  recorded = {"experts", TREADLE_COLUMN_BYTES, experts};

static treadle_status add_list(const treadle_generate_call *call, const list *column, treadle_batch *out) {
  const int64_t rows = (int64_t)call->job_count;
  const size_t each = treadle_column_about_of(column->type)->bytes;
  treadle_batch_entry entry = {0};
  int64_t values = 0, *offsets;
  size_t count;
  treadle_status status;
  for (int64_t r = 0; r < rows; r++, values += (int64_t)count)
    column->values(&call->jobs[r].sample, &count);
  TRY(treadle_entry_make(column->name, column->type, 0, rows, values, &entry, &offsets));
  for (int64_t r = 0; r < rows; r++) {
    const void *from = column->values(&call->jobs[r].sample, &count);
    if (count) memcpy(entry.data + (size_t)offsets[r] * each, from, count * each);
    offsets[r + 1] = offsets[r] + (int64_t)count;
  }
  TRY(treadle_batch_take(out, &entry));
out:
  return status;
}

static treadle_status add_finish(const treadle_generate_call *call, treadle_batch *out) {
  const char **texts = treadle_alloc_array(call->job_count + 1, sizeof(*texts));
  treadle_status status;
  if (!texts) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu answers", call->job_count);
  for (size_t i = 0; i < call->job_count; i++)
    texts[i] = call->jobs[i].sample.finish == TREADLE_FINISH_STOP ? "stop" : "length";
  status = treadle_batch_add_texts(out, "finish", texts, NULL);
  treadle_free(texts);
  return status;
}

static treadle_status add_version(const treadle_generate_call *call, treadle_batch *out) {
  const int64_t rows = (int64_t)call->job_count;
  treadle_batch_entry entry = {0};
  treadle_status status;
  TRY(treadle_entry_make("version", TREADLE_COLUMN_INT64, 1, rows, rows, &entry, NULL));
  for (int64_t r = 0; r < rows; r++) ((int64_t *)(void *)entry.data)[r] = (int64_t)call->jobs[r].version;
  TRY(treadle_batch_take(out, &entry));
out:
  return status;
}

static treadle_status make_answers(const treadle_generate_call *call, bool keeps, treadle_batch **out_p) {
  treadle_batch *out;
  treadle_status status;
  TRY(treadle_batch_create((int64_t)call->job_count, &out));
  *out_p = out;
  for (size_t i = 0; i < sizeof always / sizeof *always; i++) TRY(add_list(call, &always[i], out));
  TRY(add_finish(call, out));
  TRY(add_version(call, out));
  for (size_t i = 0; keeps && i < sizeof of_cuts / sizeof *of_cuts; i++)
    TRY(add_list(call, &of_cuts[i], out));
  if (treadle_pass_record_bytes(call->engine->pass)) TRY(add_list(call, &recorded, out));
out:
  return status;
}

/* ---- The call --------------------------------------------------------------------------------------- */

static treadle_status prepare(treadle_generate_call *call, const treadle_batch *prompts,
                              const treadle_sampling *sampling, bool *keeps_p) {
  treadle_sampling_values values;
  treadle_status status;
  TRY(treadle_generate_take_sampling(call, sampling, &values));
  TRY(treadle_generate_take_prompts(call, prompts, &values));
  TRY(treadle_generate_call_prepare(call));
  *keeps_p = treadle_generate_call_keeps(call, &values);
out:
  return status;
}

/* Who fails tells the others, which wait for this rank. */
static treadle_status run(treadle_generate_call *call, bool keeps, treadle_batch **out_p) {
  treadle_status status;
  TRY(treadle_generate_call_run(call));
  TRY(make_answers(call, keeps, out_p));
  TRY(treadle_generate_call_wait(call));
out:
  treadle_pass_tell(call->engine->pass, status);
  return status;
}

treadle_status treadle_generator_generate(treadle_generator *generator, const treadle_batch *prompts,
                                          const treadle_sampling *sampling,
                                          const treadle_observer *observer, treadle_batch **out_p) {
  treadle_sampling given;
  treadle_generate_call call = {.engine = generator,
                                .unit = "row",
                                .doing = "generating",
                                .options = {.struct_size = sizeof call.options, .what = "prompts"}};
  treadle_batch *out = NULL;
  bool keeps = false;
  treadle_status status;
  TREADLE_NEED(out_p);
  *out_p = NULL;
  TREADLE_NEED(generator);
  TREADLE_NEED(prompts);
  TRY(TREADLE_TAKE(observer, &call.observer));
  TRY(TREADLE_TAKE(sampling, &given));
  TRY(treadle_generator_need_weights(generator, "treadle_generator_generate"));
  TRY(treadle_generate_call_agree(&call, "treadle_generator_generate",
                                  prepare(&call, prompts, sampling ? &given : NULL, &keeps)));
  TRY(run(&call, keeps, &out));
  *out_p = out;
  out = NULL;
out:
  treadle_batch_destroy(out);
  treadle_generate_call_release(&call, status);
  return status;
}
