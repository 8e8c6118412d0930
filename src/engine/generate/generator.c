#include "generate/generator.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/dtype.h"
#include "base/sized.h"
#include "memory/limits.h"
#include "token/tokenizer.h"

#include <stdlib.h>
#include <string.h>

enum {
  MAX_BATCH = 64,
  PREFILL_CHUNK = 512,
  BLOCK_TOKENS = 16,
  MAX_LEN = 4096, /* where the config does not say */
  ALIGNMENT = 64
};
static const size_t kv_default = (size_t)256 << 20, many_blocks = 1 << 20;

static treadle_status check_options(const treadle_generator_options *o) {
  if (o->threads < 0 || o->threads > TREADLE_TEAM_MAX)
    REFUSE("threads %d: 1 to %d, or 0", o->threads, TREADLE_TEAM_MAX);
  if (o->max_batch < 0 || o->max_batch > 65536) REFUSE("max_batch %d: 1 to 65536, or 0", o->max_batch);
  if (o->prefill_chunk < 0 || o->prefill_chunk > 65536)
    REFUSE("prefill_chunk %d: 1 to 65536, or 0", o->prefill_chunk);
  if (o->block_tokens < 0 || o->block_tokens > 4096)
    REFUSE("block_tokens %d: 1 to 4096, or 0", o->block_tokens);
  if (o->max_len < 0 || o->max_len > 1 << 24)
    REFUSE("max_len %lld: 1 to %d, or 0", (long long)o->max_len, 1 << 24);
  return TREADLE_OK;
}

/* The type in which it computes: that of the layout, or of the files; fp32 for fp16. */
static treadle_dtype dtype_of(const treadle_transformer *transformer, const treadle_layout *layout) {
  treadle_dtype dtype = treadle_layout_dtype(layout, &layout->model->tensors[transformer->embed]);
  return dtype == TREADLE_BF16 ? TREADLE_BF16 : TREADLE_FP32;
}

/* As many blocks as the rank with fewest has: all ranks make the same plan of who goes on. */
static treadle_status count_blocks(treadle_generator *e) {
  pthread_mutex_lock(&e->gate.lock);
  size_t bytes = e->kv_bytes, each = treadle_pass_block_bytes(e->pass);
  size_t blocks = each ? bytes / each : SIZE_MAX;
  e->counted = true;
  pthread_mutex_unlock(&e->gate.lock);
  const treadle_cache old = e->cache;
  treadle_cache next = {0};
  treadle_status status = TREADLE_OK;
  if (blocks > INT32_MAX / 2) blocks = INT32_MAX / 2;
  if (e->group) TRY(treadle_generator_least(e, &blocks));
  if (!blocks)
    return treadle_fail(TREADLE_REFUSED,
                        "kv_memory %zu is less than one block of %d tokens, which has %zu bytes", bytes,
                        old.block_tokens, each);
  if (old.count == (int32_t)blocks) goto out;
  if (blocks > many_blocks) TRY(treadle_limits_ask(blocks * sizeof *old.blocks, "blocks of the KV cache"));
  TRY(treadle_cache_init(&next, (int32_t)blocks, old.block_tokens, old.shares));
  treadle_cache_release(&e->cache);
  e->cache = next;
out:
  return status;
}

static treadle_status make_cache(treadle_generator *e, const treadle_generator_options *o) {
  e->cache.block_tokens = o->block_tokens ? o->block_tokens : BLOCK_TOKENS;
  e->cache.shares = o->prefix_cache != TREADLE_OFF;
  e->kv_bytes = o->kv_bytes ? o->kv_bytes : kv_default;
  return count_blocks(e);
}

static treadle_status fill(treadle_generator *e, const treadle_generator_options *o, int rank) {
  int ranks = (int)e->layout->ranks;
  treadle_pass_options pass = {.kernels = o->kernels ? o->kernels : "auto"};
  treadle_status status;
  TRY(check_options(o));
  TRY(treadle_pass_check_layout(e->layout, false));
  TRY(treadle_transformer_create(e->layout->model, &e->transformer));
  if (e->transformer->head < 0)
    REFUSE("%s: a model with a score head has no logits to generate or to score texts with",
           e->layout->model->path);
  TRY(treadle_replica_find(e->transformer, e->layout, rank, &e->arena, &e->replica));
  TRY(treadle_replica_divide(e->layout, rank, &e->replica));
  e->dtype = dtype_of(e->transformer, e->layout);
  e->most_tokens = o->max_len                       ? o->max_len
                   : e->transformer->most_positions ? e->transformer->most_positions
                                                    : MAX_LEN;
  e->max_batch = o->max_batch ? o->max_batch : MAX_BATCH;
  e->prefill_chunk = o->prefill_chunk ? o->prefill_chunk : PREFILL_CHUNK;
  e->threads = pass.threads = o->threads ? o->threads : treadle_team_share(ranks);
  e->fast = pass.fast = o->fast;
  pass.dtype = e->dtype;
  pass.spin = pass.threads > 1 && pass.threads * ranks <= treadle_team_share(1);
  pass.most_rows = e->prefill_chunk + e->max_batch;
  pass.most_logits = e->max_batch;
  pass.block_tokens = o->block_tokens ? o->block_tokens : BLOCK_TOKENS;
  pass.most_positions = e->most_tokens;
  pass.records = o->experts;
  if (o->experts && !e->transformer->routing.experts)
    REFUSE("%s: the model has no experts to record", e->layout->model->path);
  TRY(treadle_pass_create(e->transformer, e->layout, &e->replica, rank, &pass, &e->pass));
out:
  return status;
}

treadle_status treadle_generator_create(treadle_group *group, const treadle_layout *layout,
                                        const treadle_generator_options *options,
                                        treadle_generator **engine_p) {
  treadle_generator_options o;
  treadle_generator *e = NULL;
  treadle_status status;
  TREADLE_NEED(engine_p);
  *engine_p = NULL;
  TREADLE_NEED(layout);
  TRY(TREADLE_TAKE(options, &o));
  e = treadle_alloc(sizeof *e);
  status = e ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "no memory for an engine");
  TRY(treadle_pass_agree(group, "treadle_generator_create", layout, 0, status));
  e->group = group;
  e->number = group ? treadle_group_number(group) : 0;
  e->layout = layout;
  treadle_gate_init(&e->gate);
  status = treadle_pass_check_ranks(layout, group);
  if (!status) status = fill(e, &o, group ? treadle_group_rank(group) : 0);
  if (group) status = treadle_group_agree(group, status);
  if (status) goto out;
  if (group && treadle_group_size(group) > 1) TRY(treadle_generator_meet(e, &o));
  status = make_cache(e, &o);
  TRY(group ? treadle_group_agree(group, status) : status);
  *engine_p = e;
  e = NULL;
out:
  treadle_generator_destroy(e);
  return status;
}

void treadle_generator_destroy(treadle_generator *engine) {
  if (!engine) return;
  treadle_pass_destroy(engine->pass);
  treadle_board_destroy(engine->board);
  treadle_cache_release(&engine->cache);
  treadle_transformer_destroy(engine->transformer);
  treadle_arena_release(&engine->arena);
  treadle_gate_release(&engine->gate);
  free(engine->own_kv);
  free(engine->own_work);
  treadle_free(engine);
}

size_t treadle_generator_outside_bytes(const treadle_generator *engine) {
  if (!engine->board) return 0;
  return treadle_board_memory(treadle_board_bytes(engine->board, treadle_group_rank(engine->group)));
}

treadle_status treadle_generator_measure(const treadle_layout *layout,
                                         const treadle_generator_options *options, int rank,
                                         treadle_generator_memory *memory_p, treadle_pass_board *room_p) {
  treadle_generator *e = treadle_alloc(sizeof *e);
  treadle_status status;
  if (!e) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the forecast of an engine");
  e->layout = layout;
  treadle_gate_init(&e->gate);
  TRY(fill(e, options, rank));
  treadle_pass_measure_board(e->pass, room_p);
  *memory_p = (treadle_generator_memory){.work = treadle_pass_work_bytes(e->pass) +
                                                 treadle_pass_packed_bytes(e->pass),
                                         .kv_block = treadle_pass_block_bytes(e->pass)};
out:
  treadle_generator_destroy(e);
  return status;
}

/* Of an engine without a switch. The memory of the cache is never less than what its blocks take. */
static treadle_status take_memory(treadle_generator *e) {
  size_t kv = (size_t)e->cache.count * treadle_pass_block_bytes(e->pass);
  size_t work = treadle_pass_work_bytes(e->pass) + treadle_pass_packed_bytes(e->pass);
  treadle_status status = TREADLE_OK;
  if (!e->own_kv) TRY(treadle_limits_ask(kv, "KV cache"));
  if (!e->own_kv && posix_memalign(&e->own_kv, ALIGNMENT, kv + ALIGNMENT) != 0)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for a KV cache of %zu bytes", kv);
  if (e->own_work) return TREADLE_OK;
  if (posix_memalign(&e->own_work, ALIGNMENT, work + ALIGNMENT) != 0)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu bytes of activations", work);
  memset(e->own_work, 0, work); /* its pages are there before the first step */
out:
  return status;
}

treadle_status treadle_generator_bind(treadle_generator *engine, const void *window, size_t bytes) {
  treadle_status status;
  TREADLE_NEED(engine);
  TREADLE_NEED(window);
  size_t needed =
      treadle_layout_window_bytes(engine->layout, engine->replica.ranks[engine->replica.position]);
  if (engine->sw)
    return treadle_fail(TREADLE_STATE,
                        "treadle_generator_bind: the engine belongs to a switch, which binds it");
  if (bytes < needed)
    REFUSE("treadle_generator_bind: a window of %zu bytes; the layout has %zu", bytes, needed);
  TRY(treadle_gate_close(&engine->gate, false));
  TRY(take_memory(engine));
  const treadle_pass_windows windows = {
      .weights = window, .cache = engine->own_kv, .work = engine->own_work};
  TRY(treadle_generator_settle(engine, &windows,
                               (size_t)engine->cache.count * treadle_pass_block_bytes(engine->pass)));
  engine->version++;
  treadle_gate_open(&engine->gate);
out:
  return status;
}

treadle_status treadle_generator_unbind(treadle_generator *engine) {
  TREADLE_NEED(engine);
  if (engine->sw)
    return treadle_fail(TREADLE_STATE,
                        "treadle_generator_unbind: the engine belongs to a switch, which unbinds it");
  return treadle_gate_close(&engine->gate, false);
}

/* All ranks have the same blocks, or count them again the next time. */
static treadle_status count_together(treadle_generator *engine) {
  treadle_status status = treadle_generator_agree(engine, count_blocks(engine));
  if (!status) return TREADLE_OK;
  pthread_mutex_lock(&engine->gate.lock);
  engine->counted = false;
  pthread_mutex_unlock(&engine->gate.lock);
  return status;
}

/* How far a rank is. The least of all ranks counts. */
enum { FAILED, WITHOUT_WEIGHTS, UNCOUNTED, COUNTED };

static treadle_status compare_ranks(treadle_generator *e, const char *what, int64_t *mine_p,
                                    int64_t *least_p) {
  treadle_status status;
  pthread_mutex_lock(&e->gate.lock);
  *mine_p = treadle_generator_has_failed(e) ? FAILED
            : !e->gate.is_open              ? WITHOUT_WEIGHTS
            : !e->counted                   ? UNCOUNTED
                                            : COUNTED;
  pthread_mutex_unlock(&e->gate.lock);
  *least_p = *mine_p;
  if (!e->group) return TREADLE_OK;
  TRY(treadle_generator_agree_on(e, TREADLE_OK, &(treadle_group_call){.name = what, .level = *mine_p}));
  *least_p = treadle_group_least_level(e->group);
out:
  return status;
}

treadle_status treadle_generator_need_weights(treadle_generator *engine, const char *what) {
  int64_t mine, least;
  treadle_status status;
  TRY(compare_ranks(engine, what, &mine, &least));
  if (least == FAILED) {
    TRY(treadle_generator_meet_anew(engine));
    TRY(compare_ranks(engine, what, &mine, &least));
  }
  if (least == WITHOUT_WEIGHTS)
    return treadle_fail(TREADLE_STATE, "%s: %s has no weights: bind it first", what,
                        mine == WITHOUT_WEIGHTS ? "the engine" : "the engine of another rank");
  if (least == UNCOUNTED) TRY(count_together(engine));
out:
  return status;
}

treadle_status treadle_generator_tell(const treadle_observer *o, const char *call, const char *doing,
                                      int64_t done, int64_t total) {
  if (o->progress) o->progress(o->context, doing, done, total);
  if (!o->stop || !o->stop(o->context)) return TREADLE_OK;
  return treadle_fail(TREADLE_CANCELLED, "%s was cancelled", call);
}

void treadle_generator_forget(treadle_generator *engine) {
  pthread_mutex_lock(&engine->gate.lock);
  engine->seed++;
  pthread_mutex_unlock(&engine->gate.lock);
}

treadle_status treadle_generator_check_tokens(const treadle_generator *engine, const int32_t *tokens,
                                              size_t count, const char *what) {
  for (size_t i = 0; i < count; i++)
    if (tokens[i] < 0 || tokens[i] >= engine->transformer->vocabulary)
      return treadle_fail(TREADLE_REFUSED, "%s: token %zu is %d; the vocabulary has 0 to %lld", what, i,
                          tokens[i], (long long)engine->transformer->vocabulary - 1);
  return TREADLE_OK;
}

treadle_status treadle_generator_check_tokenizer(const treadle_generator *engine,
                                                 const treadle_tokenizer *tokenizer) {
  int64_t count = tokenizer ? treadle_tokenizer_own_count(tokenizer) : 0;
  if (count <= engine->transformer->vocabulary) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED,
                      "the tokenizer has %lld ids, the model a vocabulary of %lld: it is another model's",
                      (long long)count, (long long)engine->transformer->vocabulary);
}

treadle_status treadle_generator_get_info(const treadle_generator *engine, treadle_generator_info *info_p) {
  treadle_generator_info info = TREADLE_INIT(treadle_generator_info);
  TREADLE_NEED(engine);
  TREADLE_NEED_SIZED(info_p);
  info.dtype = engine->dtype;
  info.exact = !engine->fast;
  info.threads = engine->threads;
  info.vocabulary = engine->transformer->vocabulary;
  info.max_len = engine->most_tokens;
  info.kernels = treadle_pass_kernels_used(engine->pass);
  info.work_bytes = treadle_pass_work_bytes(engine->pass);
  info.packed_bytes = treadle_pass_packed_bytes(engine->pass);
  info.kv_blocks = engine->cache.count;
  info.kv_blocks_peak = engine->cache.most_used;
  info.kv_blocks_used = engine->cache.used;
  info.version = engine->version;
  info.kv_block_bytes = treadle_pass_block_bytes(engine->pass);
  TREADLE_GIVE(info_p, &info);
  return TREADLE_OK;
}
