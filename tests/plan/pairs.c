/* Random pairs: models of odd sizes, layouts of every kind. */
#include "plan/pairs.h"

#include "test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t pick(treadle_random *random, const int64_t *values, int count) {
  return values[treadle_random_below(random, count)];
}

static int64_t divisor(treadle_random *random, int64_t n) { /* a random divisor */
  int64_t d;
  do d = treadle_random_between(random, 1, n);
  while (n % d != 0);
  return d;
}

static bool chance(treadle_random *random, int percent) {
  return treadle_random_below(random, 100) < percent;
}

/* Sizes that most of the tensor parallel sizes up to 12 divide, in odd widths. */
static void draw_config(treadle_random *random, int64_t max_elems, char *text, size_t capacity) {
  static const char *const types[] = {"llama", "qwen2", "qwen3"};
  static const char *const dtypes[] = {"float32", "bfloat16", "float16"};
  static const int64_t heads[] = {1, 2, 3, 4, 6, 8, 12, 24}, inner[] = {12, 24, 36, 8, 60};
  for (;;) {
    int64_t nh = pick(random, heads, 8), ng = divisor(random, nh),
            hd = treadle_random_between(random, 1, 6);
    int64_t hidden = treadle_random_between(random, 3, 40), width = pick(random, inner, 5);
    int64_t layers = treadle_random_between(random, 1, 6), vocab = treadle_random_between(random, 5, 300);
    int64_t elems = layers * hidden * ((nh * 2 + ng * 2) * hd + 3 * width) + 2 * vocab * hidden;
    if (elems > max_elems) continue;
    snprintf(text, capacity,
             "{\"model_type\": \"%s\", \"vocab_size\": %" PRId64 ", \"hidden_size\": %" PRId64
             ", \"num_hidden_layers\": %" PRId64 ", \"num_attention_heads\": %" PRId64
             ", \"num_key_value_heads\": %" PRId64 ", \"head_dim\": %" PRId64
             ", \"intermediate_size\": %" PRId64
             ", \"tie_word_embeddings\": %s, \"attention_bias\": %s, \"torch_dtype\": \"%s\"}",
             types[treadle_random_below(random, 3)], vocab, hidden, layers, nh, ng, hd, width,
             chance(random, 40) ? "true" : "false", chance(random, 20) ? "true" : "false",
             dtypes[treadle_random_below(random, 3)]);
    return;
  }
}

static void add(char *text, const char *key, int64_t value) {
  size_t used = strlen(text);
  if (value != 1)
    snprintf(text + used, 512 - used, "%s%s=%" PRId64, strchr(text, ':') ? "," : ":", key, value);
}

static void add_text(char *text, const char *key, const char *value) {
  size_t used = strlen(text);
  snprintf(text + used, 512 - used, "%s%s=%s", strchr(text, ':') ? "," : ":", key, value);
}

static int64_t draw_pp(treadle_random *random, int64_t ranks, int64_t layers, bool equal) {
  for (int i = 0; i < 20; i++) {
    int64_t pp = divisor(random, ranks);
    if (pp <= layers && (!equal || layers % pp == 0)) return pp;
  }
  return 1;
}

/* A layout string: every stage with some layers, E first, L last. */
static void add_layout_string(treadle_random *random, char *text, int64_t layers, int64_t stages) {
  char string[256] = "E", one[8];
  int64_t left = layers;
  for (int64_t s = 0; s < stages; s++) {
    int64_t count = s == stages - 1 ? left : treadle_random_between(random, 0, left);
    left -= count;
    if (count > 0) {
      snprintf(one, sizeof one, count > 1 ? "t*%d" : "t", (int)count);
      strcat(string, one);
    }
    strcat(string, s == stages - 1 ? "L" : "|");
  }
  add_text(text, "layout", string);
}

static void draw_megatron(treadle_random *random, const oracle_model *model, int64_t ranks, char *text) {
  strcpy(text, "megatron");
  int64_t pp = draw_pp(random, ranks, model->L + 2, false), tp = divisor(random, ranks / pp);
  int64_t cp = chance(random, 20) ? divisor(random, ranks / pp / tp) : 1,
          way = treadle_random_below(random, 6);
  add(text, "tp", tp);
  add(text, "pp", pp);
  add(text, "cp", cp);
  if (way == 0 && pp > 1) {
    int64_t vpp = treadle_random_between(random, 1, 2);
    add_layout_string(random, text, model->L, pp * vpp);
  } else if (way == 1 && pp > 1) {
    add_text(text, "embedding_split", "on");
    if (chance(random, 50)) add_text(text, "loss_split", "on");
  } else if (way == 2 && pp > 1) {
    char number[24];
    snprintf(number, sizeof number, "%" PRId64, treadle_random_between(random, 1, model->L));
    add_text(text, chance(random, 50) ? "first" : "last", number);
  } else if (way == 3 && pp > 1 && model->L % (pp * 2) == 0) {
    add(text, "vpp", 2);
  }
  if (chance(random, 25)) add_text(text, "order", chance(random, 50) ? "tp-cp-ep-pp-dp" : "cp-tp-dp-pp");
  if (chance(random, 25))
    add(text, "vocab_divisible_by", treadle_random_between(random, 1, 40));
  else if (chance(random, 20))
    add(text, "padded_vocab_size", (model->V + tp - 1) / tp * tp + tp * treadle_random_below(random, 3));
  if (chance(random, 25)) add_text(text, "spec", "local");
}

static void draw_engine(treadle_random *random, const oracle_model *model, int64_t ranks, bool sglang,
                        char *text) {
  strcpy(text, sglang ? "sglang" : "vllm");
  int64_t pp = draw_pp(random, ranks, sglang ? model->L : model->L + 2, false),
          tp = divisor(random, ranks / pp);
  add(text, "tp", tp);
  add(text, "pp", pp);
  if (sglang) {
    int64_t attn_dp = chance(random, 40) ? divisor(random, tp) : 1;
    add(text, "attn_dp", attn_dp);
    if (chance(random, 20)) add(text, "attn_cp", divisor(random, tp / attn_dp));
  } else {
    int64_t pcp = chance(random, 20) ? divisor(random, ranks / pp / tp) : 1;
    add(text, "pcp", pcp);
    if (chance(random, 40)) add(text, "dp", divisor(random, ranks / pp / tp / pcp));
  }
  if (chance(random, 20) && pp > 1 && pp <= 4) {
    char partition[64] = "\"", one[24];
    int64_t left = model->L;
    for (int64_t p = 0; p < pp; p++) {
      int64_t count = p == pp - 1 ? left : treadle_random_between(random, 0, left);
      left -= count;
      snprintf(one, sizeof one, "%s%" PRId64, p ? "," : "", count);
      strcat(partition, one);
    }
    strcat(partition, "\"");
    add_text(text, "partition", partition);
  }
}

static void draw_text(treadle_random *random, const oracle_model *model, int64_t ranks, pair_side *side) {
  static const char *const dtypes[] = {"fp32", "bf16", "fp16"};
  int64_t way = treadle_random_below(random, 20);
  if (way < 2) {
    strcpy(side->text, "hf");
    if (way == 1) {
      char root[24];
      snprintf(root, sizeof root, "%" PRId64, treadle_random_below(random, ranks));
      add_text(side->text, "root", root);
    }
  } else if (way < 9) {
    draw_megatron(random, model, ranks, side->text);
  } else {
    draw_engine(random, model, ranks, way >= 15, side->text);
  }
  side->given = chance(random, 5);
  if (chance(random, 20) && !side->given)
    add_text(side->text, "dtype", dtypes[treadle_random_below(random, 3)]);
  snprintf(side->kind, sizeof side->kind, "%.*s", (int)strcspn(side->text, ":"), side->text);
}

/* ---- The same layout, piece by piece ---- */

typedef TREADLE_ARRAY(treadle_given_piece) given_pieces;

/* A run as boxes of rows: [first part row], whole rows, [last part row]; joined with the box above it where both
 * are the same columns of following rows. */
static void push_rows(given_pieces *pieces, treadle_given_piece piece, const treadle_tensor_info *tensor,
                      int64_t start, int64_t local, int64_t count) {
  int64_t columns = tensor->ndim == 2 ? tensor->shape[1] : 1;
  while (count > 0) {
    int64_t column = start % columns, rows = column == 0 && count >= columns ? count / columns : 1;
    int64_t width =
        column == 0 && count >= columns ? columns : (count < columns - column ? count : columns - column);
    piece.start[0] = start / columns;
    piece.size[0] = rows;
    piece.offset = local;
    piece.stride[0] = width;
    if (tensor->ndim == 2) {
      piece.start[1] = column;
      piece.size[1] = width;
      piece.stride[1] = 1;
    }
    treadle_given_piece *above = pieces->count ? &pieces->items[pieces->count - 1] : NULL;
    if (above && above->storage == piece.storage && above->tensor == piece.tensor && rows == 1 &&
        above->start[1] == piece.start[1] && above->size[1] == piece.size[1] &&
        above->start[0] + above->size[0] == piece.start[0] &&
        above->offset + above->size[0] * width == local)
      above->size[0]++;
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
    treadle_rank_order order = {like->tp, f};
    int64_t rank = treadle_order_physical(&order, r); /* given layouts are in physical ranks */
    for (int32_t s = 0; s < treadle_layout_storage_count(like, r); s++) {
      treadle_storage_info info;
      treadle_run *runs;
      size_t count;
      assert_int_equal(treadle_layout_storage(like, r, s, &info), TREADLE_OK);
      assert_int_equal(treadle_layout_runs(like, r, s, &runs, &count), TREADLE_OK);
      const char *name = treadle_arena_format(&arena, "%d.%s", info.chunk, info.name);
      for (size_t i = 0; i < count; i++) {
        if (runs[i].tensor < 0) continue;
        treadle_tensor_info tensor;
        assert_int_equal(treadle_model_tensor(model, runs[i].tensor, &tensor), TREADLE_OK);
        treadle_given_piece piece = {.rank = rank,
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

/* ---- Pairs ---- */

static void side_release(pair_side *side) {
  treadle_layout_destroy(side->layout);
  oracle_layout_free(side->oracle);
  side->layout = NULL;
  side->oracle = NULL;
}

/* Draws until legal; library and oracle must agree. */
static bool draw_side(pair *p, treadle_random *random, pair_side *side, bool mapped) {
  char why[200];
  for (int tries = 0; tries < 30; tries++) {
    draw_text(random, p->oracle, p->ranks, side);
    treadle_status status = treadle_layout_create(p->model, side->text, p->ranks, &side->layout);
    side->f = 1;
    if (status == TREADLE_OK && mapped && strcmp(side->kind, "vllm") == 0 && chance(random, 40)) {
      side->f = divisor(random, p->ranks / side->layout->tp);
      side->layout->order = (treadle_rank_order){side->layout->tp, side->f};
    }
    side->oracle = oracle_layout_new(p->oracle, side->text, p->ranks, side->f, why);
    if ((status == TREADLE_OK) != (side->oracle != NULL))
      fail_msg("seed %" PRIu64 " %s on %" PRId64 " ranks: '%s': library: %s; oracle: %s", p->seed,
               p->config, p->ranks, side->text, status == TREADLE_OK ? "accepted" : treadle_error_message(),
               side->oracle ? "accepted" : why);
    if (status == TREADLE_OK) {
      if (side->given) {
        side->layout->order.f = 1;
        treadle_layout *given = give(p->model, side->layout, side->f);
        treadle_layout_destroy(side->layout);
        side->layout = given;
        strcpy(side->kind, "pieces");
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
    assert_ok(treadle_layout_inbound(p->from.layout, p->to.layout, r, &bytes));
    if (bytes > 0) return true;
  }
  return false;
}

void pair_make(pair *p, uint64_t seed, int64_t max_elems) {
  char why[200];
  memset(p, 0, sizeof *p);
  p->seed = seed;
  treadle_random random = {seed * 7919 + 17};
  for (;;) {
    draw_config(&random, max_elems, p->config, sizeof p->config);
    p->ranks = treadle_random_between(&random, 1, 12);
    p->json = json_loads(p->config, 0, NULL);
    assert_non_null(p->json);
    if (treadle_model_from_config("config", p->json, NULL, &p->model) != TREADLE_OK)
      fail_msg("seed %" PRIu64 ": %s: %s", seed, p->config, treadle_error_message());
    p->oracle = oracle_model_new(p->json, why);
    assert_non_null(p->oracle);
    if (draw_side(p, &random, &p->from, false) && draw_side(p, &random, &p->to, true) &&
        (moves(p) || chance(&random, 20)))
      return;
    pair_release(p);
    p->seed = seed;
  }
}

void pair_release(pair *p) {
  side_release(&p->from);
  side_release(&p->to);
  treadle_model_close(p->model);
  oracle_model_free(p->oracle);
  json_decref(p->json);
  memset(p, 0, sizeof *p);
}

const char *pair_describe(const pair *p) {
  static char text[2048];
  snprintf(text, sizeof text,
           "seed %" PRIu64 ": %s on %" PRId64 " ranks: '%s'%s to '%s'%s strided:%" PRId64, p->seed,
           p->config, p->ranks, p->from.text, p->from.given ? " given" : "", p->to.text,
           p->to.given ? " given" : "", p->to.f);
  return text;
}
