/* What treadle pools says, and how it is printed. */
#ifndef TREADLE_CLI_POOLS_H
#define TREADLE_CLI_POOLS_H

#include "cli/json_out.h"

#include "treadle_control.h"

typedef struct treadle_pools_row {
  treadle_rl_pool_info info;
  treadle_resource_pool_info pool;
  treadle_rl_pool_memory memory;
} treadle_pools_row;

typedef struct treadle_pools_slot {
  treadle_slot slot;
  int32_t pool;
} treadle_pools_slot;

/* What treadle train needs for these pools on these nodes. */
typedef struct treadle_pools_train {
  int32_t
      spread; /* the first pool that is on several nodes, where treadle train wants it on one; -1: none is */
  int64_t processes; /* the controller among them */
  int64_t *by_node;  /* [nodes] on each node that has any */
  int32_t nodes;
} treadle_pools_train;

typedef struct treadle_pools_table {
  treadle_rl_pools *pools;
  treadle_rl_pools_info all;
  treadle_pools_row *rows;   /* [all.count] */
  treadle_pools_slot *slots; /* [all.slots] by number */
  treadle_pools_train train;
} treadle_pools_table;

/* Into an open object: roles, bytes, role_bytes, room_bytes, fits. */
void treadle_pools_print_memory(treadle_json_out *out, const treadle_rl_pool_info *info,
                                const treadle_rl_pool_memory *memory);
/* One JSON object. */
void treadle_pools_print_json(const treadle_pools_table *table);
/* A table of pools, and a picture of the nodes; has_nodes: the caller said which there are. */
treadle_status treadle_pools_print_text(const treadle_pools_table *table, bool has_nodes);

#endif
