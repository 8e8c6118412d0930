/* Experts that others have recorded: what tokens chose on one rank is what they choose on several; planted records are found, token by token; and
 * where tokens go by them, the gradients of all layouts have the bits of one rank, in the memory that was predicted; also where all tokens go to the
 * same experts. Records that cannot be are refused by row and token. */
/* ctest: stage=gcc label=threads timeout=300 */
#include "group/ranks.h"
#include "test.h"
#include "train/rows.h"

#include "base/alloc.h"
#include "io/file.h"
#include "treadle_builtin.h"

#define MODEL TREADLE_SOURCE_DIR "/tests/golden/models/qwen2moe"

enum { ROWS = 5, PROMPT = 7, LONGEST = 100, EXPERTS = 8, RANKS_MOST = 8, RECORDS = ROWS * LONGEST * 64 };

/* Rows 0 and 1 have one prompt, and so have 2 and 3; the answer of row 2 is empty. */
static size_t count_of(int row) {
  return row == 2 ? PROMPT : row == 4 ? LONGEST : PROMPT + 5 + (size_t)row;
}

static treadle_status fill(treadle_batch **batch_p) {
  int32_t ids[ROWS][LONGEST];
  uint8_t mask[ROWS][LONGEST];
  rows_row rows[ROWS];
  for (int r = 0; r < ROWS; r++) {
    rows[r] = (rows_row){ids[r], mask[r], count_of(r), PROMPT};
    for (int i = 0; i < LONGEST; i++) {
      ids[r][i] = (int32_t)(((i < PROMPT ? r / 2 : r) * 31 + i * 17 + 3) % 203);
      mask[r][i] = i >= PROMPT;
    }
  }
  return rows_batch(rows, ROWS, batch_p);
}

typedef struct records {
  int64_t offsets[ROWS + 1];
  unsigned char bytes[RECORDS];
} records;

static treadle_status give(treadle_batch *batch, records *r) {
  const treadle_column column = {.struct_size = sizeof column,
                                 .name = "experts",
                                 .type = TREADLE_COLUMN_BYTES,
                                 .offsets = r->offsets,
                                 .data = r->bytes};
  return treadle_batch_add(batch, &column);
}

static treadle_status take(const treadle_batch *out, records *r) {
  treadle_column column = TREADLE_INIT(treadle_column);
  treadle_status status;
  TRY(treadle_batch_column(out, "experts", &column));
  memcpy(r->offsets, column.offsets, sizeof r->offsets);
  if (r->offsets[ROWS] > RECORDS) REFUSE("%lld bytes", (long long)r->offsets[ROWS]);
  memcpy(r->bytes, column.data, (size_t)r->offsets[ROWS]);
out:
  return status;
}

typedef struct scene {
  const char *layout;
  int ranks, layers, top;          /* layers: with experts */
  records own, planted, worst;     /* worst: every token goes to the same experts */
  int64_t through, planted_tokens; /* of all rows, prompts that rows share once */
  int64_t by_row[ROWS];
  bool replicas;
  uint64_t digest, worst_digest; /* of the gradients of planted records, on one rank; 0: not known yet */
  char *text;                    /* the file of the own choices; NULL: not known yet */
} scene;

/* Every third token of a row goes elsewhere in one of its layers: of a prompt those of both rows. */
static void plant(scene *s) {
  const int64_t record = 2 * s->layers * s->top;
  int64_t before = 0; /* records of the row before */
  s->planted = s->own;
  memset(s->by_row, 0, sizeof s->by_row);
  s->planted_tokens = s->through = 0;
  for (int r = 0; r < ROWS; r++) {
    const int64_t tokens = (s->own.offsets[r + 1] - s->own.offsets[r]) / record;
    for (int64_t t = 0; t < tokens; t++) {
      const bool shared = r % 2 && t < PROMPT, known = shared && t < before;
      unsigned char *layer =
          s->planted.bytes + s->own.offsets[r] + t * record + t / 3 % s->layers * 2 * s->top;
      s->through += !known;
      if (t % 3) continue;
      const int first = layer[0] ? 0 : EXPERTS - s->top; /* the lowest experts, or the highest */
      for (int k = 0; k < s->top; k++) layer[2 * k] = (unsigned char)(first + k);
      s->planted_tokens += !known;
      s->by_row[shared ? r - 1 : r] += !known;
    }
    before = tokens;
  }
  s->worst = s->own;
  for (int64_t i = 0; i < s->own.offsets[ROWS]; i++)
    s->worst.bytes[i] = i % 2 ? 0 : (unsigned char)(i / 2 % s->top);
}

typedef struct run {
  treadle_trainer *trainer;
  treadle_batch *out;
  treadle_loss loss;
  uint64_t digest;
} run;

static treadle_status gradients(run *r, const records *given, bool replays, bool records_asked) {
  const treadle_forward_options forward = {.struct_size = sizeof forward,
                                           .micro_batch_size = 2,
                                           .replay_experts = replays,
                                           .experts = records_asked};
  const treadle_loss_options nll = {.struct_size = sizeof nll, .name = "nll"};
  treadle_batch *all = NULL, *mine = NULL;
  treadle_status status;
  treadle_batch_destroy(r->out);
  r->out = NULL;
  TRY(fill(&all));
  if (given) TRY(give(all, (records *)given));
  TRY(treadle_trainer_slice(r->trainer, all, &forward, NULL, &mine));
  TRY(rows_out(mine, &r->out));
  r->loss = TREADLE_INIT(treadle_loss);
  TRY(treadle_trainer_gradients(r->trainer, mine, &forward, &nll, r->out, &r->loss));
  TRY(treadle_trainer_digest(r->trainer, &r->digest));
out:
  treadle_batch_destroy(mine);
  treadle_batch_destroy(all);
  return status;
}

/* The column of all rows; of replicas each has its own, and the sum is the loss's. */
static int check_rows(const scene *s, const run *r) {
  treadle_column column = TREADLE_INIT(treadle_column);
  if (s->replicas || !treadle_batch_has(r->out, "experts_differing")) return 0;
  RANK_OK(treadle_batch_column(r->out, "experts_differing", &column));
  RANK_TRUE(memcmp(column.data, s->by_row, sizeof s->by_row) == 0);
  return 0;
}

static int look_at_file(scene *s, treadle_group *group, const run *r) {
  char path[] = "/tmp/treadle-test-XXXXXX", *text;
  size_t bytes;
  if (!group || treadle_group_rank(group) == 0) RANK_TRUE(close(mkstemp(path)) == 0);
  RANK_OK(treadle_trainer_save_experts(r->trainer, r->out, path));
  if (group && treadle_group_rank(group) > 0) return 0;
  RANK_OK(treadle_file_read(path, 1 << 20, &text, &bytes));
  unlink(path);
  RANK_TRUE(bytes > 1000);
  RANK_TRUE(!s->text || strcmp(s->text, text) == 0);
  if (s->text) treadle_free(text);
  if (!s->text) s->text = text;
  return 0;
}

static int body(treadle_group *group, void *context) {
  scene *s = context;
  const treadle_trainer_options options = {
      .struct_size = sizeof options, .most_rows = 128, .most_tokens = LONGEST, .threads = 1};
  run r = {0};
  treadle_trainer_memory memory[RANKS_MOST];
  treadle_model *model;
  treadle_layout *layout;
  RANK_OK(treadle_model_open(MODEL, NULL, &model));
  RANK_OK(treadle_layout_create(model, s->layout, s->ranks, NULL, &layout));
  RANK_OK(treadle_trainer_create(group, layout, &options, &r.trainer));
  RANK_OK(treadle_trainer_load(r.trainer));
  RANK_OK(gradients(&r, NULL, false, true));
  RANK_TRUE(r.loss.experts_compared == 0);
  if (!group) {
    RANK_OK(take(r.out, &s->own));
    plant(s);
  }
  if (look_at_file(s, group, &r)) return 1;
  const uint64_t own = r.digest;
  RANK_OK(gradients(&r, &s->own, true, false)); /* nobody goes elsewhere */
  RANK_TRUE(r.digest == own && r.loss.experts_compared == s->through && r.loss.experts_differing == 0);
  RANK_OK(gradients(&r, &s->planted, false, false)); /* is found, and does nothing */
  RANK_TRUE(r.digest == own && r.loss.experts_compared == s->through);
  RANK_TRUE(r.loss.experts_differing == s->planted_tokens);
  if (check_rows(s, &r)) return 1;
  RANK_OK(gradients(&r, &s->planted, true,
                    true)); /* later layers see other rows, and may choose others by themselves */
  RANK_TRUE(r.loss.experts_differing >= s->planted_tokens && r.digest != own);
  if (!s->digest) s->digest = r.digest;
  RANK_TRUE(s->replicas || r.digest == s->digest);
  RANK_OK(gradients(&r, &s->worst, true, false)); /* in the memory that was predicted, too */
  if (!s->worst_digest) s->worst_digest = r.digest;
  RANK_TRUE(r.digest != own && (s->replicas || r.digest == s->worst_digest));
  RANK_OK(treadle_trainer_foresee(layout, &options, memory));
  RANK_TRUE(treadle_trainer_bytes(r.trainer) == memory[group ? treadle_group_rank(group) : 0].peak);
  treadle_batch_destroy(r.out);
  treadle_trainer_destroy(r.trainer);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
  return 0;
}

static const struct {
  const char *layout;
  int ranks;
  bool replicas;
} meshes[] = {{"megatron:pp=2", 2, false},
              {"megatron:tp=2,ep=2,etp=1", 2, false},
              {"megatron:tp=2,pp=2,vpp=2", 4, false},
              {"megatron:cp=2", 2, false},
              {"megatron:cp=2,ep=2", 2, false},
              {"megatron:tp=1", 2, true},
              {"megatron:pp=2,tp=2", 8, true},
              {"fsdp2", 2, true}};

static void test_layouts(void **state) {
  scene s = {.layout = "hf", .ranks = 1, .layers = 4, .top = 2};
  (void)state;
  assert_int_equal(body(NULL, &s), 0);
  assert_true(s.planted_tokens > 10 && s.through > s.planted_tokens);
  for (size_t i = 0; i < TEST_COUNT(meshes); i++) {
    s.layout = meshes[i].layout;
    s.ranks = meshes[i].ranks;
    s.replicas = meshes[i].replicas;
    ranks_as_threads(s.ranks, 60, 0, body, &s);
  }
  treadle_free(s.text);
}

/* ---- What cannot be ----------------------------------------------------------------------------------------- */

static treadle_trainer *open_trainer(const char *folder, treadle_model **model_p,
                                     treadle_layout **layout_p) {
  const treadle_trainer_options options = {
      .struct_size = sizeof options, .most_rows = 128, .most_tokens = LONGEST, .threads = 1};
  treadle_trainer *trainer;
  assert_ok(treadle_model_open(folder, NULL, model_p));
  assert_ok(treadle_layout_create(*model_p, "hf", 1, NULL, layout_p));
  assert_ok(treadle_trainer_create(NULL, *layout_p, &options, &trainer));
  assert_ok(treadle_trainer_load(trainer));
  return trainer;
}

static void test_refused(void **state) {
  treadle_model *model;
  treadle_layout *layout;
  records own, bad;
  (void)state;
  run r = {.trainer = open_trainer(MODEL, &model, &layout)};
  assert_ok(gradients(&r, NULL, false, true));
  assert_ok(take(r.out, &own));
  const int64_t record = own.offsets[ROWS] ? 2 * 4 * 2 : 0;
  assert_fails(TREADLE_REFUSED, "replay_experts: the batch has no column 'experts'",
               gradients(&r, NULL, true, false));
  bad = own;
  bad.bytes[own.offsets[1] + 2 * record] = EXPERTS + 1;
  assert_fails(TREADLE_REFUSED, "row 1: token 2 has expert 9 in experts; the model has 0 to 7",
               gradients(&r, &bad, false, false));
  bad = own;
  bad.bytes[own.offsets[1]] = bad.bytes[own.offsets[1] + 2];
  assert_fails(TREADLE_REFUSED, "row 1: the experts of token 0 do not ascend",
               gradients(&r, &bad, true, false));
  bad = own;
  bad.offsets[ROWS] -= 1;
  assert_fails(TREADLE_REFUSED,
               "row 4: 1583 bytes of experts, and 99 tokens before its last one of 16 each",
               gradients(&r, &bad, false, false));
  bad = own; /* no record of the last row: it is not compared, and not replayed */
  bad.offsets[ROWS] = bad.offsets[ROWS - 1];
  assert_ok(gradients(&r, &bad, false, false));
  assert_true(r.loss.experts_compared > 0 && r.loss.experts_differing == 0);
  assert_fails(TREADLE_REFUSED, "row 4: it has no experts to replay", gradients(&r, &bad, true, false));
  treadle_batch_destroy(r.out);
  treadle_trainer_destroy(r.trainer);
  treadle_layout_destroy(layout);
  treadle_model_close(model);

  r = (run){.trainer = open_trainer(TREADLE_SOURCE_DIR "/tests/golden/models/qwen2-tied", &model, &layout)};
  assert_fails(TREADLE_REFUSED, "the model has no experts to record", gradients(&r, NULL, false, true));
  assert_fails(TREADLE_REFUSED, "the model has no experts to replay", gradients(&r, &own, true, false));
  treadle_batch_destroy(r.out);
  treadle_trainer_destroy(r.trainer);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_layouts), cmocka_unit_test(test_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
