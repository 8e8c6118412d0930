/* Small models, played pairs, and explicit pieces with their own truth: plain loops over rows and columns.
 */
#include "plan/small.h"
#include "plan/one_rank.h"

#include "base/dtype.h"
#include "layout/agree.h"
#include "test.h"

#include <inttypes.h>

static int64_t or_one(int64_t value) { return value ? value : 1; }

static void config_text(const small_config *c, char *text, size_t capacity) {
  snprintf(text, capacity,
           "{\"model_type\": \"%s\", \"vocab_size\": %" PRId64 ", \"hidden_size\": %" PRId64
           ", \"num_hidden_layers\": %" PRId64 ", \"num_attention_heads\": %" PRId64
           ", \"num_key_value_heads\": %" PRId64 ", \"head_dim\": %" PRId64
           ", \"intermediate_size\": %" PRId64
           ", \"tie_word_embeddings\": %s, \"torch_dtype\": \"%s\"%s%s}",
           c->type ? c->type : "llama", or_one(c->V), or_one(c->H), or_one(c->L), or_one(c->nh),
           or_one(c->ng), or_one(c->hd), or_one(c->I), c->tied ? "true" : "false",
           c->dtype ? c->dtype : "bfloat16", c->more ? ", " : "", c->more ? c->more : "");
}

treadle_model *small_model(const small_config *config) {
  char text[1024];
  treadle_model *model;
  config_text(config, text, sizeof text);
  json_t *json = json_loads(text, 0, NULL);
  assert_non_null(json);
  assert_ok(treadle_model_from_config("config", json, NULL, &model));
  json_decref(json);
  return model;
}

int32_t small_tensor(const treadle_model *model, const char *name) {
  int64_t tensor = treadle_hash_map_get(&model->by_name, name, -1);
  if (tensor < 0) fail_msg("no tensor '%s'", name);
  return (int32_t)tensor;
}

/* ---- Texts ---- */

static void start_pair(pair *p, const small_config *config, int64_t ranks) {
  char why[200];
  memset(p, 0, sizeof *p);
  config_text(config, p->config, sizeof p->config);
  p->seed = 1;
  p->ranks = ranks;
  p->json = json_loads(p->config, 0, NULL);
  assert_non_null(p->json);
  assert_ok(treadle_model_from_config("config", p->json, NULL, &p->model));
  p->oracle = oracle_model_new(p->json, why);
  if (!p->oracle) fail_msg("%s", why);
  pair_match(p);
}

static void start_side(pair *p, pair_side *side, const char *text, int64_t f) {
  char why[200];
  snprintf(side->text, sizeof side->text, "%s", text);
  snprintf(side->set, sizeof side->set, "%.*s", (int)strcspn(text, ":"), text);
  strcpy(side->like, side->set);
  side->f = f;
  assert_ok(treadle_layout_create(p->model, text, p->ranks, NULL, &side->layout));
  if (f > 1) side->layout->order = (treadle_rank_order){side->layout->tp, f};
  side->oracle = oracle_layout_new(p->oracle, text, p->ranks, f, why);
  if (!side->oracle) fail_msg("oracle: %s: %s", text, why);
  agree_trim(side->layout, side->oracle);
}

/* Once with the smallest cap, once with another. */
static pair_result play(pair *p) {
  pair_play(p, false);
  pair_result result = pair_play(p, true);
  if (p->nodes.count < 2 || p->from.layout->fp8 == p->to.layout->fp8) /* as in pair_play */
    assert_int_equal(result.moved, result.bound);
  return result;
}

pair_result small_play(const small_config *config, int64_t ranks, const char *from, const char *to,
                       int64_t f) {
  pair p;
  start_pair(&p, config, ranks);
  start_side(&p, &p.from, from, 1);
  start_side(&p, &p.to, to, f);
  pair_result result = play(&p);
  pair_release(&p);
  return result;
}

pair_result small_play_nodes(const small_config *config, const treadle_nodes *nodes, const char *from,
                             const char *to, int64_t f) {
  pair p;
  start_pair(&p, config, nodes->ranks);
  assert_ok(treadle_nodes_make(nodes->of, nodes->ranks, &p.nodes));
  start_side(&p, &p.from, from, 1);
  start_side(&p, &p.to, to, f);
  pair_result result = play(&p);
  pair_release(&p);
  return result;
}

/* ---- Pieces ---- */

void small_give(small_pieces *pieces, int64_t rank, const char *tensor, int64_t r0, int64_t r1, int64_t c0,
                int64_t c1) {
  if (r0 >= r1 || c0 >= c1) return;
  bool vector = c0 == 0 && c1 == 1;
  treadle_explicit_piece piece = {.rank = rank,
                                  .storage = tensor,
                                  .storage_ndim = vector ? 1 : 2,
                                  .storage_shape = {r1 - r0, vector ? 0 : c1 - c0},
                                  .tensor = tensor,
                                  .start = {r0, c0},
                                  .size = {r1 - r0, c1 - c0},
                                  .stride = {c1 - c0, 1}};
  assert_ok(treadle_array_push(pieces, piece));
}

void small_give_rest(small_pieces *pieces, const treadle_model *model) {
  size_t given = pieces->count;
  for (int32_t t = 0; t < model->tensor_count; t++) {
    const treadle_tensor *tensor = &model->tensors[t];
    bool known = false;
    for (size_t i = 0; i < given; i++) known |= strcmp(pieces->items[i].tensor, tensor->name) == 0;
    if (!known)
      small_give(pieces, 0, tensor->name, 0, tensor->shape[0], 0, tensor->ndim > 1 ? tensor->shape[1] : 1);
  }
}

static int64_t volume(const treadle_explicit_piece *p) {
  int64_t elems = 1;
  for (int d = 0; d < p->storage_ndim; d++) elems *= p->storage_shape[d];
  return elems;
}

/* Hands out each element of a piece: where it lies in its storage, and its index in the tensor. */
#define EACH_ELEMENT(piece, columns, at, index)                                                            \
  for (int64_t r_ = 0; r_ < (piece)->size[0]; r_++)                                                        \
    for (int64_t c_ = 0, at = (piece)->offset + r_ * (piece)->stride[0],                                   \
                 index = ((piece)->start[0] + r_) * (columns) + (piece)->start[1];                         \
         c_ < ((columns) > 1 ? (piece)->size[1] : 1); c_++, at += (piece)->stride[1], index++)

static int64_t columns_of(const treadle_model *model, int32_t tensor) {
  return model->tensors[tensor].ndim > 1 ? model->tensors[tensor].shape[1] : 1;
}

static oracle_layout *truth_of(const treadle_model *model, const oracle_model *oracle, int64_t ranks,
                               const small_pieces *pieces) {
  oracle_layout *truth = calloc(1, sizeof *truth);
  truth->model = oracle;
  truth->ranks = ranks;
  truth->rank = calloc((size_t)ranks, sizeof *truth->rank);
  for (size_t i = 0; i < pieces->count; i++) {
    const treadle_explicit_piece *p = &pieces->items[i];
    oracle_rank *rank = &truth->rank[p->rank];
    oracle_storage *storage = NULL;
    for (int s = 0; s < rank->count; s++)
      if (strcmp(rank->storages[s].name, p->storage) == 0) storage = &rank->storages[s];
    if (!storage) {
      rank->storages = realloc(rank->storages, (size_t)(rank->count + 1) * sizeof *storage);
      storage = &rank->storages[rank->count++];
      memset(storage, 0, sizeof *storage);
      snprintf(storage->name, sizeof storage->name, "%s", p->storage);
      storage->elems = volume(p);
      storage->tensor = malloc((size_t)storage->elems * sizeof *storage->tensor);
      storage->index = calloc((size_t)storage->elems, sizeof *storage->index);
      for (int64_t e = 0; e < storage->elems; e++) storage->tensor[e] = ORACLE_PADDING;
    }
    int32_t tensor = oracle_model_find(oracle, p->tensor);
    int64_t columns = columns_of(model, small_tensor(model, p->tensor));
    EACH_ELEMENT(p, columns, at, index) {
      storage->tensor[at] = tensor;
      storage->index[at] = index;
    }
  }
  return truth;
}

static void start_given(pair *p, pair_side *side, const small_pieces *pieces) {
  strcpy(side->text, "pieces");
  strcpy(side->set, "pieces");
  strcpy(side->like, "pieces");
  side->f = 1;
  side->given = true;
  assert_ok(treadle_layout_from_pieces(p->model, p->ranks, pieces->items, pieces->count, &side->layout));
  side->oracle = truth_of(p->model, p->oracle, p->ranks, pieces);
}

pair_result small_play_pieces(const small_config *config, int64_t ranks, const small_pieces *from,
                              const small_pieces *to) {
  pair p;
  start_pair(&p, config, ranks);
  start_given(&p, &p.from, from);
  start_given(&p, &p.to, to);
  pair_result result = play(&p);
  pair_release(&p);
  return result;
}

pair_result small_play_pieces_nodes(const small_config *config, const treadle_nodes *nodes,
                                    const small_pieces *from, const small_pieces *to) {
  pair p;
  start_pair(&p, config, nodes->ranks);
  assert_ok(treadle_nodes_make(nodes->of, nodes->ranks, &p.nodes));
  start_given(&p, &p.from, from);
  start_given(&p, &p.to, to);
  pair_result result = play(&p);
  pair_release(&p);
  return result;
}

/* ---- Plain windows ---- */

typedef struct plain { /* of one rank */
  uint8_t *from, *to, *written;
} plain;

static void plain_op(const treadle_op *op, const uint8_t *from, plain *own, size_t size) {
  int64_t index[TREADLE_MAX_AXES] = {0};
  int last = op->ndim - 1;
  for (;;) {
    int64_t a = op->from, b = op->to;
    for (int d = 0; d < last; d++) {
      a += index[d] * op->from_stride[d];
      b += index[d] * op->to_stride[d];
    }
    for (int64_t i = 0; i < op->size[last]; i++, b += op->to_stride[last]) {
      if (op->source >= 0)
        memcpy(own->to + b, from + a + i * op->from_stride[last], size);
      else
        memset(own->to + b, 0, size);
      own->written[b / (int64_t)size]++;
    }
    int d = last - 1;
    while (d >= 0 && ++index[d] == op->size[d]) index[d--] = 0;
    if (d < 0) break;
  }
}

static uint32_t value_of(int32_t tensor, int64_t index) {
  return (uint32_t)treadle_hash_more((uint64_t)tensor + 1, (uint64_t)index);
}

static int64_t offset_of(const treadle_layout *layout, const treadle_explicit_piece *p) {
  for (int32_t s = 0; s < treadle_layout_storage_count(layout, p->rank); s++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    assert_ok(treadle_layout_storage(layout, p->rank, s, &info));
    if (strcmp(info.name, p->storage) == 0) return (int64_t)info.offset_bytes;
  }
  fail_msg("rank %" PRId64 " has no storage '%s'", p->rank, p->storage);
  return 0;
}

int64_t small_apply_pieces(const treadle_model *model, int64_t ranks, const small_pieces *from,
                           const small_pieces *to, int32_t waves) {
  treadle_layout *a, *b;
  int64_t size = (int64_t)treadle_dtype_bytes(model->tensors[0].dtype), moved = 0;
  plain *windows = calloc((size_t)ranks, sizeof *windows);
  assert_ok(treadle_layout_from_pieces(model, ranks, from->items, from->count, &a));
  assert_ok(treadle_layout_from_pieces(model, ranks, to->items, to->count, &b));
  for (int64_t r = 0; r < ranks; r++) {
    windows[r].from = calloc(treadle_layout_window_bytes(a, r) + 1, 1);
    windows[r].to = malloc(treadle_layout_window_bytes(b, r) + 1);
    windows[r].written = calloc(treadle_layout_window_bytes(b, r) / (size_t)size + 1, 1);
    assert_true(windows[r].from && windows[r].to && windows[r].written);
    memset(windows[r].to, 0xa5, treadle_layout_window_bytes(b, r));
  }
  for (size_t i = 0; i < from->count; i++) {
    const treadle_explicit_piece *p = &from->items[i];
    int32_t tensor = small_tensor(model, p->tensor);
    uint8_t *base = windows[p->rank].from + offset_of(a, p);
    EACH_ELEMENT(p, columns_of(model, tensor), at, index) {
      uint32_t value = value_of(tensor, index);
      memcpy(base + at * size, &value, (size_t)size);
    }
  }
  for (int64_t r = 0; r < ranks; r++) {
    treadle_plan *plan;
    assert_ok(one_rank_plan(a, b, r, 4096, waves, 1 << 20, &plan));
    for (size_t i = 0; i < plan->forward.ops.count; i++) {
      const treadle_op *op = &plan->forward.ops.items[i];
      const uint8_t *source = op->source < 0 ? NULL : op->twin ? windows[r].to : windows[op->source].from;
      plain_op(op, source, &windows[r], (size_t)size);
    }
    assert_int_equal(plan->forward.moved_bytes, plan->forward.lower_bound_bytes);
    moved += plan->forward.moved_bytes;
    treadle_plan_destroy(plan);
  }
  for (size_t i = 0; i < to->count; i++) {
    const treadle_explicit_piece *p = &to->items[i];
    int32_t tensor = small_tensor(model, p->tensor);
    int64_t offset = offset_of(b, p);
    const plain *own = &windows[p->rank];
    EACH_ELEMENT(p, columns_of(model, tensor), at, index) {
      uint32_t value = value_of(tensor, index);
      if (memcmp(own->to + offset + at * size, &value, (size_t)size) != 0 ||
          own->written[offset / size + at] != 1)
        fail_msg("rank %" PRId64 ": %s element %" PRId64 ": other bits, or written %d times", p->rank,
                 p->tensor, index, own->written[offset / size + at]);
    }
  }
  for (int64_t r = 0; r < ranks; r++) {
    free(windows[r].from);
    free(windows[r].to);
    free(windows[r].written);
  }
  free(windows);
  treadle_layout_destroy(a);
  treadle_layout_destroy(b);
  return moved;
}
