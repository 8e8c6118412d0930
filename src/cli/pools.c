/* treadle pools: which role of a configuration gets which ranks, nodes and bytes. Nothing is started, so the nodes may be any. */
#include "cli/pools.h"

#include "cli/cli.h"

#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { NODES_MOST = 1 << 16 };

/* ---- What is said ------------------------------------------------------------------------------------------- */

static void release(treadle_pools_table *table) {
  treadle_rl_pools_destroy(table->pools);
  free(table->rows);
  free(table->slots);
  free(table->train.by_node);
}

/* A process for each slot, and one more for a controller that works alone: on the first node. */
static treadle_status count_processes(treadle_pools_table *table) {
  treadle_pools_train *train = &table->train;
  train->by_node = calloc((size_t)table->all.nodes, sizeof *train->by_node);
  if (!train->by_node) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a table of nodes");
  train->spread = -1;
  for (int32_t s = 0; s < table->all.slots; s++) { /* node after node */
    const treadle_pools_slot *row = &table->slots[s];
    if (!s || row->slot.node != row[-1].slot.node) train->nodes++;
    train->by_node[train->nodes - 1]++;
  }
  for (int32_t p = table->all.count - 1; p >= 0; p--) {
    int32_t nodes = 0;
    for (int32_t s = 0, last = -1; s < table->all.slots; s++) {
      if (table->slots[s].pool != p || table->slots[s].slot.node == last) continue;
      last = table->slots[s].slot.node;
      nodes++;
    }
    if (nodes > 1) train->spread = p;
  }
  train->by_node[0] += table->all.first_rank;
  train->processes = table->all.slots + table->all.first_rank;
  return TREADLE_OK;
}

static treadle_status fill(treadle_pools_table *table, const treadle_train_config *config,
                           const char *families) {
  const treadle_rl_options options = {.struct_size = sizeof options, .families = families};
  treadle_status status = TREADLE_OK;
  table->all = TREADLE_INIT(treadle_rl_pools_info);
  treadle_rl_pools_get_info(table->pools, &table->all);
  table->rows = calloc((size_t)table->all.count, sizeof *table->rows);
  table->slots = calloc((size_t)table->all.slots, sizeof *table->slots);
  if (!table->rows || !table->slots)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for a table of %d slots", (int)table->all.slots);
  for (int32_t i = 0; i < table->all.count; i++) {
    treadle_pools_row *row = &table->rows[i];
    row->info = TREADLE_INIT(treadle_rl_pool_info);
    row->pool = TREADLE_INIT(treadle_resource_pool_info);
    TRY(treadle_rl_pools_get_pool(table->pools, i, &row->info));
    treadle_resource_pool_get_info(row->info.pool, &row->pool);
    for (int32_t rank = 0; rank < row->pool.slots; rank++) {
      treadle_slot slot;
      TRY(treadle_resource_pool_get_slot(row->info.pool, rank, &slot));
      table->slots[slot.number] = (treadle_pools_slot){slot, i};
    }
    treadle_progress("the bytes of pool %s", row->pool.name);
    row->memory = TREADLE_INIT(treadle_rl_pool_memory);
    TRY(treadle_rl_pools_foresee_roles(table->pools, config, &options, i, &row->memory));
  }
  TRY(count_processes(table));
out:
  treadle_progress_end();
  return status;
}

/* ---- Nodes -------------------------------------------------------------------------------------------------- */

/* "8,8,8": slots of each node; a comma at the end makes one number a count, too. */
static treadle_status read_counts(const char *text, int32_t *counts, size_t *count_p) {
  char one[16];
  int64_t value;
  *count_p = 0;
  for (const char *at = text; *at;) {
    const size_t length = strcspn(at, ",");
    snprintf(one, sizeof one, "%.*s", length < sizeof one ? (int)length : (int)sizeof one - 1, at);
    if (length >= sizeof one || !treadle_text_to_int64(one, &value) || value < 1 || value > INT32_MAX)
      REFUSE("--nodes is '%s', and must be the number of nodes, or the slots of each, such as 8,8,8",
             treadle_text_shown(text));
    if (*count_p == NODES_MOST) REFUSE("--nodes has more than %d nodes, which is the most", NODES_MOST);
    counts[(*count_p)++] = (int32_t)value;
    at += length + (at[length] == ',');
  }
  return TREADLE_OK;
}

/* A number of nodes that have equally many of the slots that the pools ask for. */
static treadle_status divide(const treadle_train_config *config, int32_t nodes, int32_t *counts) {
  treadle_rl_pools_info info = TREADLE_INIT(treadle_rl_pools_info);
  treadle_rl_pools *pools = NULL;
  treadle_status status;
  TRY(treadle_rl_pools_create(config, NULL, 0, &pools));
  treadle_rl_pools_get_info(pools, &info);
  const int32_t slots = info.slots + info.idle;
  if (nodes > NODES_MOST || (info.place && slots % nodes != 0)) {
    status =
        treadle_fail(TREADLE_REFUSED,
                     "--nodes is %d, which does not divide the %s that the pools ask for: give the slots "
                     "of each node, such as 8,8,8 (8, for one node)",
                     (int)nodes, treadle_text_of_count(slots, "slot"));
    goto out;
  }
  for (int32_t i = 0; i < nodes; i++) counts[i] = info.place ? slots / nodes : 1;
out:
  treadle_rl_pools_destroy(pools);
  return status;
}

static treadle_status place(const treadle_train_config *config, const char *nodes,
                            treadle_rl_pools **pools_p) {
  int32_t *counts = malloc(NODES_MOST * sizeof *counts);
  size_t count = 0;
  treadle_status status = TREADLE_OK;
  if (!counts) return treadle_fail(TREADLE_NO_MEMORY, "no memory for nodes");
  if (nodes) TRY(read_counts(nodes, counts, &count));
  if (count == 1 && !strchr(nodes, ',')) {
    count = (size_t)counts[0];
    TRY(divide(config, counts[0], counts));
  }
  TRY(treadle_rl_pools_create(config, count ? counts : NULL, count, pools_p));
out:
  free(counts);
  return status;
}

/* ---- The command -------------------------------------------------------------------------------------------- */

static treadle_status run(const treadle_arguments *a, treadle_pools_table *table) {
  const char *overrides[TREADLE_MAX_SETTINGS];
  size_t count = treadle_overrides_of(a, overrides);
  treadle_train_config *config = NULL;
  treadle_status status;
  TRY(treadle_rl_pools_config_read(a->words[0], overrides, count, &config));
  const char *const *warnings = treadle_train_config_warnings(config, &count);
  for (size_t i = 0; i < count; i++) fprintf(stderr, "treadle pools: warning: %s\n", warnings[i]);
  TRY(place(config, a->pools.nodes, &table->pools));
  TRY(fill(table, config, a->model.families));
  if (a->json)
    treadle_pools_print_json(table);
  else
    TRY(treadle_pools_print_text(table, a->pools.nodes));
out:
  treadle_train_config_destroy(config);
  return status;
}

int treadle_command_pools(const treadle_arguments *a) {
  treadle_pools_table table = {0};
  treadle_status status = run(a, &table);
  release(&table);
  if (status) return treadle_report_refusal("pools", status);
  return treadle_finish_output("pools", TREADLE_EXIT_OK);
}
