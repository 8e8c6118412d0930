/* src/loop/rl/loop_balance.c over engines that divide rows in several ways, four ranks: the order of rows, what each rank takes, micro batches,
 * tokens of coordinates, and the rows that ranks find in a call; engines whose coordinates do not take rows one behind the other; memory that is not there.
 * ctest: label=threads */
#include "group/ranks.h"
#include "test.h"

#include "rl/calls_rows.h"
#include "rl/coordinate_tokens.h"

enum { RANKS = 4, SAMPLES = 7, PROMPT = 3, ATTEMPTS = 100 };

/* ---- Engines ---- */

static const int64_t answers[SAMPLES] = {97, 17, 0, 57, 7, 27, 47}; /* rows: 100 20 - 60 10 30 50 */

/* As treadle_trainer_coordinate_of: `coordinates` of them, whole micro batches. */
static void divide_by(int64_t coordinates, int64_t each, int64_t rows, const int64_t *of,
                      treadle_row_range *by_rank) {
  const int64_t batches = (rows + each - 1) / each;
  for (int rank = 0; rank < RANKS; rank++) {
    const int64_t d = of[rank], first = batches * d / coordinates * each,
                  end = batches * (d + 1) / coordinates * each;
    by_rank[rank] = (treadle_row_range){first < rows ? first : rows, end < rows ? end : rows};
    if (d < 0) by_rank[rank] = (treadle_row_range){0};
  }
}

typedef struct engine {
  treadle_forward_options forward;
  int64_t coordinates, of[RANKS]; /* -1: it does not train */
  bool overlaps;
} engine;

static treadle_status divide(void *worker, const char *method, const int64_t *lengths, int64_t rows,
                             treadle_row_range *by_rank, treadle_forward_options *forward_p) {
  const engine *e = worker;
  (void)lengths; /* which fills micro batches of its own in a true engine */
  if (strcmp(method, "update") != 0) return treadle_fail(TREADLE_REFUSED, "method %s", method);
  *forward_p = e->forward;
  divide_by(e->coordinates, e->forward.micro_batch_size ? e->forward.micro_batch_size : 1, rows, e->of,
            by_rank);
  if (e->overlaps) by_rank[RANKS - 1] = (treadle_row_range){1, rows};
  return TREADLE_OK;
}

/* ---- A call ---- */

typedef struct call {
  treadle_rl_prompt prompt;
  treadle_rl_made made[SAMPLES];
  treadle_rl_batch batch;
  treadle_rl_workers workers;
  treadle_rl_tokens tokens;
  treadle_rl_rows_choice c;
  int64_t lengths[SAMPLES], *rows;
  treadle_row_range by_rank[RANKS];
  bool forms;
} call;

static int open_call(call *l, treadle_group *group, engine *e) {
  static int32_t prompt_ids[PROMPT] = {3, 1, 4}, ids[300];
  static int64_t all[SAMPLES] = {0, 1, 2, 3, 4, 5, 6};
  const treadle_rl_rows rows = {.batch = &l->batch, .samples = all, .count = SAMPLES};
  size_t first = 0;
  *l = (call){.prompt = {.ids = prompt_ids, .count = PROMPT},
              .workers = {.group = {.group = group, .worker = e}, .divide = divide, .balances = true}};
  for (size_t i = 0; i < SAMPLES; i++) {
    l->made[i] = (treadle_rl_made){.prompt = &l->prompt, .first = first, .count = (size_t)answers[i]};
    first += l->made[i].count;
  }
  l->batch.samples.items = l->made;
  l->batch.samples.count = SAMPLES;
  l->batch.ids.items = ids;
  l->batch.ids.count = first;
  l->workers.tokens = &l->tokens;
  RANK_OK(treadle_rl_set_columns(&l->batch));
  RANK_OK(treadle_rl_choose(&rows, &l->c));
  RANK_TRUE(l->c.count == SAMPLES - 1);
  return 0;
}

static void close_call(call *l) {
  treadle_free(l->c.rows);
  treadle_batch_destroy(l->batch.columns);
  treadle_free(l->batch.offsets);
  treadle_rl_tokens_release(&l->tokens);
}

/* As treadle_rl_call_rows makes it. */
static treadle_status make(call *l) {
  treadle_rl_rows_shares shares = {.method = "update", .lengths = l->lengths, .by_rank = l->by_rank};
  treadle_status status;
  for (size_t i = 0; i < l->c.count; i++) l->lengths[i] = PROMPT + answers[l->c.rows[i]];
  TRY(divide(l->workers.group.worker, "update", l->lengths, (int64_t)l->c.count, l->by_rank,
             &shares.forward));
  TRY(treadle_rl_balance(&l->workers, &l->c, &shares, &l->forms));
out:
  return status;
}

/* Rows "100 20|60 10" of each rank in turn, and numbers of micro batches behind them. */
static void show(const call *l, char text[400]) {
  treadle_column column = TREADLE_INIT(treadle_column);
  size_t at = 0;
  if (l->forms) (void)treadle_batch_column(l->batch.columns, "micro_batch", &column);
  text[0] = 0;
  for (int rank = 0; rank < RANKS; rank++) {
    for (int64_t i = l->by_rank[rank].first; i < l->by_rank[rank].end; i++) {
      const int64_t row = l->c.rows[i];
      at += (size_t)snprintf(text + at, 400 - at, "%lld%s", (long long)(PROMPT + answers[row]),
                             l->forms ? "/" : "");
      if (l->forms)
        at += (size_t)snprintf(text + at, 400 - at, "%lld", (long long)((int64_t *)column.data)[row]);
      if (i + 1 < l->by_rank[rank].end) at += (size_t)snprintf(text + at, 400 - at, " ");
    }
    if (rank + 1 < RANKS) at += (size_t)snprintf(text + at, 400 - at, "|");
  }
}

static const struct wanted {
  engine engine;
  const char *rows;
  int64_t coordinates, came[RANKS], given[RANKS];
} cases[] = {
    /* 100 20 60 10 30 50. Pairs of tensor parallel ranks have one coordinate. */
    {{{.micro_batch_size = 1}, 2, {0, 0, 1, 1}, false},
     "10 100 30|10 100 30|20 60 50|20 60 50",
     2,
     {180, 90},
     {140, 130}},
    {{{.micro_batch_size = 1}, 2, {1, 0, 1, 0}, false},
     "20 60 50|10 100 30|20 60 50|10 100 30",
     2,
     {180, 90},
     {140, 130}},
    /* Three micro batches: two are the second coordinate's. */
    {{{.micro_batch_size = 2}, 2, {0, 0, 1, 1}, false},
     "30 100|30 100|10 50 60 20|10 50 60 20",
     2,
     {120, 150},
     {130, 140}},
    /* One micro batch, of the last coordinate. */
    {{{.micro_batch_size = 8}, 4, {0, 1, 2, 3}, false},
     "|||10 30 60 100 50 20",
     4,
     {0, 0, 0, 270},
     {0, 0, 0, 270}},
    /* Ranks that generate take nothing. */
    {{{.micro_batch_size = 3}, 2, {-1, 0, -1, 1}, false}, "|10 100 30||20 60 50", 2, {180, 90}, {140, 130}},
    {{{.micro_batch_size = 1}, 1, {0, 0, 0, 0}, false},
     "100 20 60 10 30 50|100 20 60 10 30 50|100 20 60 10 30 50|100 20 60 10 30 50",
     1,
     {270},
     {270}},
    {{{.max_tokens_per_micro = 100}, 1, {0, 0, 0, 0}, false},
     "100 20 60 10 30 50|100 20 60 10 30 50|100 20 60 10 30 50|100 20 60 10 30 50",
     1,
     {270},
     {270}},
    /* Two micro batches each. The engine would fill those of rows as they come. */
    {{{.max_tokens_per_micro = 100}, 2, {0, 1, 0, 1}, false},
     "100/0 10/1 30/1|20/0 50/0 60/1|100/0 10/1 30/1|20/0 50/0 60/1",
     2,
     {180, 90},
     {140, 130}},
    /* Nobody can say whose row is whose. */
    {{{.micro_batch_size = 1}, 2, {0, 0, 1, 1}, true},
     "100 20 60|100 20 60|10 30 50|20 60 10 30 50",
     0,
     {0},
     {0}},
    {{{.micro_batch_size = 1}, 3, {0, 1, 1, 2}, true}, "100 20|60 10|60 10|20 60 10 30 50", 0, {0}, {0}},
};

static int check_case(treadle_group *group, const struct wanted *w) {
  engine e = w->engine;
  char text[400], as_came[400];
  call l;
  if (open_call(&l, group, &e)) return 1;
  RANK_OK(make(&l));
  show(&l, text);
  if (strcmp(text, w->rows) != 0) fprintf(stderr, "got %s\nnot %s\n", text, w->rows);
  RANK_TRUE(strcmp(text, w->rows) == 0);
  RANK_TRUE(l.forms == (e.forward.max_tokens_per_micro && w->coordinates > 1));
  RANK_TRUE(l.tokens.coordinates == (size_t)w->coordinates);
  for (int64_t i = 0; i < w->coordinates; i++)
    RANK_TRUE(l.tokens.came[i] == w->came[i] && l.tokens.given[i] == w->given[i]);
  close_call(&l);
  /* Nobody balances: rows stay, and tokens are those that came. */
  if (open_call(&l, group, &e)) return 1;
  l.workers.balances = false;
  RANK_OK(make(&l));
  show(&l, as_came);
  RANK_TRUE(!l.forms && (w->coordinates > 1 || strcmp(text, as_came) == 0));
  for (size_t i = 0, sample = 0; i < l.c.count; i++, sample++) {
    sample += answers[sample] == 0;
    RANK_TRUE(l.c.rows[i] == (int64_t)sample);
  }
  for (int64_t i = 0; i < w->coordinates; i++)
    RANK_TRUE(l.tokens.came[i] == w->came[i] && l.tokens.given[i] == w->came[i]);
  close_call(&l);
  return 0;
}

/* Calls add up; an engine that has other coordinates suddenly is refused. */
static int check_sums(treadle_group *group) {
  engine e = cases[0].engine;
  treadle_rl_values values = {0};
  call l;
  if (open_call(&l, group, &e)) return 1;
  treadle_rl_tokens_values(&l.tokens, &values);
  RANK_TRUE(values.all.count == 0);
  RANK_OK(make(&l));
  RANK_OK(make(&l)); /* in the order that it has got: 10 100 30 20 60 50 */
  RANK_TRUE(l.tokens.came[0] == 180 + 140 && l.tokens.came[1] == 90 + 130);
  RANK_TRUE(l.tokens.given[0] + l.tokens.given[1] == 540);
  treadle_rl_tokens_values(&l.tokens, &values);
  static const char *const names[] = {"min", "max", "minmax_diff", "balanced_min", "balanced_max", "mean"};
  const double wanted[] = {220, 320, 100, 260, 280, 270};
  RANK_TRUE(values.all.count == TEST_COUNT(names));
  for (size_t i = 0; i < TEST_COUNT(names); i++) {
    char name[64];
    snprintf(name, sizeof name, "global_seqlen/%s", names[i]);
    RANK_TRUE(strcmp(values.all.items[i].name, name) == 0 && values.all.items[i].value == wanted[i]);
  }
  treadle_rl_values_clear(&values);
  treadle_array_release(&values.all);
  e.coordinates = 4;
  for (int rank = 0; rank < RANKS; rank++) e.of[rank] = rank;
  RANK_TRUE(make(&l) == TREADLE_REFUSED);
  close_call(&l);
  return 0;
}

static int check_memory(treadle_group *group) {
  engine e = cases[7].engine;
  for (long n = 1; n <= ATTEMPTS; n++) {
    call l;
    if (open_call(&l, group, &e)) return 1;
    const long before = treadle_alloc_count();
    treadle_alloc_fail_at(n);
    const treadle_status status = make(&l);
    const bool failed = treadle_alloc_count() - before >= n;
    treadle_alloc_fail_at(0);
    RANK_TRUE(status == (failed ? TREADLE_NO_MEMORY : TREADLE_OK) && l.forms == !failed);
    close_call(&l);
    if (!failed) return n < 5;
  }
  return 1;
}

/* ---- Over ranks: each gets its rows, and their micro batches ---- */

typedef struct worker {
  engine engine; /* first: divide is given it */
  treadle_group *group;
  bool served;
} worker;

static int check_share(const worker *w, const treadle_batch *mine) {
  static const int64_t lengths[2][3] = {{100, 10, 30}, {20, 50, 60}},
                       numbers[2][3] = {{0, 1, 1}, {0, 0, 1}};
  const int64_t coordinate = w->engine.of[treadle_group_rank(w->group)];
  treadle_column ids = TREADLE_INIT(treadle_column), column = TREADLE_INIT(treadle_column);
  RANK_TRUE(treadle_batch_rows(mine) == 3);
  RANK_OK(treadle_batch_column(mine, "ids", &ids));
  RANK_OK(treadle_batch_column(mine, "micro_batch", &column));
  RANK_TRUE(column.type == TREADLE_COLUMN_INT64 && column.width == 1);
  for (int r = 0; r < 3; r++) {
    RANK_TRUE(PROMPT + ids.offsets[r + 1] - ids.offsets[r] == lengths[coordinate][r]);
    RANK_TRUE(((const int64_t *)column.data)[r] == numbers[coordinate][r]);
  }
  return 0;
}

static treadle_status update(void *context, treadle_message *in, treadle_message *out) {
  worker *w = context;
  const treadle_worker_group group = {.group = w->group};
  treadle_worker_share share = {0};
  treadle_status status;
  (void)out;
  TRY(treadle_worker_take_rows(&group, in, &share));
  if (check_share(w, share.mine)) status = treadle_fail(TREADLE_DIFFERENT, "a rank has other rows");
  w->served = true;
out:
  treadle_batch_destroy(share.mine);
  return status;
}

static const treadle_worker_method methods[] = {{"update", update, true}, {NULL, NULL, false}};

static int lead(worker *w) {
  static const char *const names[] = {"prompt_ids", "ids"};
  call l;
  if (open_call(&l, w->group, &w->engine)) return 1;
  l.workers.group.methods = methods;
  for (int again = 0; again < 2; again++) {
    treadle_message_clear(&l.workers.in);
    RANK_OK(treadle_rl_call_rows(&l.workers, "update", &l.c, names, TEST_COUNT(names)));
    RANK_TRUE(!treadle_batch_has(l.batch.columns, "micro_batch"));
    for (size_t i = 0; i < l.c.count; i++) l.c.rows[i] = (int64_t)(i + (i > 1)); /* as they came */
  }
  RANK_OK(treadle_worker_group_end(&l.workers.group, TREADLE_OK));
  treadle_rl_workers_release(&l.workers);
  close_call(&l);
  return 0;
}

static int check_ranks(treadle_group *group) {
  worker w = {.engine = cases[7].engine, .group = group};
  treadle_worker_group workers = {.group = group, .methods = methods, .worker = &w};
  if (treadle_group_rank(group) == 0) {
    if (lead(&w)) return treadle_group_fail(group), 1; /* the others do not wait */
  } else {
    RANK_OK(treadle_worker_group_serve(&workers));
    treadle_worker_group_release(&workers);
  }
  RANK_TRUE(w.served);
  return 0;
}

static int check_local(treadle_group *group) {
  for (size_t i = 0; i < TEST_COUNT(cases); i++)
    if (check_case(group, &cases[i])) {
      fprintf(stderr, "case %zu\n", i);
      return 1;
    }
  return check_sums(group) || check_memory(group);
}

static int work(treadle_group *group, void *context) {
  (void)context;
  if (treadle_group_rank(group) == 0 && check_local(group)) return treadle_group_fail(group), 1;
  return check_ranks(group);
}

static void orders(void **state) {
  (void)state;
  ranks_as_threads(RANKS, 30, 0, work, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(orders)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
