/* Random pairs: models of odd sizes, layouts of every set. */
#include "plan/pairs.h"

#include "layout/agree.h"
#include "model/model.h"
#include "plan/one_rank.h"
#include "plan/place.h"

#include "test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Layouts with a text, by how often they are drawn of 102. */
static const struct {
  const char *set;
  int weight;
} weights[] = {{"hf", 8},    {"megatron", 26}, {"vllm", 24}, {"sglang", 24}, {"fsdp", 4},
               {"fsdp2", 4}, {"zero1", 2},     {"zero2", 2}, {"zero3", 4},   {"distopt", 4}};

static const char *draw_kind(treadle_random *random, const pair *p) {
  for (;;) {
    int64_t at = treadle_random_below(random, 102);
    size_t k = 0;
    while (at >= weights[k].weight) at -= weights[k++].weight;
    if (draw_fits(p->oracle, weights[k].set) && agree_knows(p->model, weights[k].set))
      return weights[k].set;
  }
}

/* ---- The same layout, piece by piece ---- */

typedef TREADLE_ARRAY(treadle_explicit_piece) given_pieces;

/* Rows of the last dimension, counted through the tensor. A box of them stays in one matrix of a stack. */
static void set_box(treadle_explicit_piece *piece, const treadle_tensor_info *tensor, int64_t row,
                    int64_t rows, int64_t column, int64_t width) {
  int last = tensor->ndim - 1, first = last > 0 ? last - 1 : 0;
  for (int d = 0; d < tensor->ndim; d++) piece->size[d] = 1, piece->stride[d] = 0;
  for (int d = first; d >= 0; d--) {
    piece->start[d] = row % tensor->shape[d];
    row /= tensor->shape[d];
  }
  piece->size[first] = rows;
  piece->stride[first] = width;
  if (last == 0) return;
  piece->start[last] = column;
  piece->size[last] = width;
  piece->stride[last] = 1;
}

/* A run as boxes of rows: [first part row], whole rows, [last part row]; joined with the box above it where both
 * are the same columns of following rows. */
static void push_rows(given_pieces *pieces, treadle_explicit_piece piece, const treadle_tensor_info *tensor,
                      int64_t start, int64_t local, int64_t count) {
  int last = tensor->ndim - 1, first = last > 0 ? last - 1 : 0;
  int64_t columns = last > 0 ? tensor->shape[last] : 1, matrix = tensor->shape[first];
  while (count > 0) {
    int64_t column = start % columns, row = start / columns;
    int64_t rows = column == 0 && count >= columns ? count / columns : 1;
    int64_t left = matrix - row % matrix;
    if (rows > left) rows = left;
    int64_t width =
        column == 0 && count >= columns ? columns : (count < columns - column ? count : columns - column);
    set_box(&piece, tensor, row, rows, column, width);
    piece.offset = local;
    treadle_explicit_piece *above = pieces->count ? &pieces->items[pieces->count - 1] : NULL;
    bool joins = above && above->storage == piece.storage && above->tensor == piece.tensor && rows == 1 &&
                 above->start[last] == piece.start[last] && above->size[last] == piece.size[last] &&
                 above->start[first] + above->size[first] == piece.start[first] &&
                 above->offset + above->size[first] * width == local;
    for (int d = 0; d < first && joins; d++) joins = above->start[d] == piece.start[d];
    if (joins && last > 0)
      above->size[first]++;
    else
      assert_int_equal(treadle_array_push(pieces, piece), TREADLE_OK);
    start += rows * width;
    local += rows * width;
    count -= rows * width;
  }
}

static treadle_layout *give(const treadle_model *model, const treadle_layout *like, int64_t f) {
  given_pieces pieces = {0};
  treadle_arena arena = {0};
  for (int64_t r = 0; r < like->ranks; r++) {
    treadle_rank_order order = {like->tp > 0 ? like->tp : 1, f};
    int64_t rank = treadle_order_physical(&order, r); /* given layouts are in physical ranks */
    for (int32_t s = 0; s < treadle_layout_storage_count(like, r); s++) {
      treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
      treadle_run *runs;
      size_t count;
      assert_int_equal(treadle_layout_storage(like, r, s, &info), TREADLE_OK);
      assert_int_equal(treadle_layout_runs(like, r, s, &runs, &count), TREADLE_OK);
      const char *name = treadle_arena_format(&arena, "%d.%s", info.chunk, info.name);
      for (size_t i = 0; i < count; i++) {
        if (runs[i].tensor < 0) continue;
        treadle_tensor_info tensor = TREADLE_INIT(treadle_tensor_info);
        assert_int_equal(treadle_model_tensor(model, runs[i].tensor, &tensor), TREADLE_OK);
        treadle_explicit_piece piece = {.rank = rank,
                                        .storage = name,
                                        .storage_ndim = info.ndim,
                                        .dtype = info.dtype,
                                        .tensor = tensor.name};
        memcpy(piece.storage_shape, info.shape, sizeof info.shape);
        if (runs[i].stride == 1 || runs[i].count == 1)
          push_rows(&pieces, piece, &tensor, runs[i].start, runs[i].local_start, runs[i].count);
        else
          for (int64_t k = 0; k < runs[i].count; k++)
            push_rows(&pieces, piece, &tensor, runs[i].start + k * runs[i].stride, runs[i].local_start + k,
                      1);
      }
      free(runs);
    }
  }
  treadle_layout *layout;
  treadle_status status =
      treadle_layout_from_pieces(model, like->ranks, pieces.items, pieces.count, &layout);
  if (status != TREADLE_OK) fail_msg("pieces of %s: %s", like->text, treadle_error_message());
  treadle_array_release(&pieces);
  treadle_arena_release(&arena);
  return layout;
}

/* ---- Sides ---- */

static void side_release(pair_side *side) {
  treadle_layout_destroy(side->layout);
  oracle_layout_free(side->oracle);
  side->layout = NULL;
  side->oracle = NULL;
}

/* Draws until legal; library and oracle must agree. */
static bool draw_side(pair *p, treadle_random *random, pair_side *side, bool mapped) {
  char why[200];
  treadle_random of_place = {random->state + 3}; /* of its own, so that all else of a seed stays as it is */
  for (int tries = 0; tries < 30; tries++) {
    bool again =
        tries > 0 && p->model->block[0] && draw_chance(random, 75); /* engines refuse most cuts of blocks */
    snprintf(side->set, sizeof side->set, "%s", again ? side->like : draw_kind(random, p));
    strcpy(side->like, side->set);
    draw_layout(random, p->oracle, side->set, p->ranks, side->text);
    bool counted = strcmp(side->set, "distopt") == 0; /* its buckets have no names in the oracle */
    side->given = draw_chance(random, 5) && !strstr(side->text, "dtype=") && !strstr(side->text, ",on=") &&
                  !strstr(side->text, ":on=") && !counted && !p->model->block[0];
    treadle_status status = treadle_layout_create(p->model, side->text, p->ranks, NULL, &side->layout);
    side->f = 1;
    if (status == TREADLE_OK && mapped && strcmp(side->set, "vllm") == 0 && draw_chance(random, 40)) {
      side->f = draw_divisor(random, side->layout->owners.count / side->layout->tp);
      side->layout->order = (treadle_rank_order){side->layout->tp, side->f};
    }
    side->oracle = oracle_layout_new(p->oracle, side->text, p->ranks, side->f, why);
    bool excused = status != TREADLE_OK && side->oracle && agree_excused(treadle_error_message());
    if ((status == TREADLE_OK) != (side->oracle != NULL) && !excused)
      fail_msg("seed %" PRIu64 " %s on %" PRId64 " ranks: '%s': library: %s; oracle: %s", p->seed,
               p->config, p->ranks, side->text, status == TREADLE_OK ? "accepted" : treadle_error_message(),
               side->oracle ? "accepted" : why);
    if (status == TREADLE_OK) {
      agree_trim(side->layout, side->oracle);
      if (side->given) {
        side->layout->order.f = 1;
        treadle_layout *given = give(p->model, side->layout, side->f);
        treadle_layout_destroy(side->layout);
        side->layout = given;
        strcpy(side->set, "pieces");
      } else if (!p->model->block[0] && draw_chance(&of_place, 12)) {
        side_release(side);
        place_side(p, &of_place, side);
      }
      return true;
    }
    assert_int_equal(status, TREADLE_REFUSED);
    side_release(side);
  }
  return false;
}

/* Does any rank have to pull something? */
static bool moves(const pair *p) {
  for (int64_t r = 0; r < p->ranks; r++) {
    int64_t bytes;
    assert_ok(treadle_layout_inbound(p->from.layout, p->to.layout, r, NULL, &bytes));
    if (bytes > 0) return true;
  }
  return false;
}

/* Pairs of an fp8 model that have no blocks on either side say nothing that others do not. */
static bool has_blocks(const pair *p) {
  return p->model->block[0] == 0 || p->from.layout->fp8 || p->to.layout->fp8;
}

void pair_match(pair *p) {
  int32_t *oracle = agree_tensors(p->model, p->oracle);
  p->tensors = calloc((size_t)p->oracle->tensor_count, sizeof *p->tensors);
  assert_true(oracle && p->tensors);
  for (int32_t i = 0; i < p->oracle->tensor_count; i++) p->tensors[i] = -1;
  for (int32_t e = 0; e < p->model->entry_count; e++)
    if (oracle[e] >= 0) p->tensors[oracle[e]] = p->model->entries[e].tensor;
  for (int32_t i = 0; i < p->oracle->tensor_count; i++)
    if (p->tensors[i] < 0) fail_msg("%s: the library has no %s", p->config, p->oracle->tensors[i].name);
  free(oracle);
}

/* ---- Models ---- */

typedef struct keeping { /* the models of the last pair */
  int count;
  char config[DRAW_CONFIG];
  json_t *json;
  treadle_model *model;
  oracle_model *oracle;
  int32_t *tensors;
} keeping;

static keeping kept;

static void end_models(json_t *json, treadle_model *model, oracle_model *oracle, int32_t *tensors) {
  treadle_model_close(model);
  oracle_model_free(oracle);
  free(tensors);
  json_decref(json);
}

static void make_models(pair *p) {
  char why[200];
  keeping last = kept;
  kept.count = 0;
  if (last.count && strcmp(last.config, p->config) == 0) {
    p->json = last.json;
    p->model = last.model;
    p->oracle = last.oracle;
    p->tensors = last.tensors;
    return;
  }
  if (last.count) end_models(last.json, last.model, last.oracle, last.tensors);
  p->json = json_loads(p->config, 0, NULL);
  assert_non_null(p->json);
  if (treadle_model_from_config("config", p->json, NULL, &p->model) != TREADLE_OK)
    fail_msg("seed %" PRIu64 ": %s: %s", p->seed, p->config, treadle_error_message());
  p->oracle = oracle_model_new(p->json, why);
  assert_non_null(p->oracle);
  pair_match(p);
}

/* ---- Pairs ---- */

/* Pairs of one model have following seeds: reading the families costs as much as playing a pair. */
enum { SEEDS_OF_A_MODEL = 4 };

void pair_make(pair *p, uint64_t seed, int64_t max_elems) {
  treadle_random random = {seed * 7919 + 17}, of_model = {seed / SEEDS_OF_A_MODEL * 104729 + 5};
  int families = 0;
  while (draw_families[families]) families++;
  memset(p, 0, sizeof *p);
  p->seed = seed;
  for (int tries = 0;; tries++) {
    if (tries % 10 == 0) {
      pair_release(p);
      p->seed = seed;
      draw_config(&of_model, (int)treadle_random_below(&of_model, families), max_elems, p->config);
      make_models(p);
    }
    p->ranks = treadle_random_between(&random, 1, 16);
    if (draw_side(p, &random, &p->from, false) && draw_side(p, &random, &p->to, true) &&
        (has_blocks(p) || draw_chance(&random, 20)) && (moves(p) || draw_chance(&random, 20)))
      return;
    side_release(&p->from);
    side_release(&p->to);
  }
}

int64_t pair_cap_min(const pair *p, int64_t page_bytes) {
  int64_t largest = 1, cap_min;
  for (int64_t rank = 0; rank < p->ranks; rank++) {
    assert_ok(one_rank_cap_min(p->from.layout, p->to.layout, rank, page_bytes, &cap_min));
    if (cap_min > largest) largest = cap_min;
  }
  return largest;
}

void pair_release(pair *p) {
  side_release(&p->from);
  side_release(&p->to);
  treadle_nodes_release(&p->nodes);
  if (p->model && kept.count == 0) {
    /* The next pair may want them. */
    kept = (keeping){
        .count = 1, .json = p->json, .model = p->model, .oracle = p->oracle, .tensors = p->tensors};
    strcpy(kept.config, p->config);
  } else if (p->model) {
    end_models(p->json, p->model, p->oracle, p->tensors);
  }
  memset(p, 0, sizeof *p);
}

const char *pair_describe(const pair *p) {
  static char text[4096];
  int length = snprintf(text, sizeof text,
                        "seed %" PRIu64 ": %s on %" PRId64 " ranks: '%s'%s to '%s'%s strided:%" PRId64,
                        p->seed, p->config, p->ranks, p->from.text, p->from.given ? " given" : "",
                        p->to.text, p->to.given ? " given" : "", p->to.f);
  for (int64_t r = 0; r < p->nodes.ranks && length < 4000; r++)
    length +=
        snprintf(text + length, sizeof text - (size_t)length, "%s%d", r ? "," : " nodes ", p->nodes.of[r]);
  return text;
}
