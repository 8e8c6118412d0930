/* Megatron's grids and options, which the distributed optimizer needs as well. */
#ifndef TREADLE_TESTS_ORACLE_MEGATRON_H
#define TREADLE_TESTS_ORACLE_MEGATRON_H

#include "oracle/oracle_parts.h"

typedef struct oracle_megatron {
  int64_t tp, pp, cp, dp, ep, etp, edp;
  bool te, mla_fused;
  int experts;    /* 0 grouped, 1 sequential, 2 stacked, 3 legacy */
  int64_t padded; /* vocabulary rows */
  char order[32];
  oracle_stages stages;
} oracle_megatron;

/* Takes all of megatron's options and checks them; `stages` is to be freed, whatever comes back. */
bool oracle_megatron_read(const oracle_layout *layout, oracle_options *options, oracle_megatron *g,
                          char *why);
/* The coordinates of a rank and its tensors, chunk by chunk. */
void oracle_megatron_rank(oracle_layout *layout, const oracle_megatron *g, int64_t r);

#endif
