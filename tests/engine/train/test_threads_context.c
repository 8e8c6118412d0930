/* Context parallel ranks, over threads: Ulysses with replicas and with fsdp2, and cp= of a layout, give gradients,
 * losses and log-probabilities the bits of one rank with the same rows (of one data rank with fsdp2). Micro batches
 * have one leaf of tokens and several, with rows that share a prompt; some ranks have no token. What a rank holds is
 * what was predicted. Numbers that do not divide are refused. TREADLE_EXACT=1: every model with every cut. */
/* ctest: stage=gcc label=threads timeout=600 */
#include "test.h"
#include "train/distance.h"
#include "train/rows.h"

#include "group/group.h"
#include "treadle_builtin.h"

#include <math.h>
#include <pthread.h>

enum { ROWS = 7, LONGEST = 500, RANKS_MOST = 8, COUNTED_MOST = ROWS * LONGEST };

/* A micro batch of one leaf, one of three, and one that is shorter than a leaf. */
static const size_t lengths[ROWS] = {150, 130, 400, 500, 333, 18, 2};
static const int64_t batches[ROWS] = {0, 0, 1, 1, 1, 2, 2};

static treadle_status fill(int64_t vocabulary, treadle_batch **batch_p) {
  static int32_t ids[ROWS][LONGEST];
  static uint8_t mask[ROWS][LONGEST];
  static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
  rows_row rows[ROWS];
  uint64_t seed = 5;
  treadle_status status;
  pthread_mutex_lock(&once);
  for (int r = 0; r < ROWS; r++) {
    rows[r] = (rows_row){ids[r], mask[r], lengths[r], r < 5 ? 90 : 0};
    for (size_t i = 0; i < lengths[r]; i++) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      ids[r][i] = (int32_t)((seed >> 33) % (uint64_t)vocabulary);
      if ((r == 3 || r == 4) && i < 90) ids[r][i] = ids[2][i];
      mask[r][i] = i > 0 && (seed >> 20) % 8 != 0;
    }
  }
  status = rows_batch(rows, ROWS, batch_p);
  pthread_mutex_unlock(&once);
  if (status) return status;
  const treadle_column column = {.struct_size = sizeof column,
                                 .name = "micro_batch",
                                 .type = TREADLE_COLUMN_INT64,
                                 .width = 1,
                                 .data = (void *)(uintptr_t)batches};
  return treadle_batch_add(*batch_p, &column);
}

typedef struct one_rank {
  treadle_group *group; /* NULL: alone */
  const char *model, *layout;
  bool random; /* weights, of a model that has none */
  treadle_trainer_options options;
  int64_t vocabulary;
  int rank, ranks;
  treadle_status status;
  char message[512];
  uint64_t digest;
  double norm;
  treadle_loss loss;
  float logprobs[COUNTED_MOST];
  const char *out;       /* a file for the gradients; NULL: none */
  size_t counted;        /* 0: another rank is given them */
  size_t bytes, planned; /* memory of this rank, and as it was predicted */
} one_rank;

static treadle_status run(one_rank *r) {
  treadle_model *model = NULL;
  treadle_layout *layout = NULL;
  treadle_trainer *trainer = NULL;
  treadle_trainer_memory memory[RANKS_MOST];
  const treadle_forward_options forward = {.struct_size = sizeof forward, .micro_batch_size = 3};
  const treadle_loss_options nll = {.struct_size = sizeof nll, .name = "nll"};
  treadle_batch *all = NULL, *mine = NULL;
  treadle_status status;
  r->loss = TREADLE_INIT(treadle_loss);
  TRY(fill(r->vocabulary, &all));
  TRY(treadle_model_open(r->model, NULL, &model));
  TRY(treadle_layout_create(model, r->layout, r->ranks, NULL, &layout));
  TRY(treadle_trainer_create(r->group, layout, &r->options, &trainer));
  TRY(r->random ? treadle_trainer_randomise(trainer, 7) : treadle_trainer_load(trainer));
  TRY(treadle_trainer_slice(trainer, all, &forward, NULL, &mine));
  for (int turn = 0; turn < 2; turn++) /* the second time as the first */
    TRY(treadle_trainer_gradients(trainer, mine, &forward, &nll, NULL, &r->loss));
  TRY(rows_logprobs(trainer, mine, &forward, NULL, r->logprobs, NULL, &r->counted));
  TRY(treadle_trainer_norm(trainer, &r->norm));
  TRY(treadle_trainer_digest(trainer, &r->digest));
  if (r->out) TRY(treadle_trainer_save_gradients(trainer, r->out));
  r->bytes = treadle_trainer_bytes(trainer);
  TRY(treadle_trainer_foresee(layout, &r->options, memory));
  r->planned = memory[r->rank].peak;
out:
  snprintf(r->message, sizeof r->message, "%s", status ? treadle_error_message() : "");
  treadle_trainer_destroy(trainer);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
  treadle_batch_destroy(mine);
  treadle_batch_destroy(all);
  return status;
}

static void *start(void *context) {
  one_rank *r = context;
  r->status = run(r);
  return NULL;
}

/* What rank 0 of this many found; all fare alike. */
static one_rank *run_ranks(const one_rank *like, const char *layout, int ranks) {
  static one_rank all[RANKS_MOST];
  treadle_group *groups[RANKS_MOST] = {NULL};
  pthread_t threads[RANKS_MOST];
  assert_ok(treadle_group_threads(ranks, 60, groups));
  for (int i = 0; i < ranks; i++) {
    all[i] = *like;
    all[i].group = ranks > 1 ? groups[i] : NULL;
    all[i].layout = layout;
    all[i].rank = i;
    all[i].ranks = ranks;
    assert_int_equal(pthread_create(&threads[i], NULL, start, &all[i]), 0);
  }
  for (int i = 0; i < ranks; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  for (int i = 0; i < ranks; i++) treadle_group_close(groups[i]);
  for (int i = 0; i < ranks; i++) assert_int_equal(all[i].status, all[0].status);
  return all;
}

static bool is_same(const one_rank *a, const one_rank *b) {
  return a->digest == b->digest && a->norm == b->norm && a->loss.nll == b->loss.nll &&
         a->loss.aux_loss == b->loss.aux_loss && a->loss.expert_load_max == b->loss.expert_load_max &&
         a->loss.expert_load_min == b->loss.expert_load_min;
}

static one_rank run_well(const one_rank *like, const char *layout, int ranks) {
  const one_rank *all = run_ranks(like, layout, ranks);
  for (int i = 0; i < ranks; i++) {
    if (all[i].status) fail_msg("%s, %s, rank %d: %s", like->model, layout, i, all[i].message);
    if (all[i].bytes != all[i].planned)
      fail_msg("%s, %s, rank %d: holds %zu bytes, %zu were predicted", like->model, layout, i, all[i].bytes,
               all[i].planned);
    assert_true(is_same(&all[i], &all[0]));
  }
  for (int i = 0; i < ranks; i++)
    if (all[i].counted) return all[i];
  fail_msg("%s, %s: no rank has log-probabilities", like->model, layout);
  return all[0];
}

typedef struct cut {
  const char *layout;
  int ranks, ulysses;
  int heads;        /* that divide those of keys and values */
  const char *like; /* whose bits they are, on this many ranks */
  int like_ranks;
} cut;

static const cut cuts[] = {
    {"megatron:cp=2", 2, 0, 2, "hf", 1},
    {"megatron:tp=1", 2, 2, 2, "hf", 1},
    {"fsdp2", 2, 2, 2, "fsdp2", 1},
    {"megatron:pp=2,cp=2", 4, 0, 2, "hf", 1},
    {"megatron:cp=4", 4, 0, 4, "hf", 1},
    {"megatron:tp=2,cp=2", 4, 0, 4, "hf", 1},
    {"fsdp2", 4, 4, 4, "fsdp2", 1},
    {"fsdp2", 4, 2, 2, "fsdp2", 2},
    {"megatron:tp=2,pp=2", 8, 2, 4, "hf", 1},
    {"megatron:tp=2", 8, 2, 4, "megatron:dp=2", 2},
    {"megatron:pp=2,vpp=2", 4, 2, 2, "hf", 1},
    {"megatron:cp=2", 6, 0, 2, "megatron:dp=3", 3},
    {"megatron:cp=2,order=tp-dp-cp-ep-pp", 4, 0, 2, "megatron:dp=2", 2},
    {"megatron:tp=2,cp=2,ep=2,etp=1", 4, 0, 4, "hf", 1},
    {"megatron:tp=2,cp=2,ep=1,etp=1", 4, 0, 4, "hf", 1}, /* each expert on both */
    {"megatron:tp=2,ep=2,etp=1", 4, 2, 4, "hf", 1},
    {"megatron:cp=2,ep=2", 2, 0, 2, "hf", 1}, /* experts spread over them */
    {"megatron:cp=2,etp=2", 2, 0, 2, "hf", 1},
    {"megatron:tp=2,cp=2,ep=4,etp=1", 4, 0, 4, "hf", 1},
    {"megatron:tp=2,cp=2,ep=2,etp=2", 4, 0, 4, "hf", 1},
    {"megatron:cp=4,ep=4", 4, 0, 4, "hf", 1},
    {"megatron:cp=2,pp=2,ep=2", 4, 0, 2, "hf", 1},
    {"megatron:cp=2,ep=2", 4, 0, 2, "megatron:dp=2", 2},
    {"megatron:cp=2,ep=2,order=tp-dp-cp-ep-pp", 4, 0, 2, "megatron:dp=2", 2},
    {"megatron:ep=2", 4, 2, 2, "megatron:dp=2", 2}, /* Ulysses ranks are those of ep, too */
    {"megatron:tp=2,ep=4,etp=1", 4, 2, 4, "hf", 1},
    {"megatron:tp=2,cp=2,ep=2,etp=1,order=cp-tp-ep-dp-pp", 4, 0, 4, "hf", 1},
};
enum { CUTS = sizeof cuts / sizeof *cuts };

typedef struct subject {
  const char *model; /* of the sources, or beside them */
  int64_t vocabulary;
  int kv_heads;
  bool even; /* its layers make two stages */
  bool experts, random;
  int step; /* where time is short, one of this many cuts */
} subject;

static const subject subjects[] = {
    {"tests/golden/models/llama-gqa-llama3rope", 203, 2, true, false, false, 1},
    {"tests/golden/models/qwen2-tied", 203, 2, true, false, false, 1},
    {"../shared/data/golden/models/llama-tied-biases", 256, 8, true, false, false, 3},
    {"../shared/data/golden/models/qwen3", 203, 2, true, false, false, 3},
    {"../shared/data/stories260K/hf", 512, 4, false, false, false, 3},
    {"tests/data/experts/qwen3", 203, 8, true, true, true, 1},
    {"tests/data/experts/qwen2", 203, 8, true, true, true, 2},
    {"tests/golden/models/glm4moe-qknorm", 203, 2, true, true, false, 4},
    {"../shared/data/golden/models/mixtral", 203, 2, true, true, false, 5},
    {"../shared/data/golden/models/qwen3moe", 203, 2, true, true, false, 5},
};

static bool whole(void) { return getenv("TREADLE_EXACT") != NULL; }

static bool has_like(const cut *a, const cut *b) {
  return strcmp(a->like, b->like) == 0 && a->like_ranks == b->like_ranks;
}

static bool fits(const subject *s, const cut *c) {
  return (whole() || (c - cuts) % s->step == 0) && s->kv_heads % c->heads == 0 &&
         (s->even || !strstr(c->layout, "pp=")) &&
         (s->experts || (!strstr(c->layout, "ep=") && !strstr(c->layout, "etp=")));
}

/* Each layout with one of the four ways to keep activations. */
static void check_subject(const subject *s, const char *dtype, const char *kernels, int count) {
  char path[512], like_text[128], text[128];
  static one_rank alone, likes[CUTS];
  alone = (one_rank){.model = path, .random = s->random, .ranks = 1, .vocabulary = s->vocabulary};
  snprintf(path, sizeof path, "%s/%s", TREADLE_SOURCE_DIR, s->model);
  if (access(path, R_OK) != 0) {
    printf("%s is not there: skipped\n", s->model);
    return;
  }
  for (int c = 0; c < count; c++) {
    if (!fits(s, &cuts[c])) continue;
    alone.options = (treadle_trainer_options){
        .struct_size = sizeof alone.options, .kernels = kernels, .threads = 1, .most_rows = 1300};
    if (s->experts) { /* and losses of routers */
      alone.options.aux_loss_coeff = 0.1;
      alone.options.z_loss_coeff = 0.01;
    }
    snprintf(like_text, sizeof like_text, "%s%sdtype=%s", cuts[c].like,
             strchr(cuts[c].like, ':') ? "," : ":", dtype);
    int known = 0;
    while (known < c && !(fits(s, &cuts[known]) && has_like(&cuts[known], &cuts[c]))) known++;
    likes[c] = known < c ? likes[known] : run_well(&alone, like_text, cuts[c].like_ranks);
    const one_rank wanted = likes[c];
    alone.options.ulysses_ranks = cuts[c].ulysses;
    alone.options.sequence_parallel = c & 1;
    alone.options.recompute = c & 2;
    snprintf(text, sizeof text, "%s%sdtype=%s", cuts[c].layout, strchr(cuts[c].layout, ':') ? "," : ":",
             dtype);
    const one_rank got = run_well(&alone, text, cuts[c].ranks);
    assert_true(s->experts == (wanted.loss.aux_loss > 0));
    if (!is_same(&got, &wanted))
      fail_msg("%s, %s, Ulysses %d, %s, %s: other bits than %s: norm %.17g and %.17g, -log p %.17g and "
               "%.17g, losses of routers %.17g and %.17g",
               s->model, text, cuts[c].ulysses, dtype, kernels, like_text, got.norm, wanted.norm,
               got.loss.nll, wanted.loss.nll, got.loss.aux_loss, wanted.loss.aux_loss);
    assert_int_equal(got.counted, wanted.counted);
    assert_memory_equal(got.logprobs, wanted.logprobs, got.counted * sizeof *got.logprobs);
  }
}

static void test_same_bits(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) {
    check_subject(&subjects[i], i % 2 ? "bf16" : "fp32", "auto", CUTS);
    if (whole() && i == 6) check_subject(&subjects[i], "bf16", "auto", CUTS); /* with a shared expert */
    if (i == 1) check_subject(&subjects[i], "bf16", "plain", 1);              /* which take their time */
  }
}

/* More ranks than key and value heads: these are repeated. Log-probabilities have the bits of the same layout without these ranks; gradients
 * are near. */
static void test_repeated(void **state) {
  static const struct {
    const char *layout, *like;
    int ranks, ulysses, like_ranks;
  } many[] = {{"megatron:cp=4,dtype=fp32", "hf:dtype=fp32", 4, 0, 1},
              {"megatron:tp=2,cp=4,dtype=fp32", "megatron:tp=2,dtype=fp32", 8, 0, 2},
              {"megatron:tp=1,dtype=fp32", "hf:dtype=fp32", 8, 8, 1},
              {"fsdp2:dtype=fp32", "fsdp2:dtype=fp32", 4, 4, 1}};
  char path[512], folder[] = "/tmp/treadle-test-XXXXXX", wanted_file[64], file[64];
  static one_rank like;
  (void)state;
  assert_non_null(mkdtemp(folder));
  snprintf(wanted_file, sizeof wanted_file, "%s/wanted", folder);
  snprintf(file, sizeof file, "%s/got", folder);
  snprintf(path, sizeof path, "%s/%s", TREADLE_SOURCE_DIR, subjects[0].model);
  like = (one_rank){.model = path, .vocabulary = subjects[0].vocabulary};
  like.options = (treadle_trainer_options){
      .struct_size = sizeof like.options, .threads = 1, .most_rows = 1300, .fast = true};
  for (size_t i = 0; i < TEST_COUNT(many); i++) {
    like.options.ulysses_ranks = 0;
    like.out = wanted_file;
    const one_rank wanted = run_well(&like, many[i].like, many[i].like_ranks);
    like.options.ulysses_ranks = many[i].ulysses;
    like.options.recompute = i % 2;
    like.out = file;
    const one_rank got = run_well(&like, many[i].layout, many[i].ranks);
    if (distance_of_files(file, wanted_file) > 1e-5 || got.loss.nll != wanted.loss.nll)
      fail_msg("%s: gradients off by %g", many[i].layout, distance_of_files(file, wanted_file));
    assert_int_equal(got.counted, wanted.counted);
    assert_memory_equal(got.logprobs, wanted.logprobs, got.counted * sizeof *got.logprobs);
  }
  test_remove(folder);
}

static void check_refused(const subject *s, const char *layout, int ranks, int ulysses, const char *why) {
  char path[512];
  static one_rank like;
  like = (one_rank){.model = path, .vocabulary = s->vocabulary};
  snprintf(path, sizeof path, "%s/%s", TREADLE_SOURCE_DIR, s->model);
  like.options = (treadle_trainer_options){
      .struct_size = sizeof like.options, .threads = 1, .most_rows = 1300, .ulysses_ranks = ulysses};
  const one_rank *got = run_ranks(&like, layout, ranks);
  if (got->status != TREADLE_REFUSED || !strstr(got->message, why))
    fail_msg("%s, Ulysses %d: status %d, %s", layout, ulysses, got->status, got->message);
}

static void test_refused(void **state) {
  const subject experts = {"tests/data/experts/qwen3", 203, 8, true, true, true, 1},
                latent = {"tests/golden/models/dsv3-yarn", 203, 8, true, true, false, 1};
  (void)state;
  check_refused(&subjects[0], "megatron:cp=4", 4, 0, "8 query heads and 2 key and value heads, of 8 and 2");
  check_refused(&subjects[0], "megatron:tp=2,cp=2", 4, 0,
                "4 query heads and 1 key and value heads, of 8 and 2");
  check_refused(&subjects[0], "fsdp2", 4, 4, "a multiple of the others, which are repeated");
  check_refused(&subjects[0], "megatron:cp=2", 4, 2, "say one of the two");
  check_refused(&subjects[0], "fsdp2", 3, 2,
                "3 data parallel ranks, which Ulysses ranks, 2, do not divide");
  check_refused(&experts, "megatron:cp=4,ep=2", 4, 0,
                "spreads experts over some of its 4 context parallel (Ulysses) ranks");
  check_refused(&experts, "megatron:cp=2,ep=4", 4, 0, "an ep times etp that divides tp, or is tp times 2");
  check_refused(&experts, "megatron:ep=4", 4, 2, "or over other data parallel ranks");
  check_refused(&latent, "fsdp2", 2, 2, "latent attention does not go with context parallel ranks (2)");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_same_bits),
      cmocka_unit_test(test_repeated),
      cmocka_unit_test(test_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
