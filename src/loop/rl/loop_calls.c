/* The calls of rank 0, each with its message. */
#include "rl/loop.h"

#include "base/alloc.h"

#include <string.h>

static treadle_status call(treadle_rl *rl, const char *method) {
  return treadle_worker_group_call(&rl->workers, method, &rl->in, &rl->out);
}

/* "{"temperature": .., ...}": what all requests have in common. */
static void put_sampling(treadle_rl *rl, const treadle_rl_sampling *sampling) {
  const treadle_train_settings *s = rl->settings;
  char text[400];
  int64_t top_k = sampling->top_k > 0 ? sampling->top_k : -1;
  snprintf(text, sizeof text,
           "{\"temperature\": %.9g, \"top_p\": %.9g, \"top_k\": %lld, \"min_p\": %.9g, "
           "\"repetition_penalty\": 1.0, "
           "\"presence_penalty\": 0.0, \"frequency_penalty\": 0.0, \"ignore_eos\": %s}",
           sampling->temperature, sampling->top_p, (long long)top_k, s->min_p,
           s->ignore_eos ? "true" : "false");
  treadle_message_put_bytes(&rl->in, text, strlen(text) + 1);
  treadle_message_put_int(&rl->in, sampling->keeps);
}

treadle_status treadle_rl_call_generate(treadle_rl *rl, const char *lines, size_t bytes,
                                        const treadle_rl_sampling *sampling) {
  treadle_message_clear(&rl->in);
  treadle_message_put_bytes(&rl->in, lines, bytes);
  put_sampling(rl, sampling);
  return call(rl, "generate_sequences");
}

/* ---- Rows -------------------------------------------------------------------------------------------------- */

static const treadle_rl_made *sample_of(const treadle_rl_rows *rows, size_t i) {
  return &rows->batch->samples.items[rows->samples[i]];
}

/* Samples without tokens have nothing to give. */
static size_t count_rows(const treadle_rl_rows *rows) {
  size_t count = 0;
  for (size_t i = 0; i < rows->count; i++) count += sample_of(rows, i)->count > 0;
  return count;
}

static size_t count_tokens(const treadle_rl_rows *rows) {
  size_t count = 0;
  for (size_t i = 0; i < rows->count; i++) count += sample_of(rows, i)->count;
  return count;
}

static void put_lengths(treadle_message *in, const treadle_rl_rows *rows, bool prompts) {
  const size_t count = count_rows(rows);
  treadle_message_put_int(in, (int64_t)(count * sizeof(int64_t)));
  char *to = treadle_message_grow(in, count * sizeof(int64_t));
  for (size_t i = 0; to && i < rows->count; i++) {
    const treadle_rl_made *s = sample_of(rows, i);
    int64_t length = s->prompt->count + (prompts ? 0 : (int64_t)s->count);
    if (!s->count) continue;
    memcpy(to, &length, sizeof length);
    to += sizeof length;
  }
}

static void put_ids(treadle_message *in, const treadle_rl_rows *rows) {
  size_t tokens = 0;
  for (size_t i = 0; i < rows->count; i++)
    if (sample_of(rows, i)->count)
      tokens += (size_t)sample_of(rows, i)->prompt->count + sample_of(rows, i)->count;
  treadle_message_put_int(in, (int64_t)(tokens * sizeof(int32_t)));
  char *to = treadle_message_grow(in, tokens * sizeof(int32_t));
  for (size_t i = 0; to && i < rows->count; i++) {
    const treadle_rl_made *s = sample_of(rows, i);
    if (!s->count) continue;
    memcpy(to, s->prompt->ids, (size_t)s->prompt->count * sizeof(int32_t));
    to += (size_t)s->prompt->count * sizeof(int32_t);
    memcpy(to, rows->batch->ids.items + s->first, s->count * sizeof(int32_t));
    to += s->count * sizeof(int32_t);
  }
}

/* Of each token how many ids it was drawn from, and which; none where that is not kept. */
static void put_kept(treadle_message *in, const treadle_rl_rows *rows) {
  const treadle_rl_batch *b = rows->batch;
  const size_t tokens = b->kept_counts.count ? count_tokens(rows) : 0;
  size_t all = 0;
  for (size_t i = 0; tokens && i < rows->count; i++) all += sample_of(rows, i)->kept_count;
  for (int ids = 0; ids < 2; ids++) {
    const size_t bytes = (ids ? all : tokens) * sizeof(int32_t);
    treadle_message_put_int(in, (int64_t)bytes);
    char *to = treadle_message_grow(in, bytes);
    for (size_t i = 0; bytes && to && i < rows->count; i++) {
      const treadle_rl_made *s = sample_of(rows, i);
      const size_t some = (ids ? s->kept_count : s->count) * sizeof(int32_t);
      if (some) memcpy(to, ids ? b->kept.items + s->kept_first : b->kept_counts.items + s->first, some);
      to += some;
    }
  }
}

static void put_rows(treadle_rl *rl, const treadle_rl_rows *rows) {
  const treadle_train_settings *s = rl->settings;
  treadle_message_clear(&rl->in);
  treadle_message_put_int(&rl->in, (int64_t)count_rows(rows));
  put_ids(&rl->in, rows);
  put_lengths(&rl->in, rows, false);
  put_lengths(&rl->in, rows, true);
  treadle_message_put_int(&rl->in, s->micro_batch_size);
  treadle_message_put_int(&rl->in, s->max_tokens_per_micro);
  put_kept(&rl->in, rows);
}

/* Values of the rows' tokens, from their places in the batch. */
static void put_values(treadle_message *in, const treadle_rl_rows *rows, const void *values, size_t size) {
  const size_t bytes = count_tokens(rows) * size;
  treadle_message_put_int(in, (int64_t)bytes);
  char *to = treadle_message_grow(in, bytes);
  for (size_t i = 0; to && i < rows->count; i++) {
    const treadle_rl_made *s = sample_of(rows, i);
    if (values)
      memcpy(to, (const char *)values + s->first * size, s->count * size);
    else
      memset(to, 0, s->count * size);
    to += s->count * size;
  }
}

static treadle_status get_values(treadle_message *out, const treadle_rl_rows *rows, const char *what,
                                 float *values) {
  const void *from;
  treadle_status status;
  TRY(treadle_message_array(out, what, sizeof(float), count_tokens(rows), &from));
  const float *at = from;
  for (size_t i = 0; i < rows->count; i++) {
    const treadle_rl_made *s = sample_of(rows, i);
    if (s->count) memcpy(values + s->first, at, s->count * sizeof *at);
    at += s->count;
  }
out:
  return status;
}

treadle_status treadle_rl_call_logprobs(treadle_rl *rl, const treadle_rl_rows *rows, bool reference,
                                        float *logprobs, float *entropies) {
  treadle_status status;
  if (!count_rows(rows)) return TREADLE_OK;
  put_rows(rl, rows);
  treadle_message_put_real(&rl->in, rl->settings->temperature);
  treadle_message_put_int(&rl->in, entropies != NULL);
  TRY(call(rl, reference ? "compute_ref_log_prob" : "compute_log_prob"));
  TRY(get_values(&rl->out, rows, "log-probabilities", logprobs));
  if (entropies) TRY(get_values(&rl->out, rows, "entropies", entropies));
out:
  return status;
}

treadle_status treadle_rl_call_enter(treadle_rl *rl, treadle_mode mode) {
  treadle_message_clear(&rl->in);
  treadle_message_put_int(&rl->in, mode);
  return call(rl, "enter");
}

treadle_status treadle_rl_call_update(treadle_rl *rl, const treadle_rl_update *update,
                                      treadle_optimizer_figures *figures_p) {
  const treadle_rl_batch *b = update->rows.batch;
  int64_t skipped;
  treadle_status status;
  put_rows(rl, &update->rows);
  treadle_message_put_bytes(&rl->in, &update->loss, sizeof update->loss);
  put_values(&rl->in, &update->rows, b->old ? b->old : b->rollout.items, sizeof(float));
  put_values(&rl->in, &update->rows, b->ref, sizeof(float));
  put_values(&rl->in, &update->rows, b->rollout.items, sizeof(float));
  put_values(&rl->in, &update->rows, b->advantages, sizeof(double));
  put_values(&rl->in, &update->rows, update->weights, sizeof(double));
  treadle_message_put_real(&rl->in, rl->settings->temperature);
  treadle_message_put_int(&rl->in, update->entropies != NULL);
  treadle_message_put_real(&rl->in, update->step.lr);
  treadle_message_put_real(&rl->in, update->step.weight_decay);
  treadle_message_put_real(&rl->in, update->step.clip_grad);
  TRY(call(rl, "update"));
  TRY(get_values(&rl->out, &update->rows, "log-probabilities", update->logprobs));
  if (update->entropies) TRY(get_values(&rl->out, &update->rows, "entropies", update->entropies));
  TRY(treadle_message_real(&rl->out, "grad_norm", &figures_p->grad_norm));
  TRY(treadle_message_int(&rl->out, "skipped", &skipped));
  TRY(treadle_message_int(&rl->out, "steps", &figures_p->steps));
  figures_p->skipped = skipped != 0;
out:
  return status;
}

/* ---- The rest ---------------------------------------------------------------------------------------------- */

static void put_text(treadle_message *in, const char *text) {
  treadle_message_put_bytes(in, text, strlen(text) + 1);
}

treadle_status treadle_rl_call_save(treadle_rl *rl, const treadle_train_checkpoint *checkpoint) {
  treadle_message_clear(&rl->in);
  treadle_message_put_int(&rl->in, checkpoint->step);
  treadle_message_put_int(&rl->in, checkpoint->max_to_keep);
  put_text(&rl->in, checkpoint->run);
  put_text(&rl->in, checkpoint->data);
  put_text(&rl->in, checkpoint->rng);
  return call(rl, "save");
}

treadle_status treadle_rl_call_digest(treadle_rl *rl, uint64_t *digest_p) {
  int64_t digest = 0;
  treadle_status status;
  treadle_message_clear(&rl->in);
  TRY(call(rl, "weights_digest"));
  TRY(treadle_message_int(&rl->out, "digest", &digest));
  *digest_p = (uint64_t)digest;
out:
  return status;
}

treadle_status treadle_rl_call_gauges(treadle_rl *rl, treadle_rl_gauges *gauges_p) {
  const void *from;
  treadle_status status;
  treadle_message_clear(&rl->in);
  TRY(call(rl, "gauges"));
  TRY(treadle_message_array(&rl->out, "gauges", sizeof *gauges_p, 1, &from));
  memcpy(gauges_p, from, sizeof *gauges_p);
out:
  return status;
}
