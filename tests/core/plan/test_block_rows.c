/* Block rows: pairs of layouts of which one side or both hold fp8 blocks, played in plain memory with shared pages, against
 * plain loops that quantise whole tensors. ctest: optimise timeout=600 */
#include "plan/block_rows.h"

#include "base/dtype.h"
#include "base/hash.h"
#include "base/larger.h"
#include "base/random.h"
#include "memory/quantise.h"
#include "plan/one_rank.h"
#include "plan/plan.h"
#include "test.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, SHIFT = 12 };

/* ---- Models ---- */

static const char deepseek[] =
    "{'model_type': 'deepseek_v3', 'vocab_size': 96, 'hidden_size': 72, 'num_hidden_layers': 2, "
    "'num_attention_heads': 4, 'q_lora_rank': 32, 'kv_lora_rank': 32, 'qk_nope_head_dim': 16, "
    "'qk_rope_head_dim': 8, "
    "'v_head_dim': 16, 'intermediate_size': 96, 'moe_intermediate_size': 32, 'n_routed_experts': 8, "
    "'n_shared_experts': 1, 'first_k_dense_replace': 1, 'n_group': 2, 'num_nextn_predict_layers': 1, "
    "'torch_dtype': 'bfloat16', 'quantization_config': {'quant_method': 'fp8', 'weight_block_size': [%d, "
    "%d]}}";
static const char qwen[] =
    "{'model_type': 'qwen3_moe', 'vocab_size': 80, 'hidden_size': 40, 'num_hidden_layers': 3, "
    "'num_attention_heads': 8, 'num_key_value_heads': 4, 'head_dim': 24, 'moe_intermediate_size': 48, "
    "'num_experts': 4, 'intermediate_size': 64, 'decoder_sparse_step': 1, "
    "'torch_dtype': 'bfloat16', 'quantization_config': {'quant_method': 'fp8', 'weight_block_size': [%d, "
    "%d]}}";

/* 96 rows of an expert, so 48 or 24 on a shard; all else fits blocks of 32. */
static const char finer[] =
    "{'model_type': 'qwen3_moe', 'vocab_size': 80, 'hidden_size': 64, 'num_hidden_layers': 2, "
    "'num_attention_heads': 8, 'num_key_value_heads': 4, 'head_dim': 32, 'moe_intermediate_size': 96, "
    "'num_experts': 4, 'intermediate_size': 128, 'decoder_sparse_step': 1, "
    "'torch_dtype': 'bfloat16', 'quantization_config': {'quant_method': 'fp8', 'weight_block_size': [%d, "
    "%d]}}";

static treadle_model *make_model(const char *config, int high, int wide) {
  char text[2000];
  treadle_model *model;
  snprintf(text, sizeof text, config, high, wide);
  for (char *c = text; *c; c++)
    if (*c == '\'') *c = '"';
  json_t *json = json_loads(text, 0, NULL);
  assert_non_null(json);
  assert_ok(treadle_model_from_config("config", json, NULL, &model));
  json_decref(json);
  return model;
}

/* ---- The truth: whole tensors, quantised by plain loops ---- */

typedef struct truth {
  float *values, *dequantised, *scales; /* of weights; scales [experts, down, across] */
  uint8_t *codes;
} truth;

/* Of one element of tensor t as plain numbers in [experts, rows, columns]. */
static float value_of(int32_t tensor, int64_t index) {
  uint64_t hash = treadle_mix64((uint64_t)tensor * 1000003 + (uint64_t)index);
  float value = (float)((int64_t)(hash >> 40) - (1 << 23)) / (float)(1 << (20 + hash % 7));
  if (hash % 97 == 0) value = 0;
  return treadle_bf16_to_float(treadle_bf16_of_float(value));
}

static truth *make_truth(const treadle_model *model) {
  truth *all = calloc((size_t)model->tensor_count, sizeof *all);
  assert_non_null(all);
  for (int32_t t = 0; t < model->tensor_count; t++) {
    const treadle_tensor *tensor = &model->tensors[t];
    truth *of = &all[t];
    if (tensor->scale_of >= 0) continue;
    of->values = calloc((size_t)tensor->elems, sizeof(float));
    assert_non_null(of->values);
    for (int64_t i = 0; i < tensor->elems; i++) of->values[i] = value_of(t, i);
    if (tensor->scale < 0) continue;
    int first = tensor->ndim - 2;
    int64_t experts = first ? tensor->shape[0] : 1, rows = tensor->shape[first],
            columns = tensor->shape[first + 1];
    int64_t high = model->block[0], wide = model->block[1];
    int64_t down = (rows + high - 1) / high, across = (columns + wide - 1) / wide;
    assert_int_equal(model->tensors[tensor->scale].elems, experts * down * across);
    of->codes = calloc((size_t)tensor->elems, 1);
    of->dequantised = calloc((size_t)tensor->elems, sizeof(float));
    of->scales = calloc((size_t)(experts * down * across), sizeof(float));
    assert_true(of->codes && of->dequantised && of->scales);
    for (int64_t e = 0; e < experts; e++)
      for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++) {
          float *scale = &of->scales[(e * down + i / high) * across + k / wide];
          *scale = fmaxf(*scale, fabsf(of->values[(e * rows + i) * columns + k]));
        }
    for (int64_t i = 0; i < experts * down * across; i++)
      of->scales[i] = of->scales[i] > 0 ? of->scales[i] / 448 : 1;
    for (int64_t e = 0; e < experts; e++)
      for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++) {
          int64_t at = (e * rows + i) * columns + k;
          float scale = of->scales[(e * down + i / high) * across + k / wide], x = of->values[at] / scale;
          of->codes[at] = treadle_fp8_of_float(fminf(fmaxf(x, -448), 448));
          of->dequantised[at] = treadle_fp8_to_float(of->codes[at]) * scale;
        }
  }
  return all;
}

static void free_truth(truth *all, const treadle_model *model) {
  for (int32_t t = 0; t < model->tensor_count; t++) {
    free(all[t].values);
    free(all[t].codes);
    free(all[t].dequantised);
    free(all[t].scales);
  }
  free(all);
}

/* ---- The player ---- */

typedef struct rank_state {
  treadle_plan *plan;
  uint8_t *pages;
  uint8_t *written; /* by byte of the destination window */
  int32_t done;
} rank_state;

typedef struct play {
  const treadle_model *model;
  const treadle_layout *layouts[2];
  const truth *truth;
  rank_state *ranks;
  int64_t count;
  bool back, through; /* through: values were quantised before */
  treadle_random random;
  char text[300];
} play;

static treadle_paged view_of(const play *p, int64_t rank, bool of_to) {
  const rank_state *state = &p->ranks[rank];
  treadle_paged view = treadle_paged_of(state->pages);
  view.table = of_to ? state->plan->to_page : state->plan->from_page;
  view.page_shift = SHIFT;
  return view;
}

static const treadle_direction *direction_of(const play *p, int64_t rank) {
  return p->back ? &p->ranks[rank].plan->back : &p->ranks[rank].plan->forward;
}

/* The bits that an element of a piece must have; `fp8` says whether the layout holds fp8. */
static void expected(const play *p, const treadle_piece *piece, int64_t index, bool fp8, void *bits) {
  const treadle_tensor *tensor = &p->model->tensors[piece->tensor];
  const truth *of = &p->truth[tensor->scale_of >= 0 ? tensor->scale_of : piece->tensor];
  if (tensor->scale_of >= 0) {
    memcpy(bits, &of->scales[index], sizeof(float));
  } else if (piece->dtype == TREADLE_FP8_E4M3) {
    memcpy(bits, &of->codes[index], 1);
  } else {
    float value = of->dequantised && (fp8 || p->through) ? of->dequantised[index] : of->values[index];
    treadle_dtype_convert_add(bits, piece->dtype, &value, TREADLE_FP32, piece->add, 1);
  }
}

/* Stores or compares all elements of a rank's window. */
static void each_element(play *p, int64_t rank, bool of_to, bool compare) {
  treadle_pieces pieces = {0};
  const treadle_layout *layout = p->layouts[of_to];
  treadle_paged view = view_of(p, rank, of_to);
  assert_ok(treadle_layout_pieces(layout, rank, &pieces));
  for (size_t i = 0; i < pieces.count; i++) {
    const treadle_piece *piece = &pieces.items[i];
    int64_t at[TREADLE_MAX_AXES] = {0}, size = (int64_t)treadle_dtype_bytes(piece->dtype);
    for (int a = 0; a >= 0;) {
      int64_t offset = piece->offset, index = 0;
      uint64_t bits = 0, is = 0;
      for (a = 0; a < TREADLE_MAX_AXES; a++) offset += at[a] * piece->stride[a];
      if (piece->tensor >= 0) {
        const treadle_tensor *tensor = &p->model->tensors[piece->tensor];
        for (a = 0; a < tensor->naxes; a++) index = index * tensor->axis[a] + piece->box.start[a] + at[a];
        expected(p, piece, index, layout->fp8, &bits);
      }
      if (!compare) {
        treadle_paged_write(&view, offset, &bits, size);
      } else {
        treadle_paged_read(&view, offset, &is, size);
        if (is != bits)
          fail_msg("%s: %s: rank %" PRId64 ": %s element %" PRId64 " is %" PRIx64 " for %" PRIx64, p->text,
                   p->back ? "back" : "forward", rank,
                   piece->tensor < 0 ? "fill" : p->model->tensors[piece->tensor].name, index, is, bits);
      }
      for (a = TREADLE_MAX_AXES - 1; a >= 0 && ++at[a] == piece->box.size[a]; a--) at[a] = 0;
    }
  }
  treadle_array_release(&pieces);
}

static void play_block_row(play *p, int64_t rank, const treadle_block_row *run, int32_t position) {
  const treadle_direction *direction = direction_of(p, rank);
  const treadle_block_row one = treadle_block_row_at(run, position), *block_row = &one;
  const treadle_block_row_part *parts = &direction->block_row_parts.items[block_row->part_first];
  int64_t size = (int64_t)treadle_dtype_bytes((treadle_dtype)block_row->value_dtype), column = 0;
  assert_true(direction->scratch_bytes >= block_row->rows * block_row->columns * size);
  char *values = calloc((size_t)(block_row->rows * block_row->columns), (size_t)size);
  treadle_paged scratch = treadle_paged_of(values), own = view_of(p, rank, !p->back);
  treadle_paged from = block_row->twin ? own : view_of(p, parts[0].op.source, p->back);
  for (int64_t i = 0; i < block_row->parts && block_row->quantises; i++) {
    from = view_of(p, parts[i].op.source, p->back);
    const treadle_op op = treadle_block_row_part_at(run, &parts[i], position);
    treadle_copy_op(&op, &from, &scratch, TREADLE_MOVER_PLAIN);
  }
  for (int64_t block = 0; block < treadle_block_row_blocks(block_row); block++) {
    int64_t columns = (block + 1) * block_row->block_columns - block_row->skip - column;
    if (columns > block_row->columns - column) columns = block_row->columns - column;
    uint8_t codes[128 * 128];
    float scale;
    treadle_matrix in = treadle_matrix_of(codes, columns, 1),
                   out = treadle_matrix_of(values + column * size, block_row->columns * size, size);
    if (block_row->quantises)
      treadle_quantise_block(in, &scale, out, (treadle_dtype)block_row->value_dtype, block_row->rows,
                             columns, TREADLE_MOVER_PLAIN);
    int64_t first = treadle_larger(column, block_row->code_column), end = column + columns;
    if (end > block_row->code_column + block_row->code_columns)
      end = block_row->code_column + block_row->code_columns;
    for (int64_t row = block_row->code_row; row < block_row->code_row + block_row->code_rows; row++) {
      int64_t at = block_row->codes + (row - block_row->code_row) * block_row->code_stride + first -
                   block_row->code_column;
      if (block_row->quantises)
        treadle_paged_write(&own, at, codes + row * columns + first - column, end - first);
      else
        treadle_paged_read(&from, at, codes + row * columns + first - column, end - first);
    }
    if (block_row->quantises) {
      treadle_paged_write(&own, block_row->scales + block * block_row->scale_stride, &scale, sizeof scale);
    } else {
      treadle_paged_read(&from, block_row->scales + block * block_row->scale_stride, &scale, sizeof scale);
      treadle_dequantise_block(out, (treadle_dtype)block_row->value_dtype, in, scale, block_row->rows,
                               columns, TREADLE_MOVER_PLAIN);
    }
    column += columns;
  }
  assert_int_equal(column, block_row->columns);
  for (int64_t i = 0; i < block_row->parts && !block_row->quantises; i++) {
    const treadle_op op = treadle_block_row_part_at(run, &parts[i], position);
    treadle_copy_op(&op, &scratch, &own, TREADLE_MOVER_PLAIN);
  }
  free(values);
}

/* The block rows of a wave that read the destination window, or the others. */
static void play_block_rows(play *p, int64_t rank, int32_t wave, bool twin) {
  const treadle_direction *d = direction_of(p, rank);
  for (int32_t i = d->block_row_first[wave]; i < d->block_row_first[wave + 1]; i++)
    for (int32_t k = 0; k < d->block_rows.items[i].count && d->block_rows.items[i].twin == twin; k++)
      play_block_row(p, rank, &d->block_rows.items[i], k);
}

static int32_t slowest(const play *p) {
  int32_t done = p->ranks[0].done;
  for (int64_t r = 1; r < p->count; r++)
    if (p->ranks[r].done < done) done = p->ranks[r].done;
  return done;
}

static void play_waves(play *p) {
  int32_t waves = p->ranks[0].plan->waves;
  for (int64_t r = 0; r < p->count; r++) p->ranks[r].done = -1;
  while (slowest(p) < waves - 1) {
    int64_t r = treadle_random_below(&p->random, p->count);
    int32_t all = slowest(p);
    while (p->ranks[r].done == waves - 1 || direction_of(p, r)->need[p->ranks[r].done + 1] > all)
      r = (r + 1) % p->count;
    const treadle_direction *d = direction_of(p, r);
    int32_t wave = ++p->ranks[r].done;
    play_block_rows(p, r, wave, false);
    for (int32_t i = d->wave_first[wave]; i < d->wave_first[wave + 1]; i++) {
      const treadle_op *op = &d->ops.items[i];
      treadle_paged to = view_of(p, r, !p->back);
      treadle_paged from = op->twin ? to : view_of(p, op->source < 0 ? r : op->source, p->back);
      treadle_copy_op(op, &from, &to, TREADLE_MOVER_PLAIN);
    }
    play_block_rows(p, r, wave, true);
  }
}

/* Plays a pair there, and back from what it gave. Returns how many block rows there were. */
static size_t play_pair(const treadle_model *model, const truth *known, const treadle_layout *from,
                        const treadle_layout *to, uint64_t seed) {
  play p = {.model = model,
            .layouts = {from, to},
            .truth = known,
            .count = from->ranks,
            .through = from->fp8,
            .random = {seed}};
  size_t block_rows = 0;
  int64_t cap = 0, own;
  snprintf(p.text, sizeof p.text, "%s to %s, %" PRId64 " ranks", from->text, to->text, p.count);
  for (int64_t r = 0; r < p.count; r++) {
    if (one_rank_cap_min(from, to, r, PAGE, &own) != TREADLE_OK)
      fail_msg("%s: %s", p.text, treadle_error_message());
    cap = treadle_larger(cap, own);
  }
  p.ranks = calloc((size_t)(uint32_t)p.count, sizeof *p.ranks);
  for (int64_t r = 0; r < p.count; r++) {
    rank_state *state = &p.ranks[r];
    if (one_rank_plan(from, to, r, PAGE, seed % 3 ? TREADLE_MAX_WAVES : 40, cap, &state->plan) !=
        TREADLE_OK)
      fail_msg("%s: %s", p.text, treadle_error_message());
    const treadle_plan *plan = state->plan;
    assert_int_equal(plan->lossless, from->fp8 == to->fp8);
    if (seed % 3 &&
        plan->physical_pages * PAGE > treadle_larger(plan->from_pages, plan->to_pages) * PAGE + cap)
      fail_msg("%s: the peak is over its bound", p.text);
    if (plan->forward.moved_bytes != plan->forward.lower_bound_bytes)
      fail_msg("%s: rank %" PRId64 " moves %" PRId64 " bytes, bound %" PRId64, p.text, r,
               plan->forward.moved_bytes, plan->forward.lower_bound_bytes);
    if (plan->back.moved_bytes != plan->back.lower_bound_bytes)
      fail_msg("%s: rank %" PRId64 " moves %" PRId64 " bytes back, bound %" PRId64, p.text, r,
               plan->back.moved_bytes, plan->back.lower_bound_bytes);
    block_rows += plan->forward.block_rows.count + plan->back.block_rows.count;
    state->pages = malloc((size_t)(plan->physical_pages * PAGE + 1));
    memset(state->pages, 0xa5, (size_t)(plan->physical_pages * PAGE));
  }
  for (int64_t r = 0; r < p.count; r++) each_element(&p, r, false, false);
  play_waves(&p);
  for (int64_t r = 0; r < p.count; r++) each_element(&p, r, true, true);
  p.back = p.through =
      true; /* what comes back went through fp8; where neither is made of the other, it did at first */
  if (from->fp8 &&
      !to->fp8) /* codes of dequantised values: those of the truth up to rounding, so start again */
    for (int64_t r = 0; r < p.count; r++) {
      p.through = false;
      each_element(&p, r, true, false);
    }
  play_waves(&p);
  for (int64_t r = 0; r < p.count; r++) each_element(&p, r, false, true);
  for (int64_t r = 0; r < p.count; r++) {
    treadle_plan_destroy(p.ranks[r].plan);
    free(p.ranks[r].pages);
  }
  free(p.ranks);
  return block_rows;
}

static int play_all(const char *config, int high, int wide, int64_t ranks, const char *const *texts) {
  treadle_model *model = make_model(config, high, wide);
  truth *known = make_truth(model);
  treadle_layout *layouts[32];
  int count = 0, pairs = 0;
  for (; *texts; texts++) {
    if (treadle_layout_create(model, *texts, ranks, NULL, &layouts[count]) == TREADLE_OK)
      count++;
    else
      print_message("left out: %s\n", treadle_error_message());
  }
  for (int i = 0; i < count; i++)
    for (int k = i % test_step(4); k < count; k += test_step(4)) {
      if (!layouts[i]->fp8 && !layouts[k]->fp8) continue;
      size_t block_rows = play_pair(model, known, layouts[i], layouts[k], (uint64_t)(i * 31 + k + 1));
      pairs += block_rows > 0 || layouts[i]->fp8 == layouts[k]->fp8;
    }
  for (int i = 0; i < count; i++) treadle_layout_destroy(layouts[i]);
  free_truth(known, model);
  treadle_model_close(model);
  return pairs;
}

static void test_deepseek(void **state) {
  (void)state;
  static const char *const texts[] = {"megatron:tp=2,pp=2,ep=2,etp=1",
                                      "megatron:tp=1,ep=4,etp=1",
                                      "megatron:tp=4,etp=2,ep=2",
                                      "megatron:tp=2,ep=2,etp=2",
                                      "vllm:tp=2,dp=2,ep=on,dtype=fp8",
                                      "vllm:tp=2,dtype=fp8",
                                      "vllm:tp=4,dtype=bf16",
                                      "sglang:tp=2,dtype=fp8",
                                      "sglang:tp=4,ep=4,dtype=fp8",
                                      "hf:dtype=fp8",
                                      "hf:root=1,dtype=fp8",
                                      "hf:dtype=bf16",
                                      NULL};
  int pairs = play_all(deepseek, 16, 16, 4, texts);
  pairs += play_all(deepseek, 8, 16, 4, texts);
  print_message("%d pairs\n", pairs);
  assert_true(pairs * test_step(4) > 120);
}

/* Copies of experts, shared experts among them, and sources cut anywhere: flat buffers and chunks. */
static void test_others(void **state) {
  (void)state;
  static const char *const texts[] = {"megatron:tp=2,pp=2,ep=2,etp=1",
                                      "fsdp",
                                      "fsdp2",
                                      "fsdp2:tp=2",
                                      "zero3",
                                      "distopt:tp=2,ep=2,etp=1",
                                      "vllm:tp=2,dp=2,ep=on,redundant=4",
                                      "sglang:tp=2,shared_fusion=on",
                                      "sglang:tp=2,ep=2,redundant=2",
                                      "hf:root=2",
                                      NULL};
  int pairs = play_all(deepseek, 16, 16, 4, texts);
  print_message("%d pairs\n", pairs);
  assert_true(pairs * test_step(4) > 40);
}

static void test_qwen(void **state) {
  (void)state;
  static const char *const texts[] = {"megatron:tp=2,pp=1,ep=2,etp=1",
                                      "megatron:tp=4,etp=1",
                                      "megatron:tp=1,pp=3,ep=2",
                                      "vllm:tp=2,dtype=fp8",
                                      "vllm:tp=2,ep=on,dtype=fp8",
                                      "sglang:tp=2,dtype=fp8",
                                      "hf:dtype=fp8",
                                      "hf:root=0,dtype=fp8",
                                      "hf:root=3,dtype=fp32",
                                      NULL};
  int pairs = play_all(qwen, 16, 16, 4, texts) + play_all(qwen, 8, 8, 6, texts) +
              play_all(qwen, 128, 128, 1, texts);
  print_message("%d pairs\n", pairs);
  assert_true(pairs * test_step(4) > 60);
}

/* vLLM repeats the scales of experts that it cuts inside of blocks, on a finer grid: blocks of 16 cut at 24, with each scale
 * in up to 2 x 2 places; blocks of 32 at 24, in up to 4 x 4; and values in any place. */
static void test_finer_blocks(void **state) {
  (void)state;
  static const char *const texts[] = {"megatron:tp=2,etp=1",
                                      "megatron:tp=2,ep=2,etp=2",
                                      "fsdp2",
                                      "zero3",
                                      "vllm:tp=2,dtype=fp8",
                                      "hf:dtype=fp8",
                                      "hf:dtype=bf16",
                                      NULL};
  static const char *const more[] = {"megatron:tp=4,etp=2,ep=2", "fsdp", "vllm:tp=4,dtype=fp8",
                                     "vllm:tp=2,dp=2,dtype=fp8", NULL};
  int pairs = play_all(qwen, 16, 16, 4, texts) + play_all(finer, 32, 32, 4, texts) +
              play_all(finer, 32, 32, 4, more);
  print_message("%d pairs\n", pairs);
  assert_true(pairs * test_step(4) > 50);
}

/* q, k and v lie in turns in a flat buffer, so that a block has parts in several places with other tensors in between:
 * its scale counts once all the same. */
static void test_scales_count_once(void **state) {
  (void)state;
  static const char config[] =
      "{'model_type': 'qwen2', 'vocab_size': 48, 'hidden_size': 7, 'num_hidden_layers': 3, "
      "'num_attention_heads': 4, 'num_key_value_heads': 2, 'head_dim': 2, 'intermediate_size': 13, "
      "'tie_word_embeddings': false, 'torch_dtype': 'bfloat16', 'quantization_config': {'quant_method': "
      "'fp8', 'weight_block_size': [%d, %d]}}";
  treadle_model *model = make_model(config, 128, 6);
  treadle_layout *from, *to;
  treadle_plan *plan;
  assert_ok(treadle_layout_create(model, "hf:root=2", 15, NULL, &from));
  assert_ok(treadle_layout_create(model, "distopt:pp=3,layout=\"Et*3||L\",bucket_size=945", 15, NULL, &to));
  assert_ok(one_rank_plan(from, to, 1, PAGE, 40, 1 << 20, &plan));
  assert_int_equal(plan->forward.moved_bytes, 665); /* 673 where two blocks count twice */
  assert_int_equal(plan->forward.lower_bound_bytes, 665);
  treadle_plan_destroy(plan);
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_model_close(model);
}

static treadle_status make_once(const treadle_layout *from, const treadle_layout *to) {
  treadle_plan *plan;
  treadle_status status = one_rank_plan(from, to, 1, PAGE, 40, 1 << 20, &plan);
  if (status == TREADLE_OK) treadle_plan_destroy(plan);
  return status;
}

/* ---- Explicit pieces ---- */

typedef enum { SOUND, GAPS, WITHOUT_SCALES, WITHOUT_CODES, MIXED } given_fault;

/* Every entry whole on one rank, that of its tensor, so that blocks are with their scales; but for the fault: a
 * second rank has codes or scales alone. */
static treadle_status give_all(const treadle_model *model, int64_t ranks, given_fault fault,
                               treadle_layout **layout_p) {
  treadle_explicit_piece *pieces = calloc((size_t)model->entry_count + 2, sizeof *pieces);
  size_t count = 0;
  int32_t faulty = -1;
  assert_non_null(pieces);
  for (int32_t t = 0; t < model->tensor_count && faulty < 0; t++)
    if (model->tensors[t].scale >= 0 && !model->tensors[t].by_expert) faulty = t;
  for (int32_t i = 0; i < model->entry_count; i++) {
    const treadle_entry *entry = &model->entries[i];
    const treadle_tensor *t = &model->tensors[entry->tensor];
    int32_t weight = t->scale_of >= 0 ? t->scale_of : entry->tensor;
    int skip = entry->expert >= 0;
    treadle_explicit_piece *p = &pieces[count++];
    *p = (treadle_explicit_piece){.rank = weight % ranks, .storage = entry->name, .tensor = entry->name};
    p->storage_ndim = t->ndim - skip;
    if (t->scale >= 0) p->dtype = TREADLE_FP8_E4M3;
    for (int d = p->storage_ndim - 1; d >= 0; d--) {
      p->size[d] = p->storage_shape[d] = t->shape[d + skip];
      p->stride[d] = d == p->storage_ndim - 1 ? 1 : p->stride[d + 1] * p->size[d + 1];
    }
    if (weight != faulty) continue;
    if (fault == MIXED && t->scale >= 0) p->dtype = TREADLE_BF16;
    if (fault == GAPS && t->scale >= 0) {
      p->storage_shape[1] *= 2;
      p->stride[0] *= 2;
      p->stride[1] = 2;
    }
    if (fault == (t->scale >= 0 ? WITHOUT_SCALES : WITHOUT_CODES)) {
      pieces[count++] = *p;
      p->rank = (p->rank + 1) % ranks;
    }
  }
  treadle_status status = treadle_layout_from_pieces(model, ranks, pieces, count, layout_p);
  free(pieces);
  return status;
}

static void test_given(void **state) {
  (void)state;
  static const char *const texts[] = {"megatron:tp=2,ep=2,etp=1", "vllm:tp=2", "zero3"};
  treadle_model *model = make_model(deepseek, 16, 16);
  truth *known = make_truth(model);
  treadle_layout *given, *other;
  assert_ok(give_all(model, 4, SOUND, &given));
  assert_true(given->fp8);
  for (size_t i = 0; i < TEST_COUNT(texts); i++) {
    assert_ok(treadle_layout_create(model, texts[i], 4, NULL, &other));
    play_pair(model, known, given, other, 1 + i);
    play_pair(model, known, other, given, 4 + i);
    treadle_layout_destroy(other);
  }
  treadle_layout_destroy(given);
  free_truth(known, model);
  treadle_model_close(model);
}

/* Refused before anything is planned, on every rank alike; copied as they are to a layout that holds blocks too. */
static void test_given_faults(void **state) {
  (void)state;
  static const char *const words[] = {[GAPS] = "codes with gaps between columns",
                                      [WITHOUT_SCALES] = "codes without the scale of their block",
                                      [WITHOUT_CODES] = "scales without codes of their blocks"};
  treadle_model *model = make_model(deepseek, 16, 16);
  treadle_layout *given, *values, *blocks;
  assert_ok(treadle_layout_create(model, "megatron:tp=2,ep=2,etp=1", 4, NULL, &values));
  assert_ok(treadle_layout_create(model, "hf", 4, NULL, &blocks));
  for (given_fault fault = GAPS; fault <= WITHOUT_CODES; fault++) {
    assert_ok(give_all(model, 4, fault, &given));
    for (int64_t r = 0; r < 4; r++) {
      assert_refused(words[fault], treadle_plan_check(given, values, r, PAGE));
      assert_refused(words[fault], treadle_plan_check(values, given, r, PAGE));
    }
    assert_ok(make_once(given, blocks));
    treadle_layout_destroy(given);
  }
  assert_refused("all are in fp8 or none is", give_all(model, 4, MIXED, &given));
  treadle_layout_destroy(values);
  treadle_layout_destroy(blocks);
  treadle_model_close(model);
}

static void test_failing_allocations(void **state) {
  (void)state;
  treadle_model *model = make_model(deepseek, 16, 16);
  treadle_layout *from, *to;
  assert_ok(treadle_layout_create(model, "megatron:tp=2,ep=2,etp=2", 4, NULL, &from));
  assert_ok(treadle_layout_create(model, "vllm:tp=2", 4, NULL, &to));
  TEST_EACH_ALLOCATION(make_once(from, to));
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_model_close(model);
}

static void test_refused(void **state) {
  (void)state;
  treadle_model *large = make_model(qwen, 256, 256);
  treadle_layout *from, *to;
  assert_ok(treadle_layout_create(large, "megatron:tp=2,etp=1", 4, NULL, &from));
  assert_ok(treadle_layout_create(large, "hf", 4, NULL, &to));
  assert_refused("128 x 128 at the most", make_once(from, to));
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_model_close(large);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_deepseek),
                                     cmocka_unit_test(test_others),
                                     cmocka_unit_test(test_qwen),
                                     cmocka_unit_test(test_finer_blocks),
                                     cmocka_unit_test(test_scales_count_once),
                                     cmocka_unit_test(test_given),
                                     cmocka_unit_test(test_given_faults),
                                     cmocka_unit_test(test_failing_allocations),
                                     cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
