/* Megatron's distributed optimizer: rules 10.5. A rank has, for each buffer of each chunk, its part
 * of every bucket, one behind the other, as one tensor of fp32 master weights: buffers.0, buffers.1, ... and
 * expert_parallel_buffers.0. Padding inside buckets is padding. The weights themselves, whole on every data
 * parallel rank, are those of the megatron layout and not listed here; persistent buffers of a chunk follow its
 * buffers, whole. */
#include "oracle/oracle_megatron.h"

#include <stdlib.h>
#include <string.h>

typedef struct buffer { /* being laid: the element of each address */
  int32_t *tensor;
  int64_t *index;
  int64_t used, room;
  int64_t *ends; /* of the buckets */
  int64_t buckets, bucket_room;
} buffer;

typedef struct bucket_rules {
  int64_t bucket_size; /* 0: one bucket */
  int64_t pad;         /* a bucket ends at a multiple of it */
} bucket_rules;

static int64_t least_common_multiple(int64_t a, int64_t b) {
  int64_t x = a, y = b;
  while (y) {
    int64_t rest = x % y;
    x = y;
    y = rest;
  }
  return a / x * b;
}

static void push(buffer *b, int32_t tensor, int64_t index) {
  if (b->used == b->room) {
    b->room = b->room ? 2 * b->room : 1024;
    b->tensor = realloc(b->tensor, (size_t)b->room * sizeof *b->tensor);
    b->index = realloc(b->index, (size_t)b->room * sizeof *b->index);
    if (!b->tensor || !b->index) abort();
  }
  b->tensor[b->used] = tensor;
  b->index[b->used++] = index;
}

static void pad_to(buffer *b, int64_t unit) {
  while (b->used % unit != 0) push(b, ORACLE_PADDING, 0);
}

static void close_bucket(buffer *b, const bucket_rules *rules) {
  pad_to(b, rules->pad);
  if (b->buckets == b->bucket_room) {
    b->bucket_room = b->bucket_room ? 2 * b->bucket_room : 16;
    b->ends = realloc(b->ends, (size_t)b->bucket_room * sizeof *b->ends);
    if (!b->ends) abort();
  }
  b->ends[b->buckets++] = b->used;
}

/* Parameters in reverse order; a shared embedding has a bucket of its own. */
static void lay(buffer *b, const bucket_rules *rules, oracle_storage *const *params, const bool *shared,
                int count) {
  int64_t start = 0; /* of the open bucket */
  for (int i = count - 1; i >= 0; i--) {
    if (shared[i] && b->used > start) {
      close_bucket(b, rules);
      start = b->used;
    }
    pad_to(b, 64);
    for (int64_t e = 0; e < params[i]->elems; e++) push(b, params[i]->tensor[e], params[i]->index[e]);
    if (!shared[i] && (rules->bucket_size == 0 || b->used - start < rules->bucket_size)) continue;
    close_bucket(b, rules);
    start = b->used;
  }
  if (b->used > start) close_bucket(b, rules);
}

/* The same part of each bucket. */
static void add_owned(const oracle_place *at, const buffer *b, int64_t dp, int64_t d, const char *name,
                      int number) {
  oracle_window w = oracle_add(at, b->used / dp, 0, "%s.%d", name, number);
  oracle_last(at)->mixed = true;
  int64_t to = 0, begin = 0;
  for (int64_t i = 0; i < b->buckets; i++) {
    int64_t part = (b->ends[i] - begin) / dp;
    for (int64_t e = 0; e < part; e++, to++) {
      w.tensor[to] = b->tensor[begin + d * part + e];
      w.index[to] = b->index[begin + d * part + e];
    }
    begin = b->ends[i];
  }
}

static bool ends_with(const char *name, const char *end) {
  size_t a = strlen(name), b = strlen(end);
  return a >= b && strcmp(name + a - b, end) == 0;
}

int oracle_add_of(const oracle_model *model, const oracle_storage *storage, int64_t elem) {
  if (!storage->mixed || storage->tensor[elem] == ORACLE_PADDING) return storage->add;
  return ends_with(model->tensors[storage->tensor[elem]].name, "linear_attn.norm.weight") ? -1 : 0;
}

/* ---- Which parameter goes where -------------------------------------------------------------- */

/* A separate norm of the local spec stays fp32. */
static bool is_fp32(const oracle_megatron *g, int64_t elem_bytes, const char *name) {
  return elem_bytes == 4 ||
         (!g->te && (ends_with(name, "layernorm.weight") || ends_with(name, ".enorm.weight") ||
                     ends_with(name, ".hnorm.weight")));
}

static bool is_expert(const oracle_megatron *g, const char *name) {
  return g->ep > 1 && strstr(name, ".mlp.experts.") != NULL; /* 10.5 */
}

/* 10.5: the tied embedding on the first stage and output_layer on the last; with MTP the embedding and its copy,
 * tied or not. */
static bool is_shared(const oracle_model *m, const oracle_megatron *g, const char *name) {
  if (g->pp == 1) return false;
  if (strcmp(name, "embedding.word_embeddings.weight") == 0) return m->tied || m->mtp > 0;
  return strcmp(name, "output_layer.weight") == 0 && m->tied && m->mtp == 0;
}

/* Number of ranks before r that have its place in all but data (and context) parallelism. */
static int64_t data_rank(const oracle_layout *layout, int64_t r, bool of_experts) {
  static const char *const dense[] = {"tp", "pp", NULL}, *const experts[] = {"etp", "ep", "pp", NULL};
  int64_t before = 0;
  for (int64_t other = 0; other < r; other++) {
    bool same = true;
    for (const char *const *name = of_experts ? experts : dense; *name; name++)
      same &= oracle_layout_coordinate(layout, other, *name) == oracle_layout_coordinate(layout, r, *name);
    before += same;
  }
  return before;
}

/* ---- Ranks ----------------------------------------------------------------------------------- */

typedef struct optimizer {
  int64_t bucket_size, elem_bytes;
  bool pad;
} optimizer;

/* The buffers of one chunk: for each dtype in the order in which parameters bring them up, dense ones first. */
static void chunk(const oracle_layout *weights, const oracle_megatron *g, const optimizer *o,
                  const oracle_place *at, int64_t r, bool of_experts) {
  const oracle_rank *rank = &weights->rank[r];
  oracle_storage **params = oracle_memory((size_t)rank->count, sizeof *params);
  bool *shared = oracle_memory((size_t)rank->count, sizeof *shared);
  int64_t dp = of_experts ? g->edp : g->dp * g->cp, d = data_rank(weights, r, of_experts);
  int64_t p = oracle_layout_coordinate(weights, r, "pp");
  bucket_rules rules = {p == 0 && at->chunk == 0 ? o->bucket_size : 0, least_common_multiple(dp, 128)};
  if (o->pad) rules.pad = least_common_multiple(rules.pad, 65536);
  int number = 0, first_dtype = -1;
  for (int round = 0; round < 2; round++) {
    int count = 0;
    for (int i = 0; i < rank->count; i++) {
      oracle_storage *s = &rank->storages[i];
      if (s->chunk != at->chunk || ends_with(s->name, ".expert_bias") ||
          is_expert(g, s->name) != of_experts)
        continue;
      int dtype = is_fp32(g, o->elem_bytes, s->name);
      if (first_dtype < 0) first_dtype = dtype;
      if ((dtype == first_dtype) != (round == 0)) continue;
      shared[count] = is_shared(at->model, g, s->name);
      params[count++] = s;
    }
    if (count == 0) continue;
    buffer b = {0};
    lay(&b, &rules, params, shared, count);
    add_owned(at, &b, dp, d, of_experts ? "expert_parallel_buffers" : "buffers", number++);
    free(b.tensor);
    free(b.index);
    free(b.ends);
  }
  free(params);
  free(shared);
}

/* Persistent buffers of the chunk, whole: so that nothing of the model is missing. */
static void add_buffers(const oracle_place *at, const oracle_rank *weights) {
  for (int i = 0; i < weights->count; i++) {
    const oracle_storage *from = &weights->storages[i];
    if (from->chunk != at->chunk || !ends_with(from->name, ".expert_bias")) continue;
    oracle_window w = oracle_add(at, from->elems, 0, "%s", from->name);
    for (int64_t e = 0; e < from->elems; e++) {
      w.tensor[e] = from->tensor[e];
      w.index[e] = from->index[e];
    }
  }
}

static bool read(const oracle_layout *layout, oracle_options *options, oracle_megatron *g, optimizer *o,
                 char *why) {
  static const char *const dtypes[] = {"bf16", "fp16", "fp32", NULL};
  int dtype;
  if (!oracle_option_word(options, "dtype", dtypes, &dtype, why) ||
      !oracle_option_number(options, "bucket_size", 0, &o->bucket_size, why) ||
      !oracle_option_switch(options, "pad", &o->pad, why))
    return false;
  o->elem_bytes = layout->model->elem_bytes;
  return oracle_megatron_read(layout, options, g, why) && oracle_options_end(options, why);
}

bool oracle_build_distopt(oracle_layout *layout, oracle_options *options, char *why) {
  oracle_megatron g = {0};
  optimizer o = {0};
  oracle_layout weights = {.model = layout->model, .ranks = layout->ranks};
  bool good = read(layout, options, &g, &o, why);
  if (good) {
    weights.rank = oracle_memory((size_t)layout->ranks, sizeof *weights.rank);
    for (int64_t r = 0; r < layout->ranks; r++) oracle_megatron_rank(&weights, &g, r);
    for (int64_t r = 0; r < layout->ranks; r++) {
      memcpy(layout->rank[r].at, weights.rank[r].at, sizeof layout->rank[r].at);
      for (int64_t v = 0; v < g.stages.vpp; v++) {
        const oracle_place at = {
            .model = layout->model, .rank = &layout->rank[r], .chunk = (int)v, .layer = -1};
        chunk(&weights, &g, &o, &at, r, false);
        chunk(&weights, &g, &o, &at, r, true);
        add_buffers(&at, &weights.rank[r]);
      }
    }
    for (int64_t r = 0; r < layout->ranks; r++) oracle_rank_free(&weights.rank[r]);
    free(weights.rank);
  }
  oracle_stages_free(&g.stages);
  return good;
}
