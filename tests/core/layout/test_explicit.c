/* Explicit pieces, from a program and from a file: the same as a grid layout where they say the same, and
 * the dense cases of other projects that only pieces can express (T numbers: docs/rules.md 13). What cannot
 * be: test_explicit_refused.c. */
/* ctest: stage=gcc timeout=600 */
#include "plan/one_rank.h"
#include "test.h"

#include "plan/small.h"

#include <inttypes.h>

static const char *const head = "lm_head.weight", *const norm = "model.norm.weight";

/* A model whose lm_head is rows x columns, and little else. */
static small_config around(int64_t rows, int64_t columns) {
  return (small_config){.V = rows, .H = columns, .dtype = "float32"};
}

/* ---- The same as a grid ---- */

/* The pieces of a grid layout, a row a piece: as many and as plain as can be. */
static void rows_of_layout(const treadle_model *model, const treadle_layout *like, treadle_arena *arena,
                           small_pieces *pieces) {
  for (int64_t r = 0; r < like->ranks; r++)
    for (int32_t s = 0; s < treadle_layout_storage_count(like, r); s++) {
      treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
      treadle_run *runs;
      size_t count;
      assert_ok(treadle_layout_storage(like, r, s, &info));
      assert_ok(treadle_layout_runs(like, r, s, &runs, &count));
      for (size_t i = 0; i < count; i++) {
        if (runs[i].tensor < 0) continue;
        assert_true(runs[i].stride == 1 || runs[i].count == 1);
        const treadle_tensor *tensor = &model->tensors[runs[i].tensor];
        int64_t columns = tensor->ndim > 1 ? tensor->shape[1] : 1;
        for (int64_t at = 0, width; at < runs[i].count; at += width) {
          int64_t index = runs[i].start + at, left = runs[i].count - at;
          width = columns - index % columns < left ? columns - index % columns : left;
          treadle_explicit_piece piece = {.rank = r,
                                          .storage = treadle_arena_copy_text(arena, info.name),
                                          .storage_ndim = info.ndim,
                                          .dtype = info.dtype,
                                          .tensor = tensor->name,
                                          .start = {index / columns, index % columns},
                                          .size = {1, width},
                                          .offset = runs[i].local_start + at,
                                          .stride = {columns, 1}};
          memcpy(piece.storage_shape, info.shape, sizeof info.shape);
          assert_ok(treadle_array_push(pieces, piece));
        }
      }
      free(runs);
    }
}

static void assert_same_runs(const treadle_layout *a, const treadle_layout *b) {
  for (int64_t r = 0; r < a->ranks; r++) {
    int32_t storages = treadle_layout_storage_count(a, r);
    assert_int_equal(storages, treadle_layout_storage_count(b, r));
    assert_int_equal(treadle_layout_window_bytes(a, r), treadle_layout_window_bytes(b, r));
    for (int32_t s = 0; s < storages; s++) {
      treadle_storage_info x = TREADLE_INIT(treadle_storage_info), y = TREADLE_INIT(treadle_storage_info);
      treadle_run *runs_x, *runs_y;
      size_t count_x, count_y;
      assert_ok(treadle_layout_storage(a, r, s, &x));
      assert_ok(treadle_layout_storage(b, r, s, &y));
      assert_string_equal(x.name, y.name);
      assert_int_equal(x.ndim, y.ndim);
      assert_memory_equal(x.shape, y.shape, sizeof x.shape);
      assert_int_equal(x.dtype, y.dtype);
      assert_int_equal(x.offset_bytes, y.offset_bytes);
      assert_int_equal(x.bytes, y.bytes);
      assert_ok(treadle_layout_runs(a, r, s, &runs_x, &count_x));
      assert_ok(treadle_layout_runs(b, r, s, &runs_y, &count_y));
      assert_int_equal(count_x, count_y);
      for (size_t i = 0; i < count_x; i++) {
        assert_int_equal(runs_x[i].local_start, runs_y[i].local_start);
        assert_int_equal(runs_x[i].tensor, runs_y[i].tensor);
        assert_int_equal(runs_x[i].start, runs_y[i].start);
        assert_int_equal(runs_x[i].stride, runs_y[i].stride);
        assert_int_equal(runs_x[i].count, runs_y[i].count);
      }
      free(runs_x);
      free(runs_y);
    }
  }
}

static void write_pieces(const char *path, const small_pieces *pieces, const treadle_model *model) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fprintf(file, "{\"pieces\": [");
  for (size_t i = 0; i < pieces->count; i++) {
    const treadle_explicit_piece *p = &pieces->items[i];
    int ndim = model->tensors[small_tensor(model, p->tensor)].ndim;
    const struct {
      const char *key;
      const int64_t *numbers;
      int count;
    } lists[] = {{"shape", p->storage_shape, p->storage_ndim},
                 {"start", p->start, ndim},
                 {"size", p->size, ndim},
                 {"stride", p->stride, ndim}};
    fprintf(file,
            "%s\n{\"rank\": %" PRId64 ", \"storage\": \"%s\", \"tensor\": \"%s\", \"offset\": %" PRId64,
            i ? "," : "", p->rank, p->storage, p->tensor, p->offset);
    for (size_t k = 0; k < TEST_COUNT(lists); k++) {
      fprintf(file, ", \"%s\": [", lists[k].key);
      for (int d = 0; d < lists[k].count; d++)
        fprintf(file, "%s%" PRId64, d ? ", " : "", lists[k].numbers[d]);
      fprintf(file, "]");
    }
    fprintf(file, "}");
  }
  fprintf(file, "]}\n");
  assert_int_equal(fclose(file), 0);
}

static void as_a_grid_has_them(void **state) {
  (void)state;
  static const small_config config = {
      .type = "qwen2", .V = 200, .H = 12, .L = 2, .nh = 4, .ng = 2, .hd = 3, .I = 8, .tied = true};
  static const struct {
    const char *text;
    int64_t ranks;
  } layouts[] = {{"hf", 2}, {"megatron:tp=2,pp=2", 4}, {"vllm:tp=4", 4}, {"sglang:tp=2,pp=2", 4}};
  treadle_model *model = small_model(&config);
  const char *folder = test_folder();
  for (size_t i = 0; i < TEST_COUNT(layouts); i++) {
    treadle_layout *grid, *given, *read;
    small_pieces pieces = {0};
    treadle_arena arena = {0};
    char path[128], text[160];
    assert_ok(treadle_layout_create(model, layouts[i].text, layouts[i].ranks, NULL, &grid));
    rows_of_layout(model, grid, &arena, &pieces);
    assert_ok(treadle_layout_from_pieces(model, layouts[i].ranks, pieces.items, pieces.count, &given));
    assert_same_runs(grid, given);
    snprintf(path, sizeof path, "%s/pieces.json", folder);
    snprintf(text, sizeof text, "pieces:@%s", path);
    write_pieces(path, &pieces, model);
    assert_ok(treadle_layout_create(model, text, layouts[i].ranks, NULL, &read));
    assert_string_equal(treadle_layout_text(read), text);
    assert_same_runs(grid, read);
    for (int64_t r = 0; r < layouts[i].ranks; r++) { /* nothing to move between them */
      int64_t bytes;
      assert_ok(treadle_layout_inbound(grid, read, r, NULL, &bytes));
      assert_int_equal(bytes, 0);
      assert_ok(treadle_layout_inbound(given, grid, r, NULL, &bytes));
      assert_int_equal(bytes, 0);
    }
    treadle_layout_destroy(grid);
    treadle_layout_destroy(given);
    treadle_layout_destroy(read);
    treadle_array_release(&pieces);
    treadle_arena_release(&arena);
  }
  test_remove(folder);
  treadle_model_close(model);
}

/* The file's pieces are part of the digest; its text alone is not enough. */
static void the_digest_knows_the_pieces(void **state) {
  (void)state;
  small_config config = around(8, 4);
  treadle_model *model = small_model(&config);
  const char *folder = test_folder();
  char path[128], text[160];
  uint64_t digests[3];
  snprintf(path, sizeof path, "%s/pieces.json", folder);
  snprintf(text, sizeof text, "pieces:@%s", path);
  for (int i = 0; i < 3; i++) { /* cut after row 3, after row 5, and after 3 again */
    small_pieces pieces = {0};
    treadle_layout *layout;
    small_give(&pieces, 0, head, 0, i == 1 ? 5 : 3, 0, 4);
    small_give(&pieces, 1, head, i == 1 ? 5 : 3, 8, 0, 4);
    small_give_rest(&pieces, model);
    write_pieces(path, &pieces, model);
    assert_ok(treadle_layout_create(model, text, 2, NULL, &layout));
    digests[i] = layout->digest;
    treadle_layout_destroy(layout);
    treadle_array_release(&pieces);
  }
  assert_true(digests[0] != digests[1]);
  assert_true(digests[0] == digests[2]);
  test_remove(folder);
  treadle_model_close(model);
}

/* ---- Shards over meshes (T9, T12) ---- */

/* A tensor cut as DTensor does: by mesh dimension, the first outermost; 'R' keeps all, '0' and '1' chunk
 * that dimension of the tensor into ceil(n / size) rows or columns. */
typedef struct sharding {
  int64_t mesh[2]; /* ranks 0 .. mesh[0] * mesh[1] - 1, row-major */
  const char *placements;
} sharding;

static void chunk(int64_t *low, int64_t *high, int64_t index, int64_t count) {
  int64_t size = *high - *low, each = (size + count - 1) / count;
  int64_t begin = *low + index * each, end = begin + each;
  *low = begin < *high ? begin : *high;
  *high = end < *high ? end : *high;
}

static void give_sharded(small_pieces *pieces, const char *tensor, int64_t rows, int64_t columns,
                         const sharding *s) {
  for (int64_t r = 0; r < s->mesh[0] * s->mesh[1]; r++) {
    const int64_t at[2] = {r / s->mesh[1], r % s->mesh[1]};
    int64_t low[2] = {0, 0}, high[2] = {rows, columns};
    for (int m = 0; m < 2; m++)
      if (s->placements[m] != 'R')
        chunk(&low[s->placements[m] - '0'], &high[s->placements[m] - '0'], at[m], s->mesh[m]);
    small_give(pieces, r, tensor, low[0], high[0], low[1], high[1]);
  }
}

typedef struct sharding_case {
  int64_t rows, columns;
  sharding from, to;
} sharding_case;

static const sharding_case sharding_cases[] = {
    /* T9: 200x200, shard dimensions {0,1} x {0,1}, on 4 ranks */
    {200, 200, {{4, 1}, "0R"}, {{4, 1}, "0R"}},
    {200, 200, {{4, 1}, "0R"}, {{4, 1}, "1R"}},
    {200, 200, {{4, 1}, "1R"}, {{4, 1}, "0R"}},
    {200, 200, {{4, 1}, "1R"}, {{4, 1}, "1R"}},
    /* 2-D placements, shards (2,4) (4,2) (2,2), and with replicas */
    {200, 200, {{2, 4}, "01"}, {{4, 2}, "01"}},
    {200, 200, {{4, 2}, "10"}, {{2, 4}, "01"}},
    {200, 200, {{2, 2}, "01"}, {{2, 4}, "10"}},
    {200, 200, {{2, 4}, "0R"}, {{2, 4}, "R0"}},
    {200, 200, {{4, 2}, "R1"}, {{2, 4}, "0R"}},
    {200, 200, {{2, 2}, "1R"}, {{4, 2}, "R1"}},
    /* 240x240, 3:1 and 1:3 */
    {240, 240, {{3, 1}, "0R"}, {{1, 1}, "RR"}},
    {240, 240, {{1, 1}, "RR"}, {{3, 1}, "1R"}},
    {240, 240, {{3, 1}, "1R"}, {{1, 1}, "RR"}},
    /* T12: 512x512, (4) <-> (2) */
    {512, 512, {{4, 1}, "0R"}, {{2, 1}, "0R"}},
    {512, 512, {{4, 1}, "0R"}, {{2, 1}, "1R"}},
    {512, 512, {{4, 1}, "1R"}, {{2, 1}, "0R"}},
    {512, 512, {{2, 1}, "1R"}, {{4, 1}, "1R"}},
    {512, 512, {{2, 1}, "0R"}, {{4, 1}, "1R"}},
    /* 2x2 <-> 2x2 */
    {512, 512, {{2, 2}, "11"}, {{2, 2}, "01"}},
    {512, 512, {{2, 2}, "10"}, {{2, 2}, "10"}},
    {512, 512, {{2, 2}, "00"}, {{2, 2}, "01"}},
    {512, 512, {{2, 2}, "11"}, {{2, 2}, "00"}},
    {512, 512, {{2, 2}, "01"}, {{2, 2}, "11"}},
    /* 4 <-> 2x2; replicas 2 -> 4; (replicate, shard 0) over 2x2 -> shard 1 over 4 */
    {512, 512, {{4, 1}, "0R"}, {{2, 2}, "01"}},
    {512, 512, {{2, 2}, "10"}, {{4, 1}, "1R"}},
    {512, 512, {{2, 1}, "RR"}, {{4, 1}, "RR"}},
    {512, 512, {{2, 2}, "R0"}, {{4, 1}, "1R"}},
    /* odd sizes: the last chunks are smaller, or empty */
    {10, 7, {{4, 1}, "0R"}, {{3, 1}, "1R"}},
    {9, 5, {{4, 2}, "00"}, {{2, 4}, "11"}},
    {1, 13, {{4, 1}, "0R"}, {{8, 1}, "1R"}},
};

static void sharded_tensors(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(sharding_cases); i++) {
    const sharding_case *c = &sharding_cases[i];
    small_config config = around(c->rows, c->columns);
    treadle_model *model = small_model(&config);
    small_pieces from = {0}, to = {0};
    give_sharded(&from, head, c->rows, c->columns, &c->from);
    give_sharded(&to, head, c->rows, c->columns, &c->to);
    small_give_rest(&from, model);
    small_give_rest(&to, model);
    int64_t one = small_apply_pieces(model, 8, &from, &to, 1);
    assert_int_equal(small_apply_pieces(model, 8, &from, &to, 37), one); /* T18: in one step, in N steps */
    assert_int_equal(small_apply_pieces(model, 8, &to, &from, 4096),
                     small_apply_pieces(model, 8, &to, &from, 2));
    if (c->rows * c->columns <=
        (i % 3 ? 1000 : 40000)) { /* pages shared, any order of ranks, and the oracle's bound */
      pair_result result = small_play_pieces(&config, 8, &from, &to);
      assert_int_equal(result.moved, one);
    }
    treadle_array_release(&from);
    treadle_array_release(&to);
    treadle_model_close(model);
  }
}

static void large_sharded_tensors(void **state) { /* T9: 576x576, 3072x3072, 3072x6144 */
  (void)state;
  static const int64_t sizes[][2] = {{576, 576}, {3072, 3072}, {3072, 6144}};
  for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
    int64_t rows = sizes[i][0], columns = sizes[i][1];
    small_config config = {.V = rows, .H = columns}; /* bf16 */
    treadle_model *model = small_model(&config);
    small_pieces from = {0}, to = {0};
    sharding a = {{4, 1}, "0R"}, b = {{2, 2}, i == 1 ? "R1" : "01"};
    give_sharded(&from, head, rows, columns, &a);
    give_sharded(&to, head, rows, columns, &b);
    small_give_rest(&from, model);
    small_give_rest(&to, model);
    small_apply_pieces(model, 4, &from, &to, 8);
    treadle_array_release(&from);
    treadle_array_release(&to);
    treadle_model_close(model);
  }
}

/* T9: 3-D tensors, each dimension cut: boxes of the tensor seen as [a * b, c]. */
static void three_dimensions(void **state) {
  (void)state;
  static const int64_t shapes[][3] = {{64, 128, 128}, {128, 64, 64}};
  for (size_t i = 0; i < TEST_COUNT(shapes); i++) {
    int64_t a = shapes[i][0], b = shapes[i][1], c = shapes[i][2];
    small_config config = {.V = a * b, .H = c};
    treadle_model *model = small_model(&config);
    small_pieces by[3] = {{0}, {0}, {0}};
    for (int64_t r = 0; r < 4; r++) {
      small_give(&by[0], r, head, r * a / 4 * b, (r + 1) * a / 4 * b, 0, c);
      small_give(&by[2], r, head, 0, a * b, r * c / 4, (r + 1) * c / 4);
      for (int64_t k = 0; k < a; k++) { /* [a, b / 4, c] as one storage */
        treadle_explicit_piece piece = {.rank = r,
                                        .storage = head,
                                        .storage_ndim = 3,
                                        .storage_shape = {a, b / 4, c},
                                        .tensor = head,
                                        .start = {k * b + r * b / 4, 0},
                                        .size = {b / 4, c},
                                        .offset = k * b / 4 * c,
                                        .stride = {c, 1}};
        assert_ok(treadle_array_push(&by[1], piece));
      }
    }
    for (int d = 0; d < 3; d++) small_give_rest(&by[d], model);
    for (int d = 0; d < 3; d++)
      for (int e = 0; e < 3; e++) {
        int64_t moved = small_apply_pieces(model, 4, &by[d], &by[e], 5);
        assert_int_equal(moved, d == e ? 0 : a * b * c * 2 * 3 / 4);
      }
    for (int d = 0; d < 3; d++) treadle_array_release(&by[d]);
    treadle_model_close(model);
  }
}

/* ---- Exact regions (T2) ---- */

/* Rows of `tensor` that rank `to` gets from rank `source`, "[0,4)", by the plan; they must be whole rows of
 * one stretch, and lie on `to` from row `base` on. */
static void assert_rows(const treadle_layout *from, const treadle_layout *to, const char *tensor,
                        int64_t rank, int64_t source, int64_t base, const char *wanted) {
  treadle_plan *plan;
  int32_t t = small_tensor(from->model, tensor);
  int64_t columns = from->model->tensors[t].ndim > 1 ? from->model->tensors[t].shape[1] : 1,
          low = INT64_MAX, high = 0;
  int64_t elems = 0, offset = 0;
  assert_ok(one_rank_plan(from, to, rank, 4096, 1, 1 << 20, &plan));
  for (int32_t s = 0; s < treadle_layout_storage_count(to, rank); s++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    assert_ok(treadle_layout_storage(to, rank, s, &info));
    if (strcmp(info.name, tensor) == 0) offset = (int64_t)info.offset_bytes;
  }
  for (size_t i = 0; i < plan->forward.ops.count; i++) {
    const treadle_op *op = &plan->forward.ops.items[i];
    if (op->tensor != t || op->source != source) continue;
    int64_t first = (op->to - offset) / 4;
    assert_int_equal(op->ndim, 1);
    assert_int_equal(op->to_stride[0], 4); /* fp32, in a row */
    if (first < low) low = first;
    if (first + op->elems > high) high = first + op->elems;
    elems += op->elems;
  }
  treadle_plan_destroy(plan);
  char text[64] = "";
  if (elems > 0) {
    assert_int_equal(high - low, elems);
    assert_int_equal(low % columns, 0);
    assert_int_equal(high % columns, 0);
    snprintf(text, sizeof text, "[%" PRId64 ",%" PRId64 ")", base + low / columns, base + high / columns);
  }
  assert_string_equal(text, wanted);
}

static void regions_of_nemo_rl(void **state) {
  (void)state;
  /* 1: length 10 over 4: [0,3) [3,6) [6,9) [9,10), gathered on rank 0 */
  small_config ten = around(3, 10), eight = around(8, 4);
  treadle_model *model = small_model(&ten);
  small_pieces cut = {0}, whole = {0};
  treadle_layout *from, *to;
  for (int64_t r = 0; r < 4; r++) {
    int64_t low = 0, high = 10;
    chunk(&low, &high, r, 4);
    small_give(&cut, r, norm, low, high, 0, 1);
  }
  small_give_rest(&cut, model);
  small_give_rest(&whole, model);
  assert_ok(treadle_layout_from_pieces(model, 4, cut.items, cut.count, &from));
  assert_ok(treadle_layout_from_pieces(model, 4, whole.items, whole.count, &to));
  assert_rows(from, to, norm, 0, 0, 0, "[0,3)");
  assert_rows(from, to, norm, 0, 1, 0, "[3,6)");
  assert_rows(from, to, norm, 0, 2, 0, "[6,9)");
  assert_rows(from, to, norm, 0, 3, 0, "[9,10)");
  small_play_pieces(&ten, 4, &cut, &whole);
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_array_release(&cut);
  treadle_array_release(&whole);
  treadle_model_close(model);

  /* 2: ranks 0 and 1 cut rows of (8,4), rank 2 has all */
  model = small_model(&eight);
  small_give(&cut, 0, head, 0, 4, 0, 4);
  small_give(&cut, 1, head, 4, 8, 0, 4);
  small_give(&whole, 2, head, 0, 8, 0, 4);
  small_give_rest(&cut, model);
  small_give_rest(&whole, model);
  assert_ok(treadle_layout_from_pieces(model, 3, cut.items, cut.count, &from));
  assert_ok(treadle_layout_from_pieces(model, 3, whole.items, whole.count, &to));
  assert_rows(from, to, head, 2, 0, 0, "[0,4)");
  assert_rows(from, to, head, 2, 1, 0, "[4,8)");
  assert_rows(from, to, head, 0, 1, 0, "");
  assert_int_equal(small_play_pieces(&eight, 3, &cut, &whole).moved, 8 * 4 * 4);
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_array_release(&cut);
  treadle_array_release(&whole);

  /* 3: rank 0 has all, ranks 1 and 2 cut rows */
  small_give(&whole, 0, head, 0, 8, 0, 4);
  small_give(&cut, 1, head, 0, 4, 0, 4);
  small_give(&cut, 2, head, 4, 8, 0, 4);
  small_give_rest(&cut, model);
  small_give_rest(&whole, model);
  assert_ok(treadle_layout_from_pieces(model, 3, whole.items, whole.count, &from));
  assert_ok(treadle_layout_from_pieces(model, 3, cut.items, cut.count, &to));
  assert_rows(from, to, head, 1, 0, 0, "[0,4)");
  assert_rows(from, to, head, 2, 0, 4, "[4,8)");
  assert_int_equal(small_play_pieces(&eight, 3, &whole, &cut).moved, 8 * 4 * 4);
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_array_release(&cut);
  treadle_array_release(&whole);
  treadle_model_close(model);
}

/* T3: parts of [16, 8, 4] rows in one storage of each of 2 ranks, to 4 ranks. */
static void interleaved_parts(void **state) {
  (void)state;
  static const small_config config = {.V = 6, .H = 5, .nh = 8, .ng = 4, .hd = 4, .I = 8};
  static const char *const parts[] = {"model.layers.0.self_attn.q_proj.weight",
                                      "model.layers.0.self_attn.k_proj.weight",
                                      "model.layers.0.mlp.gate_proj.weight"};
  static const int64_t rows[] = {32, 16, 8};
  treadle_model *model = small_model(&config);
  small_pieces sides[2] = {{0}, {0}};
  for (int i = 0; i < 2; i++) {
    int64_t tp = i ? 4 : 2;
    for (int64_t r = 0; r < tp; r++)
      for (int64_t k = 0, at = 0; k < 3; at += rows[k] / tp, k++) {
        treadle_explicit_piece piece = {.rank = r,
                                        .storage = "fused",
                                        .storage_ndim = 2,
                                        .storage_shape = {56 / tp, 5},
                                        .tensor = parts[k],
                                        .start = {r * rows[k] / tp, 0},
                                        .size = {rows[k] / tp, 5},
                                        .offset = at * 5,
                                        .stride = {5, 1}};
        assert_ok(treadle_array_push(&sides[i], piece));
      }
    small_give_rest(&sides[i], model);
  }
  /* Rank 0 keeps its first half, ranks 1 to 3 have nothing of what they need but for rank 1. */
  int64_t moved = small_play_pieces(&config, 4, &sides[0], &sides[1]).moved;
  assert_int_equal(moved, 14 * 5 * 2 * 3);
  treadle_explicit_piece wrong = sides[1].items[0];
  sides[1].items[0].size[0] = 9; /* size mismatch: nine rows in place of eight */
  treadle_layout *layout;
  assert_refused("'fused' share element",
                 treadle_layout_from_pieces(model, 4, sides[1].items, sides[1].count, &layout));
  sides[1].items[0] = wrong;
  sides[1].items[0].size[0] = 7;
  assert_refused("no rank holds all elements of model.layers.0.self_attn.q_proj.weight",
                 treadle_layout_from_pieces(model, 4, sides[1].items, sides[1].count, &layout));
  treadle_array_release(&sides[0]);
  treadle_array_release(&sides[1]);
  treadle_model_close(model);
}

/* T19: replicas on ranks in any order. */
static void permuted_replicas(void **state) {
  (void)state;
  small_config config = around(24, 6);
  static const int64_t order[] = {5, 2, 7, 0, 3, 6, 1, 4};
  treadle_model *model = small_model(&config);
  small_pieces from = {0}, to = {0};
  for (int64_t r = 0; r < 8; r++) {
    small_give(&from, r, head, r % 4 * 6, r % 4 * 6 + 6, 0, 6);
    small_give(&to, order[r], head, r % 2 * 12, r % 2 * 12 + 12, 0, 6);
  }
  small_give_rest(&from, model);
  small_give_rest(&to, model);
  small_play_pieces(&config, 8, &from, &to);
  small_play_pieces(&config, 8, &to, &from);
  treadle_array_release(&from);
  treadle_array_release(&to);
  treadle_model_close(model);
}

/* Transposed, spread and reversed storages: strides of every type. */
static void strange_strides(void **state) {
  (void)state;
  small_config config = around(12, 10);
  treadle_model *model = small_model(&config);
  small_pieces plain = {0}, strange = {0};
  treadle_explicit_piece transposed = {.rank = 0,
                                       .storage = "t",
                                       .storage_ndim = 2,
                                       .storage_shape = {10, 12},
                                       .tensor = head,
                                       .size = {12, 10},
                                       .stride = {1, 12}};
  treadle_explicit_piece spread = {.rank = 1,
                                   .storage = "s",
                                   .storage_ndim = 1,
                                   .storage_shape = {1000},
                                   .tensor = head,
                                   .start = {3, 2},
                                   .size = {6, 4},
                                   .offset = 11,
                                   .stride = {100, 7}};
  assert_ok(treadle_array_push(&strange, transposed));
  assert_ok(treadle_array_push(&strange, spread));
  small_give(&plain, 0, head, 0, 6, 0, 10);
  small_give(&plain, 1, head, 6, 12, 0, 10);
  small_give_rest(&plain, model);
  small_give_rest(&strange, model);
  small_play_pieces(&config, 2, &plain, &strange);
  small_play_pieces(&config, 2, &strange, &plain);
  small_play_pieces(&config, 2, &strange, &strange);
  treadle_array_release(&plain);
  treadle_array_release(&strange);
  treadle_model_close(model);
}

/* ---- Each allocation fails ---- */

static treadle_status try_pieces(const treadle_model *model, const small_pieces *pieces) {
  treadle_layout *layout;
  treadle_status status = treadle_layout_from_pieces(model, 4, pieces->items, pieces->count, &layout);
  assert_true((status == TREADLE_OK) == (layout != NULL));
  treadle_layout_destroy(layout);
  return status;
}

static treadle_status try_file(const treadle_model *model, const char *text) {
  treadle_layout *layout;
  treadle_status status = treadle_layout_create(model, text, 4, NULL, &layout);
  assert_true((status == TREADLE_OK) == (layout != NULL));
  treadle_layout_destroy(layout);
  return status;
}

static void failing_allocations(void **state) {
  (void)state;
  static const small_config config = {
      .V = 70, .H = 12, .L = 2, .nh = 4, .ng = 2, .hd = 3, .I = 8, .tied = true};
  treadle_model *model = small_model(&config);
  treadle_layout *grid;
  small_pieces pieces = {0};
  treadle_arena arena = {0};
  const char *folder = test_folder();
  char path[128], text[160];
  snprintf(path, sizeof path, "%s/pieces.json", folder);
  snprintf(text, sizeof text, "pieces:@%s", path);
  assert_ok(treadle_layout_create(model, "megatron:tp=2,pp=2", 4, NULL, &grid));
  rows_of_layout(model, grid, &arena, &pieces);
  write_pieces(path, &pieces, model);
  TEST_EACH_ALLOCATION(try_pieces(model, &pieces));
  TEST_EACH_ALLOCATION(try_file(model, text));
  treadle_layout_destroy(grid);
  treadle_array_release(&pieces);
  treadle_arena_release(&arena);
  test_remove(folder);
  treadle_model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_a_grid_has_them), cmocka_unit_test(the_digest_knows_the_pieces),
      cmocka_unit_test(sharded_tensors),    cmocka_unit_test(large_sharded_tensors),
      cmocka_unit_test(three_dimensions),   cmocka_unit_test(regions_of_nemo_rl),
      cmocka_unit_test(interleaved_parts),  cmocka_unit_test(permuted_replicas),
      cmocka_unit_test(strange_strides),    cmocka_unit_test(failing_allocations),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
