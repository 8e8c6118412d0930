#include "generate/schedule.h"

#include "base/alloc.h"

#include <string.h>

treadle_status treadle_schedule_init(treadle_schedule *s, treadle_cache *cache, int32_t batch,
                                     int64_t chunk) {
  *s = (treadle_schedule){.cache = cache, .batch = batch, .chunk = chunk};
  s->running = treadle_alloc_array((size_t)batch + 1, sizeof *s->running);
  s->stepping = treadle_alloc_array((size_t)batch + 1, sizeof *s->stepping);
  s->stretches = treadle_alloc_array((size_t)batch + 1, sizeof *s->stretches);
  s->tokens = treadle_alloc_array((size_t)(batch + chunk), sizeof *s->tokens);
  if (s->running && s->stepping && s->stretches && s->tokens) return TREADLE_OK;
  treadle_schedule_release(s);
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for a batch of %d", batch);
}

void treadle_schedule_release(treadle_schedule *s) {
  treadle_free(s->running);
  treadle_free(s->stepping);
  treadle_free(s->stretches);
  treadle_free(s->tokens);
  *s = (treadle_schedule){0};
}

void treadle_sequence_release(treadle_sequence *sequence) {
  treadle_array_release(&sequence->tokens);
  treadle_array_release(&sequence->table);
  treadle_array_release(&sequence->hashes);
}

void treadle_schedule_add(treadle_schedule *s, treadle_sequence *sequence) {
  sequence->next = NULL;
  if (s->last)
    s->last->next = sequence;
  else
    s->first = sequence;
  s->last = sequence;
}

static void free_blocks(treadle_schedule *s, treadle_sequence *q) {
  while (q->table.count) treadle_cache_leave(s->cache, q->table.items[--q->table.count]);
  q->computed = q->rows = 0;
}

static void remove_running(treadle_schedule *s, treadle_sequence *q) {
  int32_t at = 0;
  while (s->running[at] != q) at++;
  memmove(s->running + at, s->running + at + 1, (size_t)(s->running_count - at - 1) * sizeof *s->running);
  s->running_count--;
}

void treadle_schedule_end(treadle_schedule *s, treadle_sequence *sequence) {
  free_blocks(s, sequence);
  remove_running(s, sequence);
}

/* The last one that started waits again, before all others. */
static void wait_again(treadle_schedule *s) {
  treadle_sequence *q = s->running[--s->running_count];
  free_blocks(s, q);
  q->next = s->first;
  s->first = q;
  if (!s->last) s->last = q;
}

static void preempt(treadle_schedule *s) {
  wait_again(s);
  s->preemptions++;
}

void treadle_schedule_restart(treadle_schedule *s) {
  while (s->running_count) wait_again(s);
  for (treadle_sequence *q = s->first; q; q = q->next) q->hashes.count = 0;
}

/* The hash of full block number `block` of a sequence. */
static treadle_status hash_of(treadle_schedule *s, treadle_sequence *q, size_t block,
                              treadle_hash_pair *hash_p) {
  size_t each = (size_t)s->cache->block_tokens;
  treadle_status status = TREADLE_OK;
  while (q->hashes.count <= block) {
    size_t next = q->hashes.count;
    treadle_hash_pair before = next ? q->hashes.items[next - 1] : (treadle_hash_pair){.low = s->seed};
    treadle_hash_pair hash = treadle_cache_hash(before, q->tokens.items + next * each, (int32_t)each);
    TRY(treadle_array_push(&q->hashes, hash));
  }
  *hash_p = q->hashes.items[block];
out:
  return status;
}

/* Takes blocks that others have, or had, of the same tokens. One token at least is left to compute. */
static treadle_status share_prefix(treadle_schedule *s, treadle_sequence *q) {
  size_t each = (size_t)s->cache->block_tokens;
  treadle_status status = TREADLE_OK;
  if (!s->cache->shares) return TREADLE_OK;
  for (size_t block = 0; (block + 1) * each < q->tokens.count; block++) {
    treadle_hash_pair hash;
    TRY(hash_of(s, q, block, &hash));
    int32_t found = treadle_cache_share(s->cache, hash);
    if (found < 0) break;
    status = treadle_array_push(&q->table, found);
    if (status) treadle_cache_leave(s->cache, found);
    if (status) goto out;
    q->computed += (int64_t)each;
    s->hit_tokens += (int64_t)each;
  }
out:
  return status;
}

/* Gives a sequence blocks for this many tokens; *good_p false: there are not enough. */
static treadle_status take_blocks(treadle_schedule *s, treadle_sequence *q, int64_t tokens, bool *good_p) {
  int32_t wanted = treadle_schedule_blocks(s->cache, tokens) - (int32_t)q->table.count;
  treadle_status status = TREADLE_OK;
  *good_p = wanted <= treadle_cache_unused(s->cache);
  for (; *good_p && wanted > 0; wanted--) {
    int32_t block = treadle_cache_take(s->cache);
    status = treadle_array_push(&q->table, block);
    if (status) treadle_cache_leave(s->cache, block);
    if (status) goto out;
  }
out:
  return status;
}

/* Blocks that are full after this step can be shared from now on: also in this step, since in each layer the keys and values of all
 * rows are written before any row reads them. */
static treadle_status publish(treadle_schedule *s, treadle_sequence *q) {
  size_t each = (size_t)s->cache->block_tokens;
  treadle_status status = TREADLE_OK;
  if (!s->cache->shares) return TREADLE_OK;
  for (size_t block = (size_t)q->computed / each; (block + 1) * each <= (size_t)(q->computed + q->rows);
       block++) {
    treadle_hash_pair hash;
    TRY(hash_of(s, q, block, &hash));
    treadle_cache_publish(s->cache, q->table.items[block], hash);
  }
out:
  return status;
}

/* How many rows a sequence gets: what it lacks, a prompt no more than is left of the chunk. */
static int64_t rows_of(const treadle_sequence *q, int64_t room) {
  int64_t lacks = (int64_t)q->tokens.count - q->computed;
  return lacks == 1 || lacks <= room ? lacks : room;
}

static treadle_status go_on(treadle_schedule *s, int64_t *room) {
  treadle_status status = TREADLE_OK;
  for (int32_t i = 0; i < s->running_count; i++) {
    treadle_sequence *q = s->running[i];
    bool good = false;
    int64_t rows = rows_of(q, *room);
    TRY(take_blocks(s, q, q->computed + rows, &good));
    while (!good && s->running_count > i) {
      preempt(s);
      if (s->running_count > i) TRY(take_blocks(s, q, q->computed + rows, &good));
    }
    if (!good) break;
    q->rows = rows;
    if (rows > 1) *room -= rows;
    TRY(publish(s, q));
  }
out:
  return status;
}

static treadle_status start_waiting(treadle_schedule *s, int64_t *room) {
  treadle_status status = TREADLE_OK;
  while (s->first && s->running_count<s->batch && * room> 0) {
    treadle_sequence *q = s->first;
    bool good = false;
    TRY(share_prefix(s, q));
    int64_t rows = rows_of(q, *room);
    TRY(take_blocks(s, q, q->computed + rows, &good));
    if (!good) {
      s->hit_tokens -= q->computed;
      free_blocks(s, q);
      break;
    }
    s->first = q->next;
    if (!s->first) s->last = NULL;
    s->running[s->running_count++] = q;
    q->rows = rows;
    *room -= rows;
    TRY(publish(s, q));
  }
out:
  return status;
}

treadle_status treadle_schedule_step(treadle_schedule *s, treadle_pass_step *step_p) {
  int64_t room = s->chunk, before = s->preemptions;
  treadle_status status;
  *step_p = (treadle_pass_step){.tokens = s->tokens, .stretches = s->stretches};
  for (int32_t i = 0; i < s->running_count; i++) s->running[i]->rows = 0;
  TRY(go_on(s, &room));
  if (s->preemptions == before) TRY(start_waiting(s, &room));
  for (int32_t i = 0; i < s->running_count; i++) {
    treadle_sequence *q = s->running[i];
    if (!q->rows) continue;
    memcpy(s->tokens + step_p->rows, q->tokens.items + q->computed, (size_t)q->rows * sizeof *s->tokens);
    s->stepping[step_p->stretch_count] = q;
    s->stretches[step_p->stretch_count++] =
        (treadle_pass_span){.rows = q->rows, .position = q->computed, .table = q->table.items};
    step_p->rows += q->rows;
  }
out:
  return status;
}

void treadle_schedule_done(treadle_schedule *s, const treadle_pass_step *step) {
  for (int32_t i = 0; i < step->stretch_count; i++) s->stepping[i]->computed += s->stepping[i]->rows;
}
