/* Numbers from outside that are larger than any machine: what fits 63 bits everywhere is planned, and rightly; the rest is refused
 * with the tensor, the number and the limit, before a table is made of it. ctest: stage=gcc */
#include "layout/layout.h"
#include "test.h"

#include "base/limits.h"
#include "report/equal_ranks.h"
#include "plan/small.h"

#include <sys/resource.h>

static const int64_t BIG = INT64_C(1) << 31;

typedef struct request {
  small_config config;
  const char *from, *to; /* NULL: the model is refused; to NULL: the layout is */
  int64_t ranks, page_bytes;
  const char *words; /* of the refusal; NULL: a plan */
} request;

static const small_config usual = {.V = 256, .H = 64, .L = 2, .nh = 4, .ng = 2, .hd = 16, .I = 128};

/* The plans of some ranks, each of which would index tables with what overflowed. */
static void expect_plan(const treadle_layout *from, const treadle_layout *to, const request *r) {
  for (int64_t rank = 0; rank<r->ranks; rank += r->ranks> 4 ? r->ranks / 3 : 1) {
    treadle_plan *plan;
    treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
    const treadle_plan_options options = {.struct_size = sizeof(treadle_plan_options),
                                          .page_bytes = (size_t)r->page_bytes};
    assert_ok(treadle_plan_create(from, to, rank, &options, &plan));
    treadle_plan_get_info(plan, &info);
    assert_int_equal(info.moved_bytes, info.lower_bound_bytes);
    assert_int_equal(info.back_moved_bytes, info.back_lower_bound_bytes);
    assert_true(info.peak_bytes <= info.peak_bound_bytes);
    treadle_plan_destroy(plan);
  }
}

static treadle_status try_request(const request *r) {
  treadle_status status;
  treadle_model *model = small_model(&r->config);
  treadle_layout *from = NULL, *to = NULL;
  treadle_plan *plan = NULL;
  const treadle_plan_options options = {.struct_size = sizeof(treadle_plan_options),
                                        .page_bytes = (size_t)r->page_bytes};
  TRY(treadle_layout_create(model, r->from, r->ranks, NULL, &from));
  if (!r->to) goto out;
  TRY(treadle_layout_create(model, r->to, r->ranks, NULL, &to));
  if (r->words)
    TRY(treadle_plan_create(from, to, 0, &options, &plan));
  else
    expect_plan(from, to, r);
out:
  treadle_plan_destroy(plan);
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_model_close(model);
  return status;
}

static small_config with_sizes(int64_t V, int64_t hd) {
  small_config config = usual;
  if (V) config.V = V;
  if (hd) config.hd = hd;
  return config;
}

/* Positions in flat buffers, times rows, times waves: beyond 64 bits long before any tensor is. */
static void large_positions(void **state) {
  (void)state;
  const request requests[] = {
      {with_sizes(4294967295, 0), "distopt:dp=4", "sglang", 4, 0, NULL},
      {with_sizes(4294967295, 0), "zero1:dp=2", "vllm:tp=2", 2, 0, NULL},
      {with_sizes(4294967295, 0), "fsdp:dp=4,wrap=none", "hf", 4, 1 << 24, NULL},
      {with_sizes(0, BIG), "distopt:dp=2", "sglang", 2, 1 << 24, NULL},
      {with_sizes(0, 2 * BIG), "zero1:dp=2", "sglang", 2, 1 << 24, NULL},
      {with_sizes(0, BIG), "megatron:tp=2", "vllm:tp=4", 4, 1 << 24, NULL},
  };
  for (size_t i = 0; i < TEST_COUNT(requests); i++) assert_ok(try_request(&requests[i]));
}

static void refused(void **state) {
  (void)state;
  small_config heads = usual; /* 65536 ranks have the one KV head */
  heads.V = heads.I = heads.nh = 1 << 16;
  heads.ng = 1;
  const request requests[] = {
      {with_sizes(0, 2 * BIG), "zero1:dp=2", "sglang", 2, 4096,
       "pages of 4.00 KiB; at most 8388608 will do"},
      {usual, "megatron:tp=4096,vocab_divisible_by=1099511627776", NULL, 4096, 0,
       "vocab_divisible_by=1099511627776 times tp=4096"},
      {usual, "megatron:padded_vocab_size=1099511627776", "vllm", 1, 4096, "pages of 4.00 KiB; at most"},
      {usual, "vllm:pp=1073741824", NULL, 1 << 30, 0,
       "1073741824 stages of 1 virtual ones; at most 131072"},
      {usual, "megatron:pp=2,vpp=1099511627776", NULL, 2, 0, "at most 131072 in all"},
      {usual, "zero3:dp=1073741824", "hf", 1 << 30, 0, NULL}, /* a rank of it costs as much as any */
      {with_sizes(1 << 26, 0), "fsdp:dp=1073741824", "hf", 1 << 30, 0,
       "'fsdp:dp=1073741824': its 1073741824 ranks have model.embed_tokens.weight in more than 1048576 "
       "parts"},
      {heads, "vllm:tp=65536", "sglang:tp=65536", 1 << 16, 0, NULL},
  };
  for (size_t i = 0; i < TEST_COUNT(requests); i++) {
    if (requests[i].words)
      assert_refused(requests[i].words, try_request(&requests[i]));
    else
      assert_ok(try_request(&requests[i]));
  }
}

/* ---- Models ---- */

static treadle_status open_model(const small_config *config) {
  treadle_model *model = NULL;
  json_error_t error;
  char text[1024];
  snprintf(
      text, sizeof text,
      "{\"model_type\": \"%s\", \"vocab_size\": %lld, \"hidden_size\": %lld, \"num_hidden_layers\": %lld,"
      " \"num_attention_heads\": %lld, \"num_key_value_heads\": %lld, \"head_dim\": %lld,"
      " \"intermediate_size\": %lld%s%s}",
      config->type ? config->type : "llama", (long long)config->V, (long long)config->H,
      (long long)config->L, (long long)config->nh, (long long)config->ng, (long long)config->hd,
      (long long)config->I, config->more ? ", " : "", config->more ? config->more : "");
  json_t *root = json_loads(text, 0, &error);
  assert_non_null(root);
  treadle_status status = treadle_model_from_config("config.json", root, NULL, &model);
  treadle_model_close(model);
  json_decref(root);
  return status;
}

static void models(void **state) {
  (void)state;
  small_config many = usual, wide = usual, experts = usual, all = usual;
  many.L = 60000;
  wide.H = INT64_C(1) << 34;
  wide.hd = INT64_C(1) << 32;
  experts.type = "qwen3_moe";
  experts.more = "\"num_experts\": 1048576, \"num_experts_per_tok\": 1, \"moe_intermediate_size\": 64";
  all.V = INT64_C(1) << 40;
  all.H = 1 << 10;
  assert_refused("tensors for 60000 layers; at most 262144 will do", open_model(&many));
  assert_refused("q_proj.weight of family llama has 2.951e+20 elements", open_model(&wide));
  assert_refused("names of tensors for 2 layers and 1048576 experts; at most 2097152",
                 open_model(&experts));
  assert_refused("elements; at most 2^50 will do", open_model(&all));
}

/* ---- Pieces ---- */

/* All tensors whole on rank 0, and the final norm in a storage tensor of a given size, at a given stride. */
static treadle_status give(int64_t storage_elems, int64_t stride, int64_t page_bytes) {
  treadle_status status;
  treadle_model *model = small_model(&usual);
  treadle_layout *from = NULL, *to = NULL;
  treadle_plan *plan = NULL;
  const treadle_plan_options options = {.struct_size = sizeof(treadle_plan_options),
                                        .page_bytes = (size_t)page_bytes};
  small_pieces pieces = {0};
  treadle_explicit_piece norm = {.storage = "norm",
                                 .storage_ndim = 1,
                                 .storage_shape = {storage_elems},
                                 .tensor = "model.norm.weight",
                                 .size = {usual.H},
                                 .stride = {stride}};
  assert_ok(treadle_array_push(&pieces, norm));
  small_give_rest(&pieces, model);
  TRY(treadle_layout_from_pieces(model, 1, pieces.items, pieces.count, &from));
  TRY(treadle_layout_create(model, "hf", 1, NULL, &to));
  TRY(treadle_plan_create(from, to, 0, &options, &plan));
out:
  treadle_plan_destroy(plan);
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_model_close(model);
  treadle_array_release(&pieces);
  return status;
}

static void pieces(void **state) {
  (void)state;
  assert_ok(give(64, 1, 4096));
  assert_ok(give(INT64_C(1) << 30, 1 << 20, 0)); /* 2 GiB */
  assert_refused("its window of 'pieces' has 268435", give(INT64_C(1) << 48, 1, 0));
  assert_refused("pages of 4.00 KiB; at most 8388608", give(INT64_C(1) << 40, 1, 4096));
  assert_refused("holds no element or too many", give(INT64_MAX, 1, 0));
}

/* A matrix of which every second column is given: a stretch for each element. */
static void stretches(void **state) {
  (void)state;
  small_config config = usual;
  config.V = 1 << 21;
  treadle_model *model = small_model(&config);
  treadle_layout *layout = NULL;
  small_pieces given = {0};
  treadle_explicit_piece piece = {.storage = "w",
                                  .storage_ndim = 2,
                                  .storage_shape = {config.V, 2 * config.H},
                                  .tensor = "model.embed_tokens.weight",
                                  .size = {config.V, config.H},
                                  .stride = {2 * config.H, 2}};
  assert_ok(treadle_array_push(&given, piece));
  small_give_rest(&given, model);
  assert_refused("model.embed_tokens.weight: the pieces of a storage tensor fall into more than 8388608",
                 treadle_layout_from_pieces(model, 1, given.items, given.count, &layout));
  treadle_array_release(&given);
  treadle_model_close(model);
}

/* Runs of a tensor that is cut by columns: one a row. */
static void runs(void **state) {
  (void)state;
  small_config config = usual;
  config.H = 1 << 24;
  treadle_model *model = small_model(&config);
  treadle_layout *layout;
  treadle_run *list;
  size_t count;
  bool seen = false;
  assert_ok(treadle_layout_create(model, "megatron:tp=2", 2, NULL, &layout));
  for (int32_t s = 0; s < treadle_layout_storage_count(layout, 0); s++) {
    treadle_status status = treadle_layout_runs(layout, 0, s, &list, &count);
    if (status == TREADLE_OK) {
      free(list);
      continue;
    }
    assert_refused("o_proj.weight lies in more than 8388608 runs of one storage tensor", status);
    seen = true;
    break;
  }
  assert_true(seen);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
}

/* Blocks of one element, each of which is made of a value: a row of blocks for each row. */
static void blocks(void **state) {
  (void)state;
  const request r = {.config = {.dtype = "float16",
                                .V = 245,
                                .H = 4,
                                .L = 3,
                                .nh = 6,
                                .ng = 2,
                                .hd = 65536,
                                .I = 8,
                                .tied = true,
                                .more = "\"quantization_config\": {\"quant_method\": \"fp8\", "
                                        "\"weight_block_size\": [1, 1]}"},
                     .from = "zero3:dp=8",
                     .to = "vllm",
                     .ranks = 8,
                     .words = "cut the window of rank 0 in more than 8388608 parts"};
  assert_refused(r.words, try_request(&r));
}

/* ---- Reports ---- */

/* What the plans of all ranks look at. */
static void planned(void **state) {
  (void)state;
  treadle_model *model = small_model(&usual);
  treadle_layout *from, *to;
  treadle_cuts_of_all all = TREADLE_PLANNED_CUTS - 1000;
  assert_ok(treadle_layout_create(model, "megatron:tp=2", 2, NULL, &from));
  assert_ok(treadle_layout_create(model, "vllm:tp=2", 2, NULL, &to));
  treadle_cuts cuts = {.from = from, .to = to, .all = &all};
  assert_ok(treadle_cuts_add(&cuts, 1000));
  assert_int_equal(all, TREADLE_PLANNED_CUTS - 1000);
  assert_refused("'megatron:tp=2' and 'vllm:tp=2' plans more than 3355", treadle_cuts_add(&cuts, 8000));
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_model_close(model);
}

static void reports(void **state) {
  (void)state;
  treadle_model *model = small_model(&usual);
  treadle_layout *from, *to;
  treadle_equal_ranks equal_ranks;
  assert_ok(treadle_layout_create(model, "hf", 1 << 30, NULL, &from));
  assert_ok(treadle_layout_create(model, "vllm:tp=2", 1 << 30, NULL, &to));
  assert_refused("report over all of its 1073741824 ranks; at most 1048576",
                 treadle_equal_ranks_create(from, to, &equal_ranks));
  assert_refused("report over all of its 1073741824 ranks",
                 treadle_layout_map_ranks(to, from, TREADLE_BEST, NULL));
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  assert_ok(treadle_layout_create(model, "zero3:dp=65536", 1 << 16, NULL, &from));
  assert_ok(treadle_layout_create(model, "hf", 1 << 16, NULL, &to));
  assert_refused("looks at more than 268435456 parts", treadle_equal_ranks_create(from, to, &equal_ranks));
  treadle_layout_destroy(from);
  treadle_layout_destroy(to);
  treadle_model_close(model);
}

/* None of it took much memory: tables were not made first and looked at then. Runs last. */
static void memory(void **state) {
  (void)state;
  struct rusage usage;
  assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
#if !TEST_SANITIZED
  assert_true(usage.ru_maxrss < 1 << 20); /* KiB */
#endif
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(large_positions), cmocka_unit_test(refused),   cmocka_unit_test(models),
      cmocka_unit_test(pieces),          cmocka_unit_test(stretches), cmocka_unit_test(runs),
      cmocka_unit_test(blocks),          cmocka_unit_test(planned),   cmocka_unit_test(reports),
      cmocka_unit_test(memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
