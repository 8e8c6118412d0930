/* Which pools a run may have whose ranks work together: one, of all of them. */
#include "rl/pools.h"

#include "base/alloc.h"
#include "base/text.h"
#include "base/utf8.h"
#include "run/config_pools.h"

#include <stdio.h>

/* Do its entries fit on the nodes of the group's ranks? */
static treadle_status check_nodes(const treadle_config_pool *asked, const treadle_rl_crew *crew) {
  const treadle_resource_pool_spec spec = {
      .name = asked->name, .counts = asked->counts, .entries = asked->entries};
  int32_t *node_of = treadle_alloc_array((size_t)crew->ranks, sizeof *node_of);
  treadle_resource_pool *pool = NULL;
  treadle_status status =
      node_of ? TREADLE_OK
              : treadle_fail(TREADLE_NO_MEMORY, "no memory for nodes of %d ranks", crew->ranks);
  TRY(status);
  for (int rank = 0; rank < crew->ranks; rank++) node_of[rank] = treadle_group_node(crew->group, rank);
  TRY(treadle_resource_pool_create(&spec, 1, node_of, (size_t)crew->ranks, &pool));
out:
  treadle_resource_pool_destroy(pool);
  treadle_free(node_of);
  return status;
}

treadle_status treadle_rl_check_pools(const treadle_train_config *config, const treadle_rl_crew *crew) {
  const treadle_config_pools *asked = config->pools;
  char text[512];
  if (!asked) return TREADLE_OK;
  if (asked->count > 1)
    REFUSE("%s: %s says %zu pools: their ranks do not all work together", config->file, asked->place,
           asked->count);
  const int64_t slots = treadle_config_pool_slots(&asked->all[0]);
  if (slots == crew->ranks || asked->all[0].type == TREADLE_POOL_ALL)
    return asked->is_own && crew->group ? check_nodes(&asked->all[0], crew) : TREADLE_OK;
  if (asked->is_own)
    REFUSE("%s: %s: pool '%s' has %s, and the run has %s: start %lld, or change the pool", config->file,
           asked->place, treadle_text_shown(asked->all[0].name), treadle_text_of_count(slots, "slot"),
           treadle_text_of_count(crew->ranks, "rank"), (long long)slots);
  snprintf(text, sizeof text, "%.200s: %.200s asks for %s, and the run has %s", config->file, asked->place,
           treadle_text_of_count(slots, "slot"), treadle_text_of_count(crew->ranks, "rank"));
  treadle_rl_warn(crew, text);
  return TREADLE_OK;
}
