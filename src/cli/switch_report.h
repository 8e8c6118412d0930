/* What `treadle switch` found: figures of all ranks, printed by rank 0 as a table or as JSON. */
#ifndef TREADLE_CLI_SWITCH_REPORT_H
#define TREADLE_CLI_SWITCH_REPORT_H

#include "base/status.h"
#include "cli/json_out.h"

/* One rank's figures, direction to infer; peak over both. */
typedef struct treadle_rank_figures {
  size_t moved_bytes, lower_bound_bytes;
  size_t infer_bytes, copied_bytes, aliased_bytes;
  size_t staged_bytes, own_bytes;
  size_t served_bytes; /* of old versions, that were read and compared while updates ran */
  size_t peak_bytes, held_bytes,
      bound_bytes;                /* accounted in switches, in the pool's file, allowed in switches */
  size_t pool_bound_bytes;        /* allowed in the file: as much, or what training takes */
  double seconds, memcpy_seconds; /* medians of this rank's own times */
  int node, device; /* device: its number */
  size_t node_moved_bytes, node_sent_bytes, relayed_bytes,
      net_staging_bytes; /* of the last switch to infer */
  double net_seconds, net_pack_seconds, net_wire_seconds, net_unpack_seconds;
  size_t net_window_bytes;
  size_t dense_bytes, delta_bytes; /* of the last update, or else of that */
  double copy_seconds;             /* of the last switch to infer, on a device */
  uint64_t kernel_launches;
  int32_t waves_in_flight;
  size_t table_bytes, slab_bytes;
} treadle_rank_figures;

/* What went between nodes. */
typedef struct treadle_switch_node {
  int ranks;
  size_t moved_bytes, sent_bytes, lower_bound_bytes; /* bound 0 where it is not known: after a fault */
} treadle_switch_node;

/* Seconds of one cycle, by part. */
typedef struct treadle_switch_seconds {
  double offload, waves, wait, bind, load;
} treadle_switch_seconds;

/* Device bytes by class after an arrow, the largest over ranks. */
typedef struct treadle_residency {
  treadle_mode after;
  size_t bytes[TREADLE_CLASSES];
} treadle_residency;

enum { TREADLE_RESIDENCY_ROWS = 8 };

/* What a fault left behind. */
typedef struct treadle_fault_report {
  const char *injected; /* as it was asked for */
  int survivors, returned;
  double max_seconds; /* from the call to its return, of the slowest survivor */
  bool digest_unchanged;
  int64_t leaked; /* descriptors, mappings and files that are left */
} treadle_fault_report;

typedef struct treadle_switch_report {
  const treadle_model *model;
  const char *device; /* "cpu", "cuda" */
  const char *train, *infer, *rank_map;
  int64_t cycles, updates;
  int ranks;
  const treadle_rank_figures *figures; /* [ranks] */
  double to_infer, to_train, memcpy,
      rate;                     /* medians over cycles, barrier to barrier; to_train NaN one way */
  double to_next, unbound;      /* of an update, and of that without an engine; NaN: there were none */
  bool serves;                  /* the old version was looked at while updates ran */
  treadle_switch_seconds parts; /* largest over ranks, means over cycles */
  const treadle_residency *rows;
  int row_count;
  size_t cap_bytes, page_bytes, host_bytes; /* host: of the rank with most */
  int32_t waves;
  bool pass;
  bool compared;                      /* every byte was compared */
  bool lossless;                      /* so the digest is the same in both layouts */
  uint64_t digest;                    /* of the weights */
  const treadle_fault_report *fault;  /* NULL: none was asked for */
  const char *net;                    /* between nodes; NULL: there is one */
  const treadle_switch_node *by_node; /* [nodes] */
  int nodes;
} treadle_switch_report;

/* What went between nodes, by the figures of all ranks: nodes [*count_p], freed by treadle_free. */
treadle_status treadle_switch_nodes_make(const treadle_layout *train, const treadle_layout *infer,
                                         const treadle_rank_figures *figures, int ranks, size_t page_bytes,
                                         treadle_switch_node **nodes_p, int *count_p);
void treadle_switch_nodes_text(const treadle_switch_report *report);
void treadle_switch_nodes_json(const treadle_switch_report *report, treadle_json_out *out);

/* Of some times, the median; without the first two where there are more than two. Sorts `times`. */
double treadle_median(double *times, int64_t count);

void treadle_switch_report_text(const treadle_switch_report *report);
void treadle_switch_report_json(const treadle_switch_report *report);

#endif
