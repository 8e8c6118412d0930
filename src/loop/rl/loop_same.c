/* All ranks work by one configuration. Each reads it for itself, on its own node, and the first rank of a pool takes the numbers of its stages from its own: a file
 * that is old on one node would change the run, and the run's config.yaml would say another thing. Paths may differ. */
#include "rl/loop.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "run/config_pools.h"

#include <string.h>

enum { POOLS = TREADLE_TRAIN_KEYS, HASHES }; /* a hash for each key, and one for pools with their roles */

static const char ONE[] = "all ranks are given one configuration, in which only paths may differ";

static void write_key(treadle_builder *text, const treadle_train_config *config, int key) {
  const treadle_train_key *row = &treadle_train_keys[key];
  treadle_builder_release(text);
  if (!strcmp(row->unit, "path")) return;
  if (config->sources[key].left_out)
    treadle_builder_add(text, "null");
  else
    treadle_train_key_write(text, row, &config->settings);
}

static void write_pools(treadle_builder *text, const treadle_config_pools *pools) {
  treadle_builder_release(text);
  for (size_t p = 0; pools && p < pools->count; p++) {
    treadle_builder_add(text, "%s %d:", pools->all[p].name, (int)pools->all[p].type);
    for (size_t i = 0; i < pools->all[p].entries; i++)
      treadle_builder_add(text, " %d", pools->all[p].counts[i]);
  }
  for (size_t i = 0; pools && i < pools->role_count; i++)
    treadle_builder_add(text, "; %d %zu", (int)pools->roles[i].role, pools->roles[i].pool);
}

static treadle_status find_hashes(const treadle_train_config *config, uint64_t hashes[HASHES]) {
  treadle_builder text = {0};
  for (int key = 0; key < HASHES && !text.failed; key++) {
    if (key == POOLS)
      write_pools(&text, config->pools);
    else
      write_key(&text, config, key);
    hashes[key] = treadle_hash_text(text.text ? text.text : "", 0);
  }
  const treadle_status status =
      text.failed ? treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its text", config->file)
                  : TREADLE_OK;
  treadle_builder_release(&text);
  return status;
}

/* What this rank has and rank 0 has not. */
static treadle_status compare(const treadle_train_config *config, const uint64_t *first,
                              const uint64_t *own) {
  treadle_builder text = {0};
  treadle_status status = TREADLE_OK;
  int key = 0;
  while (key < HASHES && first[key] == own[key]) key++;
  if (key == HASHES) return TREADLE_OK;
  if (key == POOLS)
    TRY(treadle_fail(TREADLE_REFUSED, "%s has other pools, or roles in them, than that of rank 0: %s",
                     config->file, ONE));
  write_key(&text, config, key);
  status = treadle_fail(TREADLE_REFUSED, "%s is %s, and rank 0 has another value: %s",
                        treadle_train_config_place(config, key), text.text ? text.text : "", ONE);
out:
  treadle_builder_release(&text);
  return status;
}

treadle_status treadle_rl_check_same(const treadle_rl_crew *whole, const treadle_rl_task *task) {
  uint64_t own[HASHES] = {0}, *all = NULL;
  treadle_status status;
  if (!whole->group || whole->ranks == 1) return TREADLE_OK;
  TRY(treadle_rl_agree(whole, find_hashes(task->config, own)));
  all = treadle_alloc_array((size_t)whole->ranks * HASHES, sizeof *all);
  TRY(treadle_rl_agree(whole, all ? TREADLE_OK
                                  : treadle_fail(TREADLE_NO_MEMORY,
                                                 "no memory to compare %d configurations", whole->ranks)));
  TRY(treadle_group_gather(whole->group, own, sizeof own, all));
  TRY(treadle_rl_agree(whole, compare(task->config, all, own)));
out:
  treadle_free(all);
  return status;
}
