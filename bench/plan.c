/* bench_plan [--device DEVICE] [--runs N] [--json]: what the plan of one rank costs.
 *
 * Each plan is made in a fresh process, which is cold: its heap is empty, and no page of the library's code
 * was touched. Counted is what `treadle plan` calls plan_seconds, in processor time of the one thread: from
 * the opened model to the finished plan, both layouts included; and how much the peak resident size (VmHWM)
 * grew over it. The processes of all rows take turns, so that a slow minute of the machine hits all alike.
 * Printed are medians.
 *
 * The bars: one rank's plan for Llama-3.1-70B, megatron:tp=8,pp=16 to vllm:tp=16 on 16,384 ranks, and for
 * DeepSeek-V3 with its experts over 32 ranks to 32 other places, to bf16 and to fp8, takes under 50 ms and 64 MiB,
 * and at most 1.5 times the time on 256 (2,048) ranks plus 2 ms. It is held at the first, a middle and the last
 * rank. A missed bar is printed; the exit status is 1 only when a plan cannot be made.
 *
 * Rank -1 is the report over all ranks: sets of equal ranks, and smallest cap and figures of one rank of each. The last rows are layouts
 * by placements on a mesh (replicate, dp, tp): their bar, 100 ms, is for meshes whose dp is a node or two (docs/speed.md).
 *
 * --device cuda: with the pages and the cap that are usual there; the device itself is not needed.
 */
#include "bench.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "plan/one_rank.h"
#include "plan/plan.h"
#include "report/equal_ranks.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/wait.h>

static const char llama_70b[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 128256, \"hidden_size\": 8192, \"intermediate_size\": "
    "28672,"
    " \"num_hidden_layers\": 80, \"num_attention_heads\": 64, \"num_key_value_heads\": 8,"
    " \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}";
static const char llama_8b[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 128256, \"hidden_size\": 4096, \"intermediate_size\": "
    "14336,"
    " \"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 8,"
    " \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}";
static const char qwen_7b[] =
    "{\"model_type\": \"qwen2\", \"vocab_size\": 152064, \"hidden_size\": 3584, \"intermediate_size\": "
    "18944,"
    " \"num_hidden_layers\": 28, \"num_attention_heads\": 28, \"num_key_value_heads\": 4,"
    " \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}";

#define DEEPSEEK_V3                                                                                        \
  "{\"model_type\": \"deepseek_v3\", \"vocab_size\": 129280, \"hidden_size\": 7168, "                      \
  "\"intermediate_size\": 18432,"                                                                          \
  " \"moe_intermediate_size\": 2048, \"num_hidden_layers\": 61, \"num_attention_heads\": 128,"             \
  " \"num_key_value_heads\": 128, \"n_routed_experts\": 256, \"n_shared_experts\": 1,"                     \
  " \"first_k_dense_replace\": 3, \"moe_layer_freq\": 1, \"q_lora_rank\": 1536, \"kv_lora_rank\": 512,"    \
  " \"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, \"v_head_dim\": 128, "                            \
  "\"num_nextn_predict_layers\": 1,"                                                                       \
  " \"num_experts_per_tok\": 8, \"n_group\": 8, \"topk_group\": 4, \"tie_word_embeddings\": false,"        \
  " \"torch_dtype\": \"bfloat16\""
static const char deepseek_v3[] = DEEPSEEK_V3 "}";
static const char deepseek_v3_fp8[] = DEEPSEEK_V3 ", \"quantization_config\": {\"quant_method\": \"fp8\", "
                                                  "\"fmt\": \"e4m3\", \"weight_block_size\": [128, 128]}}";

#define DEEPSEEK_PAIR "megatron:tp=4,pp=8,last=5,ep=32,etp=1", "vllm:tp=8,dp=4,ep=on"
#define DEEPSEEK      "DeepSeek-V3", deepseek_v3, DEEPSEEK_PAIR
#define DEEPSEEK_FP8  "DeepSeek-V3, fp8", deepseek_v3_fp8, DEEPSEEK_PAIR

typedef struct subject {
  const char *model, *config, *from, *to; /* from: a layout's text, or "placements on 256x8x8" */
  int64_t ranks, rank;                    /* rank -1: all, one of each type */
} subject;

/* The rows of the bars come first, in pairs: few ranks, then 16,384. */
static const subject subjects[] = {
    {"Llama-3.1-70B", llama_70b, "megatron:tp=8,pp=16", "vllm:tp=16", 256, 0},
    {"Llama-3.1-70B", llama_70b, "megatron:tp=8,pp=16", "vllm:tp=16", 16384, 0},
    {"Llama-3.1-70B", llama_70b, "megatron:tp=8,pp=16", "vllm:tp=16", 256, 131},
    {"Llama-3.1-70B", llama_70b, "megatron:tp=8,pp=16", "vllm:tp=16", 16384, 8195},
    {"Llama-3.1-70B", llama_70b, "megatron:tp=8,pp=16", "vllm:tp=16", 256, 255},
    {"Llama-3.1-70B", llama_70b, "megatron:tp=8,pp=16", "vllm:tp=16", 16384, 16383},
    {DEEPSEEK, 2048, 0},
    {DEEPSEEK, 16384, 0},
    {DEEPSEEK, 2048, 1027},
    {DEEPSEEK, 16384, 8195},
    {DEEPSEEK, 2048, 2047},
    {DEEPSEEK, 16384, 16383},
    {DEEPSEEK_FP8, 2048, 0},
    {DEEPSEEK_FP8, 16384, 0},
    {DEEPSEEK_FP8, 2048, 1027},
    {DEEPSEEK_FP8, 16384, 8195},
    {DEEPSEEK_FP8, 2048, 2047},
    {DEEPSEEK_FP8, 16384, 16383},
    {"Llama-3.1-70B", llama_70b, "vllm:tp=16", "megatron:tp=8,pp=16", 16384, 8195},
    {"Qwen2.5-7B", qwen_7b, "megatron:tp=4", "vllm:tp=4", 4, 1},
    {"Llama-3.1-8B", llama_8b, "megatron:tp=2", "vllm:tp=8", 8, 3},
    {"Llama-3.1-8B", llama_8b, "hf", "vllm:tp=8", 8, 3},
    {"DeepSeek-V3", deepseek_v3, "megatron:pp=16,first=4,last=1,ep=64", "vllm:dp=64,ep=on", 1024, -1},
    {"Llama-3.1-70B", llama_70b, "placements on 256x8x8", "vllm:tp=8", 16384, 8195},
    {"Llama-3.1-70B", llama_70b, "placements on 64x32x8", "vllm:tp=8", 16384, 8195},
    {"Llama-3.1-70B", llama_70b, "placements on 1x2048x8", "vllm:tp=8", 16384, 8195},
};
enum { SUBJECTS = sizeof subjects / sizeof subjects[0], BAR_PAIRS = 9 };
static const double bar_seconds = 50e-3, bar_times = 1.5, bar_plus = 2e-3, bar_bytes = 64 << 20;

static treadle_memory_kind memory; /* of the windows */

typedef struct cost {
  double seconds, bytes, open_seconds; /* doubles all, for the median */
  int64_t ops;                         /* all ranks: types */
  int32_t waves;
} cost;

/* The figures of one rank of each type. */
static treadle_status measure_all(const treadle_layout *from, const treadle_layout *to, cost *cost_p) {
  const int64_t page = (int64_t)treadle_default_page(memory), cap = (int64_t)treadle_default_cap(memory);
  treadle_status status = TREADLE_OK;
  treadle_equal_ranks types;
  cost_p->waves = treadle_plan_waves(from, to, page, cap);
  TRY(treadle_equal_ranks_create(from, to, &types));
  cost_p->ops = types.count;
  for (int32_t k = 0; k < types.count && !status; k++) {
    int64_t cap_min;
    treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
    status = one_rank_cap_min(from, to, types.first[k], page, &cap_min);
    if (!status) status = one_rank_figures(from, to, types.first[k], page, cost_p->waves, &info);
  }
  treadle_equal_ranks_release(&types);
out:
  return status;
}

/* Placements of a llama on a mesh (replicate, dp, tp), as fully_shard and Hugging Face's tp_plan place it. Made of text and names
 * here: what a program gives is ready, so this is not counted. */
typedef struct placing {
  treadle_placed_mesh mesh;
  treadle_placed_tensor *tensors; /* NULL: the layout has a text */
  size_t count;
} placing;

static bool has(const char *name, const char *word) { return strstr(name, word) != NULL; }

static treadle_status place(const treadle_model *model, const char *text, placing *made) {
  long long size[3];
  if (sscanf(text, "placements on %lldx%lldx%lld", &size[0], &size[1], &size[2]) != 3) return TREADLE_OK;
  made->mesh = (treadle_placed_mesh){.ndim = 3, .size = {size[0], size[1], size[2]}};
  int32_t count = treadle_model_tensor_count(model);
  made->tensors = treadle_alloc_array((size_t)count + 1, sizeof *made->tensors);
  if (!made->tensors) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %d tensors", count);
  for (int32_t t = 0; t < count; t++) {
    treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
    treadle_status status = treadle_model_tensor(model, t, &info);
    if (status) return status;
    bool columns = has(info.name, "o_proj") || has(info.name, "down_proj");
    treadle_placed_tensor *tensor = &made->tensors[made->count++];
    *tensor = (treadle_placed_tensor){.tensor = info.name, .ndim = info.ndim};
    memcpy(tensor->shape, info.shape, sizeof tensor->shape);
    tensor->placements[1].type = TREADLE_FULLY_SHARD;
    if (!has(info.name, "norm")) tensor->placements[2] = (treadle_placement){TREADLE_SHARD, columns, 0};
  }
  return TREADLE_OK;
}

static treadle_status make_from(const subject *s, const treadle_model *model, const placing *placed,
                                treadle_layout **from_p) {
  if (!placed->tensors) return treadle_layout_create(model, s->from, s->ranks, NULL, from_p);
  return treadle_layout_from_placements(model, s->ranks, &placed->mesh, 1, placed->tensors, placed->count,
                                        from_p);
}

/* Makes the plan; this process has made none before. */
static treadle_status make(const subject *s, cost *cost_p) {
  treadle_status status = TREADLE_OK;
  treadle_model *model = NULL;
  treadle_layout *from = NULL, *to = NULL;
  treadle_plan *plan = NULL;
  placing placed = {0};
  double begin = treadle_clock_processor_seconds();
  TRY(bench_open_model(s->config, 0, &model));
  cost_p->open_seconds = treadle_clock_processor_seconds() - begin;
  TRY(place(model, s->from, &placed));
  size_t bytes = treadle_clock_peak_rss_bytes();
  begin = treadle_clock_processor_seconds();
  TRY(make_from(s, model, &placed, &from));
  TRY(treadle_layout_create(model, s->to, s->ranks, NULL, &to));
  if (s->rank >= 0)
    TRY(treadle_plan_create(
        from, to, s->rank,
        &(treadle_plan_options){.struct_size = sizeof(treadle_plan_options), .memory = memory}, &plan));
  else
    TRY(measure_all(from, to, cost_p));
  cost_p->seconds = treadle_clock_processor_seconds() - begin;
  cost_p->bytes = (double)(treadle_clock_peak_rss_bytes() - bytes);
  if (plan) {
    cost_p->ops = (int64_t)(plan->forward.ops.count + plan->back.ops.count +
                            plan->forward.block_rows.count + plan->back.block_rows.count);
    cost_p->waves = plan->waves;
  }
out:
  treadle_free(placed.tensors);
  treadle_plan_destroy(plan);
  treadle_layout_destroy(to);
  treadle_layout_destroy(from);
  treadle_model_close(model);
  return status;
}

/* The same in a process of its own. */
static treadle_status make_apart(const subject *s, cost *cost_p) {
  int ends[2], how = 0;
  if (pipe(ends)) return treadle_fail(TREADLE_SYSTEM, "pipe: %s", strerror(errno));
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    cost mine = {0};
    treadle_status status = make(s, &mine);
    if (status) fprintf(stderr, "bench_plan: %s: %s\n", s->model, treadle_error_message());
    _exit(status || write(ends[1], &mine, sizeof mine) != (ssize_t)sizeof mine);
  }
  close(ends[1]);
  ssize_t got = child < 0 ? -1 : read(ends[0], cost_p, sizeof *cost_p);
  close(ends[0]);
  if (child < 0 || waitpid(child, &how, 0) != child || how != 0 || got != (ssize_t)sizeof *cost_p)
    return treadle_fail(TREADLE_SYSTEM, "the process for rank %" PRId64 " of %s failed", s->rank, s->model);
  return TREADLE_OK;
}

static bool meets_bar(const cost *small, const cost *large) {
  return large->seconds < bar_seconds && large->bytes < bar_bytes &&
         large->seconds <= bar_times * small->seconds + bar_plus;
}

static void print_table(const cost *costs, int runs) {
  printf("One rank's plan, cold, medians of %d processes\n\n", runs);
  printf("  %-16s %-37s %-20s %6s %5s %5s %6s %7s %7s %8s\n", "model", "from", "to", "ranks", "rank",
         "waves", "ops", "CPU ms", "MiB", "open ms");
  for (int i = 0; i < SUBJECTS; i++) {
    const subject *s = &subjects[i];
    const cost *c = &costs[i];
    printf("  %-16s %-37s %-20s %6" PRId64 " %5" PRId64 " %5d %6" PRId64 " %7.2f %7.2f %8.2f\n", s->model,
           s->from, s->to, s->ranks, s->rank, c->waves, c->ops, 1e3 * c->seconds, c->bytes / (1 << 20),
           1e3 * c->open_seconds);
  }
  printf("\n  rank -1: all ranks, and ops are the kinds that were measured\n  bar: under %.0f ms and %.0f "
         "MiB, at most "
         "%.1f times the cost on few ranks plus %.0f ms\n",
         1e3 * bar_seconds, bar_bytes / (1 << 20), bar_times, 1e3 * bar_plus);
  for (int i = 0; i < 2 * BAR_PAIRS; i += 2)
    printf("  %-16s rank %-5" PRId64 " of %" PRId64 ": %5.2f times the cost on %" PRId64 ": %s\n",
           subjects[i + 1].model, subjects[i + 1].rank, subjects[i + 1].ranks,
           costs[i + 1].seconds / costs[i].seconds, subjects[i].ranks,
           meets_bar(&costs[i], &costs[i + 1]) ? "met" : "MISSED");
}

static void print_json(const cost *costs, int runs) {
  bool met = true;
  for (int i = 0; i < 2 * BAR_PAIRS; i += 2) met = met && meets_bar(&costs[i], &costs[i + 1]);
  printf("{\n  \"runs\": %d, \"bar_met\": %s,\n  \"rows\": [", runs, met ? "true" : "false");
  for (int i = 0; i < SUBJECTS; i++) {
    const subject *s = &subjects[i];
    printf("%s\n    {\"model\": \"%s\", \"from\": \"%s\", \"to\": \"%s\", \"ranks\": %" PRId64
           ", \"rank\": %" PRId64 ", \"waves\": %d, \"operations\": %" PRId64
           ", \"cpu_seconds\": %.6f, \"peak_rss_bytes\": %.0f, \"open_cpu_seconds\": %.6f}",
           i ? "," : "", s->model, s->from, s->to, s->ranks, s->rank, costs[i].waves, costs[i].ops,
           costs[i].seconds, costs[i].bytes, costs[i].open_seconds);
  }
  printf("\n  ]\n}\n");
}

int main(int count, char **texts) {
  treadle_status status = TREADLE_OK;
  bool json = false, cuda = false;
  int runs = 20;
  double *seconds = NULL, *bytes = NULL, *opens = NULL; /* [SUBJECTS, runs] */
  cost costs[SUBJECTS];
  for (int i = 1; i < count; i++) {
    const char *value;
    if ((value = bench_option(texts, &i, "--runs"))) {
      runs = atoi(value);
    } else if ((value = bench_option(texts, &i, "--device"))) {
      TRY(treadle_device_is_cuda(value, &cuda));
    } else if (strcmp(texts[i], "--json") == 0) {
      json = true;
    } else {
      runs = 0;
    }
    if (runs <= 0) {
      fprintf(stderr, "usage: bench_plan [--device DEVICE] [--runs N] [--json]\n");
      return 2;
    }
  }
  memory = cuda ? TREADLE_MEMORY_CUDA : TREADLE_MEMORY_HOST;
  seconds = treadle_alloc_array((size_t)runs * SUBJECTS, sizeof *seconds);
  bytes = treadle_alloc_array((size_t)runs * SUBJECTS, sizeof *bytes);
  opens = treadle_alloc_array((size_t)runs * SUBJECTS, sizeof *opens);
  if (!seconds || !bytes || !opens) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %d runs", runs));
  for (int run = 0; run < runs; run++)
    for (int i = 0; i < SUBJECTS; i++) {
      TRY(make_apart(&subjects[i], &costs[i]));
      seconds[i * runs + run] = costs[i].seconds;
      bytes[i * runs + run] = costs[i].bytes;
      opens[i * runs + run] = costs[i].open_seconds;
    }
  for (int i = 0; i < SUBJECTS; i++) {
    costs[i].seconds = bench_median(&seconds[i * runs], runs);
    costs[i].bytes = bench_median(&bytes[i * runs], runs);
    costs[i].open_seconds = bench_median(&opens[i * runs], runs);
  }
  if (json)
    print_json(costs, runs);
  else
    print_table(costs, runs);
out:
  if (status) fprintf(stderr, "bench_plan: %s\n", treadle_error_message());
  treadle_free(seconds);
  treadle_free(bytes);
  treadle_free(opens);
  return status != TREADLE_OK;
}
