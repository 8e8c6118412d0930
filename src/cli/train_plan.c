/* What treadle train --plan prints: a table for ranks that are alike, pool by pool, or JSON. */
#include "cli/train_plan.h"

#include "cli/pools.h"

#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  treadle_class which[2];
} classes[] = {{"params", {TREADLE_PARAMS, TREADLE_PARAMS}},
               {"grads", {TREADLE_GRADS, TREADLE_GRADS}},
               {"optimizer", {TREADLE_OPTIMIZER, TREADLE_OPTIMIZER}},
               {"infer", {TREADLE_INFER_PARAMS, TREADLE_INFER_PARAMS}},
               {"kv", {TREADLE_KV, TREADLE_KV}},
               {"work", {TREADLE_WORK, TREADLE_TRAIN_WORK}},
               {"reference", {TREADLE_REFERENCE, TREADLE_REFERENCE}}};
enum { CLASSES = sizeof classes / sizeof *classes };

static const struct {
  const char *name;
  treadle_mode mode;
} modes[] = {{"train", TREADLE_TRAIN},
             {"forward", TREADLE_FORWARD},
             {"infer", TREADLE_INFER},
             {"host", TREADLE_HOST}};
enum { MODES = sizeof modes / sizeof *modes };

static size_t sum_of(const size_t *bytes) {
  size_t sum = 0;
  for (int c = 0; c < TREADLE_CLASSES; c++) sum += bytes[c];
  return sum;
}

/* Of a class, in a mode; in FORWARD, while the reference is there where there is one, or a critic is trained, whichever has more. */
static size_t bytes_of(const treadle_actor_memory *m, int mode, int c) {
  const size_t *bytes = m->by_mode[modes[mode].mode];
  if (modes[mode].mode == TREADLE_FORWARD && m->with_reference[TREADLE_REFERENCE])
    bytes = m->with_reference;
  if (modes[mode].mode == TREADLE_FORWARD && sum_of(m->with_critic) > sum_of(bytes)) bytes = m->with_critic;
  size_t sum = bytes[classes[c].which[0]];
  return classes[c].which[1] == classes[c].which[0] ? sum : sum + bytes[classes[c].which[1]];
}

/* "infer": the mode that holds the most. */
static const char *fullest_mode(const treadle_actor_memory *m) {
  size_t most = 0;
  int found = 0;
  for (int mode = 0; mode < MODES; mode++) {
    size_t sum = 0;
    for (int c = 0; c < CLASSES; c++) sum += bytes_of(m, mode, c);
    if (sum > most) found = mode;
    if (sum > most) most = sum;
  }
  return modes[found].name;
}

/* Of ranks from `first` on. */
static void print_table(const treadle_actor_memory *m, int64_t begin, int64_t ranks) {
  for (int64_t first = begin, end; first < ranks; first = end) {
    for (end = first + 1; end < ranks && memcmp(&m[end], &m[first], sizeof *m) == 0;) end++;
    printf("%s%lld", end - first > 1 ? "ranks " : "rank ", (long long)first);
    if (end - first > 1) printf(" to %lld", (long long)end - 1);
    printf(": peak %.1f MiB, most in mode %s; %lld KV blocks\n", (double)m[first].peak_bytes / (1 << 20),
           fullest_mode(&m[first]), (long long)m[first].kv_blocks);
    printf("  %-8s", "MiB");
    for (int c = 0; c < CLASSES; c++) printf(" %10s", classes[c].name);
    printf("\n");
    for (int mode = 0; mode < MODES; mode++) {
      printf("  %-8s", modes[mode].name);
      for (int c = 0; c < CLASSES; c++) printf(" %10.2f", (double)bytes_of(&m[first], mode, c) / (1 << 20));
      printf("\n");
    }
  }
}

/* ---- Pools ---- */

/* One of the plan. */
typedef struct plan_pool {
  treadle_rl_pool_info info;
  treadle_resource_pool_info pool;
  treadle_rl_pool_memory memory;
} plan_pool;

typedef struct plan_pools {
  treadle_rl_pools
      *pools; /* NULL: the configuration's pool has another number of slots than the plan has ranks */
  bool said;  /* by the configuration */
  int32_t count, first_rank;
  plan_pool *all; /* [count] */
} plan_pools;

static void release(plan_pools *p) {
  treadle_rl_pools_destroy(p->pools);
  free(p->all);
}

/* As if on a node with as many slots as the plan has ranks: without one of them, the controller is apart. */
static treadle_status open_pools(const treadle_train_plan *plan, const treadle_train_config *config,
                                 plan_pools *p) {
  treadle_rl_pools_info info = TREADLE_INIT(treadle_rl_pools_info);
  const int32_t ranks = (int32_t)plan->ranks;
  const treadle_status status = treadle_rl_pools_create(config, &ranks, 1, &p->pools);
  if (status) return status == TREADLE_REFUSED ? TREADLE_OK : status;
  treadle_rl_pools_get_info(p->pools, &info);
  p->said = info.place != NULL;
  p->first_rank = info.idle;
  p->count = info.count;
  if (info.idle <= 1) return TREADLE_OK;
  treadle_rl_pools_destroy(p->pools);
  *p = (plan_pools){.pools = NULL};
  return TREADLE_OK;
}

static treadle_status find_pool(const plan_pools *p, const treadle_train_config *config,
                                const treadle_rl_options *options, int32_t number) {
  plan_pool *one = &p->all[number];
  treadle_status status;
  *one = (plan_pool){.info = TREADLE_INIT(treadle_rl_pool_info),
                     .pool = TREADLE_INIT(treadle_resource_pool_info),
                     .memory = TREADLE_INIT(treadle_rl_pool_memory)};
  TRY(treadle_rl_pools_get_pool(p->pools, number, &one->info));
  treadle_resource_pool_get_info(one->info.pool, &one->pool);
  TRY(treadle_rl_pools_foresee_roles(p->pools, config, options, number, &one->memory));
out:
  return status;
}

static treadle_status find_pools(const treadle_train_plan *plan, const treadle_train_config *config,
                                 const treadle_rl_options *options, plan_pools *p) {
  treadle_rl_options silent = *options; /* the plan has said it */
  treadle_status status;
  silent.observer = NULL;
  TRY(open_pools(plan, config, p));
  p->all = calloc((size_t)p->count + 1, sizeof *p->all);
  if (!p->all) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %d pools", (int)p->count));
  for (int32_t i = 0; i < p->count; i++) TRY(find_pool(p, config, &silent, i));
out:
  return status;
}

static int64_t rank_of(const plan_pools *p, const plan_pool *one, int32_t place) {
  treadle_slot slot = {.number = 0};
  (void)treadle_resource_pool_get_slot(one->info.pool, place, &slot);
  return p->first_rank + slot.number;
}

/* "pool 'critic': 40.0 MiB of a rank: Critic 40.0 MiB" */
static void print_head(const plan_pool *one) {
  printf("pool '%s': %s of a rank", treadle_text_shown(one->pool.name),
         treadle_text_of_size(one->memory.bytes));
  for (int32_t i = 0; i < one->info.role_count; i++) {
    const treadle_pool_role role = one->info.roles[i];
    const size_t bytes = one->memory.role_bytes[role];
    printf("%s %s %s", i ? "," : ":", treadle_pool_role_name(role),
           bytes ? treadle_text_of_size(bytes) : "-");
  }
  if (one->memory.room)
    printf("; %s %s, which device_memory leaves", one->memory.fits ? "fits into" : "does not fit into",
           treadle_text_of_size(one->memory.room));
  printf("\n");
}

/* Ranks of a pool may be neighbours, or not. */
static void print_pools(const treadle_train_plan *plan, const plan_pools *p) {
  if (!p->said || !p->pools) {
    print_table(plan->by_rank, 0, plan->ranks);
    return;
  }
  if (p->first_rank) printf("rank 0 is the controller, and has nothing on a device\n");
  for (int32_t i = 0; i < p->count; i++) {
    const plan_pool *one = &p->all[i];
    print_head(one);
    for (int32_t place = 0, end; place < one->pool.slots; place = end) {
      const int64_t first = rank_of(p, one, place);
      for (end = place + 1; end < one->pool.slots && rank_of(p, one, end) == first + end - place;) end++;
      print_table(plan->by_rank, first, first + end - place);
    }
  }
}

/* ---- JSON ---- */

static void print_rank(treadle_json_out *out, const treadle_actor_memory *m, int64_t rank, size_t kept) {
  treadle_json_out_open(out, NULL, '{');
  treadle_json_out_int(out, "rank", rank);
  treadle_json_out_open(out, "modes", '{');
  for (int mode = 0; mode < MODES; mode++) {
    treadle_json_out_open(out, modes[mode].name, '{');
    for (int c = 0; c < CLASSES; c++)
      treadle_json_out_int(out, classes[c].name, (int64_t)bytes_of(m, mode, c));
    treadle_json_out_close(out, '}');
  }
  treadle_json_out_close(out, '}');
  treadle_json_out_int(out, "peak_bytes", (int64_t)m->peak_bytes);
  treadle_json_out_int(out, "kept_bytes", (int64_t)kept);
  treadle_json_out_close(out, '}');
}

static void print_pool(treadle_json_out *out, const plan_pools *p, const plan_pool *one) {
  treadle_json_out_open(out, NULL, '{');
  treadle_json_out_text(out, "name", one->pool.name);
  treadle_json_out_open(out, "ranks", '[');
  for (int32_t place = 0; place < one->pool.slots; place++)
    treadle_json_out_int(out, NULL, rank_of(p, one, place));
  treadle_json_out_close(out, ']');
  treadle_pools_print_memory(out, &one->info, &one->memory);
  treadle_json_out_int(out, "kv_blocks", one->memory.kv_blocks);
  treadle_json_out_close(out, '}');
}

/* Of the ranks that generate, the fewest. */
static int64_t fewest_blocks(const treadle_train_plan *plan, const plan_pools *p) {
  int64_t fewest = -1;
  for (int32_t i = 0; p->pools && i < p->count; i++)
    if (p->all[i].memory.kv_blocks && (fewest < 0 || p->all[i].memory.kv_blocks < fewest))
      fewest = p->all[i].memory.kv_blocks;
  for (int64_t rank = 0; !p->pools && rank < plan->ranks; rank++)
    if (fewest < 0 || plan->by_rank[rank].kv_blocks < fewest) fewest = plan->by_rank[rank].kv_blocks;
  return fewest < 0 ? 0 : fewest;
}

static void print_json(const treadle_train_plan *plan, const plan_pools *p) {
  treadle_json_out out = {.file = stdout};
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_int(&out, "peak_bytes", (int64_t)plan->peak);
  treadle_json_out_int(&out, "kv_blocks", fewest_blocks(plan, p));
  treadle_json_out_bool(&out, "fits", plan->fits);
  treadle_json_out_open(&out, "by_rank", '[');
  for (int64_t rank = p->first_rank; rank < plan->ranks; rank++)
    print_rank(&out, &plan->by_rank[rank], rank, plan->kept);
  treadle_json_out_close(&out, ']');
  treadle_json_out_open(&out, "pools", '[');
  for (int32_t i = 0; i < p->count; i++) print_pool(&out, p, &p->all[i]);
  treadle_json_out_close(&out, ']');
  treadle_json_out_close(&out, '}');
}

treadle_status treadle_train_plan_print(const treadle_train_plan *plan, const treadle_train_config *config,
                                        const treadle_rl_options *options, bool json) {
  plan_pools pools = {0};
  treadle_status status;
  TRY(find_pools(plan, config, options, &pools));
  if (json)
    print_json(plan, &pools);
  else
    print_pools(plan, &pools);
out:
  release(&pools);
  return status;
}

treadle_status treadle_train_plan_ranks(const treadle_train_config *config, int64_t *ranks_p) {
  treadle_rl_pools_info info = TREADLE_INIT(treadle_rl_pools_info);
  treadle_rl_pools *pools = NULL;
  treadle_status status;
  *ranks_p = 1;
  TRY(treadle_rl_pools_create(config, NULL, 0, &pools));
  treadle_rl_pools_get_info(pools, &info);
  if (info.count > 1) *ranks_p = info.slots + 1;
out:
  treadle_rl_pools_destroy(pools);
  return status;
}
