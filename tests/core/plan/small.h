/* What tests of layouts and plans share: models from a few numbers, pairs of texts that are played, and
 * explicit pieces with their own truth. */
#ifndef TREADLE_TESTS_SMALL_H
#define TREADLE_TESTS_SMALL_H

#include "plan/pairs.h"

typedef struct small_config { /* what is left out: llama, bfloat16, sizes of 1 */
  const char *type, *dtype;
  int64_t V, H, L, nh, ng, hd, I;
  bool tied;
  const char *more; /* fields as JSON: "\"num_experts\": 4" */
} small_config;

treadle_model *small_model(const small_config *config);

/* The tensor of a name, which the model has. */
int32_t small_tensor(const treadle_model *model, const char *name);

/* Plays a pair of texts in both directions (play.c): bits, coverage, and bytes against the oracle's bound.
 * f is the rank map of `to`; 1 is contiguous. */
pair_result small_play(const small_config *config, int64_t ranks, const char *from, const char *to,
                       int64_t f);

/* The same over several nodes: what enters them, too, against the oracle's bound. */
pair_result small_play_nodes(const small_config *config, const treadle_nodes *nodes, const char *from,
                             const char *to, int64_t f);

/* ---- Explicit pieces ---- */

typedef TREADLE_ARRAY(treadle_explicit_piece) small_pieces;

/* Appends rows [r0, r1) and columns [c0, c1) of a tensor, as a storage tensor of that size by its own name;
 * a vector has columns [0, 1). Nothing when the box is empty. */
void small_give(small_pieces *pieces, int64_t rank, const char *tensor, int64_t r0, int64_t r1, int64_t c0,
                int64_t c1);
/* Appends all tensors of the model that the pieces do not speak of, whole on rank 0. */
void small_give_rest(small_pieces *pieces, const treadle_model *model);

/* Plays from-pieces to to-pieces with page sharing and waves, as small_play. Small models. */
pair_result small_play_pieces(const small_config *config, int64_t ranks, const small_pieces *from,
                              const small_pieces *to);

pair_result small_play_pieces_nodes(const small_config *config, const treadle_nodes *nodes,
                                    const small_pieces *from, const small_pieces *to);

/* Applies the forward plans of all ranks to plain windows, filled as `from` says, and compares with what
 * `to` says: bits, and every element written once. Any size that fits memory. Returns the bytes moved. */
int64_t small_apply_pieces(const treadle_model *model, int64_t ranks, const small_pieces *from,
                           const small_pieces *to, int32_t waves);

#endif
