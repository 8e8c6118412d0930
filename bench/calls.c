/* bench_calls [--runs N] [--json]: a call of rank 0's that hands an update to all ranks (control/worker_group.h).
 *
 * A batch of 2,048 samples of 500 tokens: ids, log-probabilities by three policies, 16 bytes a token, and an advantage
 * a sample. 2, 4 and 8 processes; rank 0 makes a call with the batch, and each rank adds up the words of its share of
 * the rows, as data parallel ranks take theirs. Medians of the runs on rank 0, beside memcpy of as many bytes. Then the
 * calls of ranks that are divided into two nodes, which reach each other by TCP over loopback. */
#include "processes.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "control/worker_rows.h"

#include <stdio.h>

enum { SAMPLES = 2048, TOKENS = 500, PROMPT = 8 };
static const struct {
  const char *name;
  treadle_column_type type;
  int64_t values; /* of a sample */
} columns[] = {
    {"prompt_ids", TREADLE_COLUMN_INT32, PROMPT},       {"ids", TREADLE_COLUMN_INT32, TOKENS},
    {"old_log_probs", TREADLE_COLUMN_FP32, TOKENS},     {"ref_log_probs", TREADLE_COLUMN_FP32, TOKENS},
    {"rollout_log_probs", TREADLE_COLUMN_FP32, TOKENS}, {"advantage", TREADLE_COLUMN_FP64, 1},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

typedef struct result {
  bench_size size;
  double call, nothing, copy; /* seconds: of an update, of a call without values, of memcpy */
  double far_call, far_nothing;
} result;

typedef struct worker {
  const treadle_worker_group *workers;
  uint64_t sum;
} worker;

static size_t bytes_of(treadle_column_type type) {
  return type == TREADLE_COLUMN_FP64 ? sizeof(double) : sizeof(float);
}

/* The words of a column's rows. */
static uint64_t sum_of(const treadle_column *column, int64_t rows) {
  const size_t each = bytes_of(column->type);
  const int64_t first = column->offsets ? column->offsets[0] : 0;
  const int64_t values = column->offsets ? column->offsets[rows] - first : rows * column->width;
  const char *from = (const char *)column->data + (size_t)first * each;
  uint64_t sum = 0, word;
  for (size_t at = 0; at + sizeof word <= (size_t)values * each; at += sizeof word) {
    memcpy(&word, from + at, sizeof word);
    sum += word;
  }
  return sum;
}

/* This rank's share of the rows. */
static treadle_status add_up(void *context, treadle_message *in, treadle_message *out) {
  worker *w = context;
  treadle_worker_share share;
  treadle_status status;
  (void)out;
  TRY(treadle_worker_take_rows(w->workers, in, &share));
  for (int i = 0; i < COLUMNS; i++) {
    treadle_column column = TREADLE_INIT(treadle_column);
    TRY(treadle_batch_column(share.mine, columns[i].name, &column));
    w->sum += sum_of(&column, treadle_batch_rows(share.mine));
  }
out:
  treadle_batch_destroy(share.mine);
  return status;
}

static treadle_status do_nothing(void *context, treadle_message *in, treadle_message *out) {
  (void)context;
  (void)in;
  (void)out;
  return TREADLE_OK;
}

static const treadle_worker_method methods[] = {
    {"update", add_up, false}, {"nothing", do_nothing, false}, {NULL, NULL, false}};

/* All rows, divided evenly. */
typedef struct update {
  int64_t rows[SAMPLES];
  treadle_row_range by_rank[BENCH_MAX_RANKS];
  treadle_worker_rows divided;
} update;

static void divide(const treadle_batch *batch, int64_t ranks, update *u) {
  for (int64_t r = 0; r < SAMPLES; r++) u->rows[r] = r;
  for (int64_t rank = 0; rank < ranks; rank++)
    u->by_rank[rank] = (treadle_row_range){SAMPLES / ranks * rank, SAMPLES / ranks * (rank + 1)};
  u->divided = (treadle_worker_rows){.rows = {.batch = batch, .rows = u->rows, .row_count = SAMPLES},
                                     .by_rank = u->by_rank};
}

/* Of a call, from putting rows into its message to its end; rows NULL: with nothing. The message keeps its room from one
 * run to the next. */
static treadle_status measure(treadle_worker_group *workers, const treadle_worker_rows *rows,
                              treadle_message *in, int runs, double *seconds_p) {
  treadle_status status = TREADLE_OK;
  treadle_message out = {0};
  double seconds[BENCH_MAX_RUNS];
  for (int run = -1; run < runs; run++) {
    double begin = treadle_clock_seconds();
    treadle_message_clear(in);
    TRY(rows ? treadle_worker_group_call_rows(workers, "update", in, rows, &out)
             : treadle_worker_group_call(workers, "nothing", in, &out));
    if (run >= 0) seconds[run] = treadle_clock_seconds() - begin;
  }
  *seconds_p = bench_median(seconds, runs);
out:
  treadle_message_release(&out);
  return status;
}

/* Of the message's bytes, which may lie where all ranks read them. */
static treadle_status measure_copy(const treadle_message *in, int runs, double *seconds_p) {
  double seconds[BENCH_MAX_RUNS];
  char *to = treadle_alloc_array(in->length, 1);
  if (!to) return treadle_fail(TREADLE_NO_MEMORY, "memory is out");
  for (int run = -1; run < runs; run++) {
    double begin = treadle_clock_seconds();
    memcpy(to, in->bytes, in->length);
    if (run >= 0) seconds[run] = treadle_clock_seconds() - begin;
  }
  treadle_free(to);
  *seconds_p = bench_median(seconds, runs);
  return TREADLE_OK;
}

static treadle_status add_column(treadle_batch *batch, const char *name, treadle_column_type type,
                                 int64_t values) {
  int64_t offsets[SAMPLES + 1];
  treadle_column column = {.struct_size = sizeof column, .name = name, .type = type};
  treadle_status status;
  for (int64_t r = 0; r <= SAMPLES; r++) offsets[r] = r * values;
  if (values > 1) column.offsets = offsets;
  TRY(treadle_batch_add(batch, &column));
  TRY(treadle_batch_column(batch, name, &column));
  memset(column.data, 0x3c, (size_t)(SAMPLES * values) * bytes_of(type));
out:
  return status;
}

static treadle_status measure_all(treadle_worker_group *workers, bool far, result *r) {
  treadle_status status;
  treadle_batch *batch = NULL;
  treadle_message in = {0}, nothing = {0};
  update all;
  TRY(treadle_batch_create(SAMPLES, &batch));
  for (int i = 0; i < COLUMNS; i++)
    TRY(add_column(batch, columns[i].name, columns[i].type, columns[i].values));
  divide(batch, r->size.ranks, &all);
  TRY(measure(workers, &all.divided, &in, r->size.runs, far ? &r->far_call : &r->call));
  if (!far) TRY(measure_copy(&in, r->size.runs, &r->copy));
  TRY(measure(workers, NULL, &nothing, r->size.runs, far ? &r->far_nothing : &r->nothing));
out:
  status = treadle_worker_group_end(workers, status);
  treadle_batch_destroy(batch);
  treadle_message_release(&in);
  treadle_message_release(&nothing);
  return status;
}

/* Neighbours are on one node. The port is one that other groups hardly have. */
static treadle_status open_two_nodes(const char *name, int rank, int ranks, treadle_group **group_p) {
  char address[40];
  treadle_store store = TREADLE_INIT(treadle_store);
  treadle_status status;
  snprintf(address, sizeof address, "127.0.0.1:%d",
           (int)(20000 + treadle_hash_bytes(name, strlen(name), 0) % 12000));
  const treadle_store_options options = {
      .struct_size = sizeof options, .address = address, .job = name, .rank = rank, .ranks = ranks};
  TRY(treadle_store_open(&options, &store));
  TRY(treadle_group_store(&store, rank, ranks, rank / (ranks / 2), 60, group_p));
out:
  treadle_store_close(&store);
  return status;
}

static treadle_status run_group(const char *name, int rank, bool far, result *r) {
  treadle_status status = TREADLE_OK;
  worker w = {0};
  treadle_worker_group workers = {.methods = methods, .worker = &w};
  treadle_group *group = NULL;
  w.workers = &workers;
  TRY(far ? open_two_nodes(name, rank, r->size.ranks, &group)
          : treadle_group_open(name, rank, r->size.ranks, 60, &group));
  workers.group = group;
  TRY(rank == 0 ? measure_all(&workers, far, r) : treadle_worker_group_serve(&workers));
out:
  treadle_worker_group_release(&workers);
  treadle_group_close(group);
  if (status != TREADLE_OK) fprintf(stderr, "bench_calls: %s\n", treadle_error_message());
  return status;
}

static treadle_status run_rank(const char *name, int rank, void *context) {
  treadle_status status = TREADLE_OK;
  TRY(run_group(name, rank, false, context));
  TRY(run_group(name, rank, true, context));
out:
  return status;
}

static void print(const void *measured, bool json) {
  const result *r = measured;
  printf(
      json ? "  {\"ranks\": %d, \"update_ms\": %.3f, \"nothing_ms\": %.3f, \"memcpy_ms\": %.3f, "
             "\"nodes_2_update_ms\": %.3f, \"nodes_2_nothing_ms\": %.3f}"
           : "%d ranks: an update %.2f ms, a call without values %.3f ms, memcpy of the update %.2f ms; on "
             "2 nodes an update %.2f ms, a call without values %.3f ms\n",
      r->size.ranks, r->call * 1e3, r->nothing * 1e3, r->copy * 1e3, r->far_call * 1e3,
      r->far_nothing * 1e3);
}

int main(int count, char **texts) {
  result r = {.size = {.runs = 7}};
  return bench_by_ranks(count, texts, "calls", run_rank, &r, print);
}
