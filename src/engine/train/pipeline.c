#include "train/pipeline.h"

#include "base/alloc.h"

#include <string.h>

/* Chunks of a stage. */
static int32_t per_stage(const treadle_pipeline *p) { return p->chunks / p->stages; }

int64_t treadle_pipeline_length(const treadle_pipeline *p) {
  return 2 * (int64_t)p->micro_batches * per_stage(p);
}

/* The k-th forward of a stage: micro batches in groups of as many as there are stages, each group through one chunk after the other. */
treadle_pipeline_item treadle_pipeline_forward_at(const treadle_pipeline *p, int32_t stage, int64_t k) {
  int64_t each = per_stage(p), whole = (int64_t)p->stages * each, group = k / whole, rest = k % whole;
  int64_t first = group * p->stages, size = p->micro_batches - first;
  if (size > p->stages) size = p->stages;
  return (treadle_pipeline_item){.chunk = (int32_t)(rest / size * p->stages + stage),
                                 .micro_batch = (int32_t)(first + rest % size)};
}

static treadle_pipeline_item backward_at(const treadle_pipeline *p, int32_t stage, int64_t k) {
  treadle_pipeline_item item = treadle_pipeline_forward_at(p, stage, k);
  item.chunk = p->chunks - p->stages + 2 * stage - item.chunk; /* the last chunk first */
  item.backward = true;
  return item;
}

/* Forwards of a stage before its first backward. All of them, where the last group of an interleaved order is short: the order of one
 * forward and one backward may not end there. */
static int64_t warm_up(const treadle_pipeline *p, int32_t stage) {
  int64_t each = per_stage(p), all = each * p->micro_batches, warm = p->stages - stage - 1;
  if (each > 1)
    warm = p->micro_batches == p->stages || p->micro_batches % p->stages
               ? all
               : 2 * warm + (each - 1) * p->stages;
  return warm < all ? warm : all;
}

treadle_pipeline_item treadle_pipeline_at(const treadle_pipeline *p, int32_t stage, int64_t number) {
  int64_t warm = warm_up(p, stage), half = treadle_pipeline_length(p) / 2, pairs = half - warm;
  if (number < warm) return treadle_pipeline_forward_at(p, stage, number);
  number -= warm;
  if (number >= 2 * pairs) return backward_at(p, stage, number - pairs);
  return number % 2 ? backward_at(p, stage, number / 2)
                    : treadle_pipeline_forward_at(p, stage, warm + number / 2);
}

/* ---- Playing ------------------------------------------------------------------------------------------ */

typedef struct play {
  const treadle_pipeline *pipeline;
  int32_t slots;
  int64_t *at;                             /* [stages]: items done */
  int32_t *forward, *backward;             /* [chunks]: micro batches done */
  int32_t *taken_forward, *taken_backward; /* [chunks]: of what came to it */
} play;

/* Can the item be done now? Rows come from the chunk before it, and there must be room for what it makes. */
static bool is_ready(const play *w, const treadle_pipeline_item *item) {
  int32_t c = item->chunk, last = w->pipeline->chunks - 1;
  if (item->backward)
    return (c == last ? w->forward[c] : w->backward[c + 1]) > item->micro_batch &&
           (c == 0 || w->backward[c] - w->taken_backward[c - 1] < w->slots);
  return (c == 0 || w->forward[c - 1] > item->micro_batch) &&
         (c == last || w->forward[c] - w->taken_forward[c + 1] < w->slots);
}

static void do_item(play *w, const treadle_pipeline_item *item) {
  int32_t c = item->chunk;
  if (item->backward) {
    w->backward[c]++;
    w->taken_backward[c] = w->backward[c];
  } else {
    w->forward[c]++;
    w->taken_forward[c] = w->forward[c];
  }
}

/* Do all stages come to their ends? */
static bool ends(play *w) {
  const treadle_pipeline *p = w->pipeline;
  int64_t length = treadle_pipeline_length(p), done = 0;
  memset(w->at, 0, (size_t)p->stages * sizeof *w->at);
  memset(w->forward, 0, 4 * (size_t)p->chunks * sizeof *w->forward);
  for (bool moved = true; moved;) {
    moved = false;
    for (int32_t s = 0; s < p->stages; s++)
      while (w->at[s] < length) {
        treadle_pipeline_item item = treadle_pipeline_at(p, s, w->at[s]);
        if (!is_ready(w, &item)) break;
        do_item(w, &item);
        w->at[s]++;
        done++;
        moved = true;
      }
  }
  return done == length * p->stages;
}

/* The most micro batches of one chunk of a stage that are forward and not backward. */
static int32_t most_kept(const treadle_pipeline *p, int32_t stage) {
  int32_t most = 1;
  for (int32_t chunk = stage; chunk < p->chunks; chunk += p->stages) {
    int32_t kept = 0;
    for (int64_t i = 0; i < treadle_pipeline_length(p); i++) {
      treadle_pipeline_item item = treadle_pipeline_at(p, stage, i);
      if (item.chunk != chunk) continue;
      kept += item.backward ? -1 : 1;
      if (kept > most) most = kept;
    }
  }
  return most;
}

treadle_status treadle_pipeline_play(const treadle_pipeline *pipeline, int32_t stage,
                                     treadle_pipeline_memory *needs_p) {
  play w = {.pipeline = pipeline};
  treadle_status status = TREADLE_OK;
  *needs_p = (treadle_pipeline_memory){.kept = 1, .slots = 1};
  if (pipeline->chunks % pipeline->stages != 0)
    return treadle_fail(TREADLE_REFUSED,
                        "a pipeline of %d chunks of layers on %d stages: each has as many as the others",
                        pipeline->chunks, pipeline->stages);
  w.at = treadle_alloc_array((size_t)pipeline->stages, sizeof *w.at);
  w.forward = treadle_alloc_array(4 * (size_t)pipeline->chunks, sizeof *w.forward);
  if (!w.at || !w.forward) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a pipeline"));
  w.backward = w.forward + pipeline->chunks;
  w.taken_forward = w.backward + pipeline->chunks;
  w.taken_backward = w.taken_forward + pipeline->chunks;
  for (w.slots = 1; !ends(&w); w.slots++)
    if (w.slots > pipeline->micro_batches)
      TRY(treadle_fail(TREADLE_REFUSED,
                       "a pipeline of %d stages, %d chunks and %d micro batches has no order that ends",
                       pipeline->stages, pipeline->chunks, pipeline->micro_batches));
  needs_p->slots = w.slots;
  needs_p->kept = most_kept(pipeline, stage);
out:
  treadle_free(w.at);
  treadle_free(w.forward);
  return status;
}

/* One after the other, chunks of a stage keep the more the more micro batches there are. Interleaved ones keep all where the stages do not
 * divide the number: of such numbers the largest is the worst. */
treadle_status treadle_pipeline_play_most(const treadle_pipeline *pipeline, int32_t stage, bool fewer,
                                          treadle_pipeline_memory *needs_p) {
  treadle_pipeline one = *pipeline;
  int32_t least = fewer && per_stage(pipeline) > 1 ? pipeline->micro_batches - pipeline->stages : 0;
  treadle_status status;
  TRY(treadle_pipeline_play(pipeline, stage, needs_p));
  if (!fewer || per_stage(pipeline) <= 1) return TREADLE_OK;
  while (--one.micro_batches > 0 && one.micro_batches >= least) {
    treadle_pipeline_memory needs;
    TRY(treadle_pipeline_play(&one, stage, &needs));
    if (needs.kept > needs_p->kept) needs_p->kept = needs.kept;
    if (needs.slots > needs_p->slots) needs_p->slots = needs.slots;
  }
out:
  return status;
}
