/* What treadle pools prints: JSON, or a table and a picture. Slots stand node after node. */
#include "cli/pools.h"

#include "cli/cli.h"
#include "cli/json_out.h"

#include "base/utf8.h"

#include <stdlib.h>

/* The rank of the run that is `rank` of a pool: entry after entry. */
static int32_t rank_of(const treadle_pools_table *table, const treadle_pools_row *row, int32_t rank) {
  treadle_slot slot = {0};
  (void)treadle_resource_pool_get_slot(row->info.pool, rank, &slot);
  return table->all.first_rank + slot.number;
}

/* ---- JSON --------------------------------------------------------------------------------------------------- */

static void print_roles(treadle_json_out *out, const treadle_rl_pool_info *info) {
  treadle_json_out_open(out, "roles", '[');
  for (int32_t i = 0; i < info->role_count; i++)
    treadle_json_out_text(out, NULL, treadle_pool_role_name(info->roles[i]));
  treadle_json_out_close(out, ']');
}

/* 0: not known, or no limit. */
static void print_bytes(treadle_json_out *out, const char *key, size_t bytes) {
  if (bytes)
    treadle_json_out_int(out, key, (int64_t)bytes);
  else
    treadle_json_out_text(out, key, NULL);
}

void treadle_pools_print_memory(treadle_json_out *out, const treadle_rl_pool_info *info,
                                const treadle_rl_pool_memory *memory) {
  print_roles(out, info);
  print_bytes(out, "bytes", memory->is_known ? memory->bytes : 0);
  treadle_json_out_open(out, "role_bytes", '{');
  for (int32_t i = 0; i < info->role_count; i++)
    print_bytes(out, treadle_pool_role_name(info->roles[i]), memory->role_bytes[info->roles[i]]);
  treadle_json_out_close(out, '}');
  print_bytes(out, "room_bytes", memory->room);
  if (memory->is_known)
    treadle_json_out_bool(out, "fits", memory->fits);
  else
    treadle_json_out_text(out, "fits", NULL);
}

static void print_pool(treadle_json_out *out, const treadle_pools_table *table, int32_t number) {
  const treadle_pools_row *row = &table->rows[number];
  treadle_json_out_open(out, NULL, '{');
  treadle_json_out_text(out, "name", row->pool.name);
  treadle_json_out_open(out, "ranks", '[');
  for (int32_t rank = 0; rank < row->pool.slots; rank++)
    treadle_json_out_int(out, NULL, rank_of(table, row, rank));
  treadle_json_out_close(out, ']');
  treadle_json_out_open(out, "nodes", '[');
  for (int32_t s = 0, last = -1; s < table->all.slots; s++) { /* node after node */
    if (table->slots[s].pool != number || table->slots[s].slot.node == last) continue;
    last = table->slots[s].slot.node;
    treadle_json_out_int(out, NULL, last);
  }
  treadle_json_out_close(out, ']');
  treadle_pools_print_memory(out, &row->info, &row->memory);
  treadle_json_out_close(out, '}');
}

/* null: it refuses them. */
static void print_train(treadle_json_out *out, const treadle_pools_train *train) {
  if (train->spread >= 0) {
    treadle_json_out_text(out, "train", NULL);
    return;
  }
  treadle_json_out_open(out, "train", '{');
  treadle_json_out_int(out, "processes", train->processes);
  treadle_json_out_open(out, "nodes", '[');
  for (int32_t i = 0; i < train->nodes; i++) treadle_json_out_int(out, NULL, train->by_node[i]);
  treadle_json_out_close(out, ']');
  treadle_json_out_close(out, '}');
}

void treadle_pools_print_json(const treadle_pools_table *table) {
  treadle_json_out out = {.file = stdout};
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_int(&out, "slots", table->all.slots);
  treadle_json_out_int(&out, "controller", table->all.controller);
  print_train(&out, &table->train);
  treadle_json_out_open(&out, "pools", '[');
  for (int32_t i = 0; i < table->all.count; i++) print_pool(&out, table, i);
  treadle_json_out_close(&out, ']');
  treadle_json_out_open(&out, "ranks", '[');
  for (int32_t s = 0; s < table->all.slots; s++) {
    const treadle_pools_slot *row = &table->slots[s];
    treadle_json_out_open(&out, NULL, '{');
    treadle_json_out_int(&out, "rank", table->all.first_rank + s);
    treadle_json_out_int(&out, "node", row->slot.node);
    treadle_json_out_int(&out, "local_rank", row->slot.local_rank);
    treadle_json_out_int(&out, "local_world", row->slot.local_world);
    print_roles(&out, &table->rows[row->pool].info);
    treadle_json_out_close(&out, '}');
  }
  treadle_json_out_close(&out, ']');
  treadle_json_out_close(&out, '}');
}

/* ---- Text --------------------------------------------------------------------------------------------------- */

/* "1-32,49" of one number after the other; the last one is followed by -1. */
typedef struct runs {
  int64_t first, last;
} runs;

static void add_number(treadle_builder *text, runs *r, int64_t number) {
  if (number == r->last + 1 && r->first >= 0) {
    r->last = number;
    return;
  }
  if (r->last > r->first) treadle_builder_add(text, "-%lld", (long long)r->last);
  if (number >= 0) treadle_builder_add(text, "%s%lld", r->first >= 0 ? "," : "", (long long)number);
  r->first = r->last = number;
}

static void add_ranks(treadle_builder *text, const treadle_pools_table *table,
                      const treadle_pools_row *row) {
  runs r = {-1, -1};
  for (int32_t rank = 0; rank < row->pool.slots; rank++) add_number(text, &r, rank_of(table, row, rank));
  add_number(text, &r, -1);
}

static void add_nodes(treadle_builder *text, const treadle_pools_table *table, int32_t pool) {
  runs r = {-1, -1};
  for (int32_t s = 0, last = -1; s < table->all.slots; s++) {
    if (table->slots[s].pool != pool || table->slots[s].slot.node == last) continue;
    last = table->slots[s].slot.node;
    add_number(text, &r, last);
  }
  add_number(text, &r, -1);
}

static char letter_of(int32_t pool) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  return pool < (int32_t)sizeof letters - 1 ? letters[pool] : '#';
}

enum { COLUMNS = 5 };

/* "27.1 MiB: ActorRollout 24.1 MiB, RewardModel 3.0 MiB; more than 20.0 MiB": where roles share it, each of them. */
static void add_bytes(treadle_builder *text, const treadle_pools_row *row) {
  const treadle_rl_pool_memory *m = &row->memory;
  treadle_builder_add(text, "%s", m->is_known ? treadle_text_of_size(m->bytes) : "-");
  for (int32_t i = 0; m->bytes && row->info.role_count > 1 && i < row->info.role_count; i++) {
    const size_t bytes = m->role_bytes[row->info.roles[i]];
    treadle_builder_add(text, "%s %s %s", i ? "," : ":", treadle_pool_role_name(row->info.roles[i]),
                        bytes ? treadle_text_of_size(bytes) : "-");
  }
  if (m->is_known && !m->fits) treadle_builder_add(text, "; more than %s", treadle_text_of_size(m->room));
}

static void add_cells(treadle_builder cells[COLUMNS], const treadle_pools_table *table, int32_t number) {
  const treadle_pools_row *row = &table->rows[number];
  treadle_builder_add(&cells[0], "%c  %s", letter_of(number), treadle_text_shown(row->pool.name));
  for (int32_t i = 0; i < row->info.role_count; i++)
    treadle_builder_add(&cells[1], "%s%s", i ? ", " : "", treadle_pool_role_name(row->info.roles[i]));
  add_ranks(&cells[2], table, row);
  add_nodes(&cells[3], table, number);
  add_bytes(&cells[4], row);
}

/* A table, as wide as its cells are. false: memory was out. */
static bool print_pools(const treadle_pools_table *table) {
  static const char *const heads[COLUMNS] = {"   pool", "roles", "ranks", "nodes", "bytes of a rank"};
  const size_t rows = (size_t)table->all.count + 1;
  treadle_builder(*cells)[COLUMNS] = calloc(rows, sizeof *cells);
  int widths[COLUMNS] = {0};
  bool is_good = cells;
  for (int c = 0; cells && c < COLUMNS; c++) treadle_builder_add(&cells[0][c], "%s", heads[c]);
  for (size_t i = 1; cells && i < rows; i++) add_cells(cells[i], table, (int32_t)i - 1);
  for (size_t i = 0; cells && i < rows; i++)
    for (int c = 0; c < COLUMNS; c++) {
      is_good = is_good && !cells[i][c].failed;
      if ((int)cells[i][c].length > widths[c]) widths[c] = (int)cells[i][c].length;
    }
  for (size_t i = 0; is_good && i < rows; i++)
    for (int c = 0; c < COLUMNS; c++)
      printf("%-*s%s", c < COLUMNS - 1 ? widths[c] : 0, cells[i][c].text, c < COLUMNS - 1 ? "  " : "\n");
  for (size_t i = 0; cells && i < rows; i++)
    for (int c = 0; c < COLUMNS; c++) treadle_builder_release(&cells[i][c]);
  free(cells);
  return is_good;
}

/* Where the slots of a node end. */
static int32_t end_of(const treadle_pools_table *table, int32_t first) {
  return first + table->slots[first].slot.local_world;
}

static bool is_like(const treadle_pools_table *table, int32_t a, int32_t b) {
  bool is = table->slots[a].slot.local_world == table->slots[b].slot.local_world;
  for (int32_t i = 0; is && i < table->slots[a].slot.local_world; i++)
    is = table->slots[a + i].pool == table->slots[b + i].pool;
  return is;
}

/* A letter for each slot; nodes after each other that look alike share a line. */
static void print_nodes(const treadle_pools_table *table) {
  enum { SHOWN = 64 };
  for (int32_t first = 0, next; first < table->all.slots; first = next) {
    const treadle_pools_slot *row = &table->slots[first];
    int32_t last = first;
    for (next = end_of(table, first); next < table->all.slots && is_like(table, first, next);
         next = end_of(table, next))
      last = next;
    char nodes[32];
    snprintf(nodes, sizeof nodes, last > first ? "nodes %d-%d" : "node %d", (int)row->slot.node,
             (int)table->slots[last].slot.node);
    printf("%-14s ", nodes);
    for (int32_t s = first; s < end_of(table, first) && s < first + SHOWN; s++)
      putchar(letter_of(table->slots[s].pool));
    if (row->slot.local_world > SHOWN) printf("... %d slots", (int)row->slot.local_world);
    putchar('\n');
  }
}

/* --nodes of treadle train counts processes, and not slots. */
static void print_processes(const treadle_pools_table *table) {
  const treadle_pools_train *train = &table->train;
  if (train->spread >= 0) {
    printf("\ntreadle train: refuses them: pool '%s' is on several nodes, and in this version a role is on "
           "one\n",
           treadle_text_shown(table->rows[train->spread].pool.name));
    return;
  }
  printf("\ntreadle train: %lld process%s", (long long)train->processes, train->processes == 1 ? "" : "es");
  for (int32_t i = 0; train->nodes > 1 && i < train->nodes; i++)
    printf("%s%lld", i ? "," : ", --nodes ", (long long)train->by_node[i]);
  printf("%s\n", table->all.first_rank ? "; the controller is one more on the first node" : "");
}

treadle_status treadle_pools_print_text(const treadle_pools_table *table, bool has_nodes) {
  const treadle_rl_pools_info *all = &table->all;
  bool is_known = true, is_any = false;
  for (int32_t i = 0; i < all->count; i++) {
    is_known = is_known && table->rows[i].memory.is_known;
    is_any = is_any || table->rows[i].memory.is_known;
  }
  printf("%s on %s%s; the controller is rank 0, and %s\n", treadle_text_of_count(all->slots, "slot"),
         treadle_text_of_count(all->nodes, "node"), has_nodes ? "" : ", as --nodes does not say on which",
         all->first_rank ? "works alone" : "also works");
  if (!all->place) printf("the configuration says nothing of pools: all slots are one\n");
  if (all->idle) printf("%s left over\n", treadle_text_count_is(all->idle, "more slot"));
  printf("\n");
  if (!print_pools(table)) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a table of pools");
  printf("\n");
  print_nodes(table);
  print_processes(table);
  if (is_any)
    printf("\nbytes: the most that a rank has on its device at once, of all roles of its pool: weights, "
           "gradients, optimizer state, KV cache, and what they compute in\n");
  if (!is_known)
    printf(
        "%sbytes -: a role has no model (actor_config.model, reward_config.model), or no work in this run, "
        "or does not run in this pool yet; or --nodes has to say how many ranks there are\n",
        is_any ? "" : "\n");
  return TREADLE_OK;
}
