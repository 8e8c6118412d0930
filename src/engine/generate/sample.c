/* One sample of a request while it grows. */
#include "generate/sample.h"

#include "base/alloc.h"
#include "generate/stops.h"
#include "generate/uniform.h"
#include "pass/kept.h"

#include <assert.h>
#include <string.h>

static bool contains(const int32_t *ids, int32_t count, int32_t id) {
  for (int32_t i = 0; i < count; i++)
    if (ids[i] == id) return true;
  return false;
}

treadle_status treadle_sample_init(treadle_sample *sample, const treadle_sample_spec *spec) {
  const treadle_sampling_values *s = spec->sampling;
  treadle_status status = TREADLE_OK;
  *sample = (treadle_sample){.spec = *spec, .stop_id = -1, .stop_text = -1};
  assert(spec->most_tokens > 0);
  if (sample->spec.most_tokens > s->max_tokens) sample->spec.most_tokens = s->max_tokens;
  for (int64_t i = 0; i < spec->prompt_count && treadle_sampling_penalises(s); i++)
    TRY(treadle_token_counts_add(&sample->counts, spec->prompt[i], false));
  for (int32_t i = 0; i < spec->eos->count && s->min_tokens > 0; i++)
    TRY(treadle_array_push(&sample->banned, spec->eos->ids[i]));
  for (int32_t i = 0; i < s->stop_id_count && s->min_tokens > 0; i++)
    TRY(treadle_array_push(&sample->banned, s->stop_ids[i]));
out:
  if (status != TREADLE_OK) treadle_sample_release(sample);
  return status;
}

void treadle_sample_release(treadle_sample *sample) {
  treadle_token_counts_release(&sample->counts);
  treadle_array_release(&sample->tokens);
  treadle_array_release(&sample->logprobs);
  treadle_array_release(&sample->top);
  treadle_array_release(&sample->kept_counts);
  treadle_array_release(&sample->kept);
  treadle_array_release(&sample->banned);
  treadle_builder_release(&sample->text);
  treadle_free(sample->experts);
  sample->experts = NULL;
}

static int64_t made(const treadle_sample *sample) { return (int64_t)sample->tokens.count; }

/* Ends that cannot come yet. */
static int64_t banned_count(const treadle_sample *sample) {
  return made(sample) < sample->spec.sampling->min_tokens ? (int64_t)sample->banned.count : 0;
}

static treadle_sampler_row row_of(const treadle_sample *sample, const float *logits) {
  const treadle_sample_spec *spec = &sample->spec;
  return (treadle_sampler_row){.logits = logits,
                               .sampling = spec->sampling,
                               .counts = &sample->counts,
                               .banned = sample->banned.items,
                               .banned_count = banned_count(sample),
                               .never = spec->never,
                               .never_count = spec->never_count};
}

static double uniform_of(const treadle_sample *sample) {
  const treadle_sample_spec *spec = &sample->spec;
  return treadle_uniform(spec->seed, spec->index, spec->prompt_count + made(sample));
}

treadle_status treadle_sample_choose(const treadle_sample *sample, treadle_sampler *sampler,
                                     const float *logits, int32_t *token_p) {
  const treadle_sampler_row row = row_of(sample, logits);
  return treadle_sampler_choose(sampler, &row, uniform_of(sample), token_p);
}

treadle_status treadle_sample_draw(const treadle_sample *sample, treadle_sampler *sampler,
                                   const float *logits, int32_t *token_p,
                                   treadle_candidates *candidates_p) {
  treadle_sampler_row row = row_of(sample, logits);
  treadle_status status;
  const treadle_sampling_values *s = row.sampling;
  if (treadle_sampling_cuts(s, INT64_MAX)) row.most = s->top_k > 0 ? s->top_k : sample->spec.most_kept;
  TRY(treadle_sampler_keep(sampler, &row, candidates_p));
  *token_p = treadle_sampler_pick(candidates_p, uniform_of(sample));
out:
  return status;
}

void treadle_sample_leave_out(const treadle_sample *sample, float *logits, int64_t vocabulary,
                              float temperature) {
  const treadle_sample_spec *spec = &sample->spec;
  treadle_kept_without(logits, vocabulary, spec->never, (size_t)spec->never_count, temperature);
  if (spec->drawn)
    treadle_kept_without(logits, vocabulary, sample->banned.items, (size_t)banned_count(sample),
                         temperature);
}

treadle_status treadle_sample_keep(treadle_sample *sample, const int32_t *ids, size_t count) {
  treadle_status status;
  TRY(treadle_array_push(&sample->kept_counts, (int32_t)count));
  for (size_t i = 0; i < count; i++) TRY(treadle_array_push(&sample->kept, ids[i]));
out:
  return status;
}

/* Does the last token end the sample, whatever its text? */
static void look_for_end(treadle_sample *sample, int32_t token) {
  const treadle_sampling_values *s = sample->spec.sampling;
  const treadle_eos *eos = sample->spec.eos;
  bool is_eos = !s->ignore_eos && contains(eos->ids, eos->count, token);
  if (made(sample) >= s->min_tokens && (is_eos || contains(s->stop_ids, s->stop_id_count, token))) {
    sample->finish = TREADLE_FINISH_STOP;
    sample->last_is_end = true;
    sample->stop_id = is_eos && token == eos->ids[0] ? -1 : token;
  } else if (made(sample) >= sample->spec.most_tokens) {
    sample->finish = TREADLE_FINISH_LENGTH;
  }
}

treadle_status treadle_sample_take(treadle_sample *sample, int32_t token, float logprob,
                                   const treadle_token_logprob *top, int64_t top_count) {
  assert(sample->finish == TREADLE_FINISH_NONE);
  assert(sample->tokens.count == 0 || sample->top_count == top_count);
  treadle_status status;
  TRY(treadle_array_push(&sample->tokens, token));
  TRY(treadle_array_push(&sample->logprobs, logprob));
  for (int64_t i = 0; i < top_count; i++) TRY(treadle_array_push(&sample->top, top[i]));
  sample->top_count = top_count;
  if (treadle_sampling_penalises(sample->spec.sampling))
    TRY(treadle_token_counts_add(&sample->counts, token, true));
  look_for_end(sample, token);
out:
  return status;
}

treadle_status treadle_sample_add_text(treadle_sample *sample, const char *text, size_t count) {
  const treadle_sampling_values *s = sample->spec.sampling;
  size_t at = 0;
  if (sample->stop_text >= 0) return TREADLE_OK; /* the text has ended */
  treadle_builder_add_bytes(&sample->text, text, count);
  if (sample->text.failed)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for a text of %zu bytes", sample->text.length);
  if (sample->last_is_end || (int64_t)sample->tokens.count <= s->min_tokens) return TREADLE_OK;
  sample->stop_text = treadle_stops_find(s, sample->text.text, sample->text.length, count, &at);
  if (sample->stop_text < 0) return TREADLE_OK;
  sample->finish = TREADLE_FINISH_STOP;
  sample->text.length = at;
  if (sample->text.text) sample->text.text[at] = 0;
  return TREADLE_OK;
}
