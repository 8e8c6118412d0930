/* Rotary position embedding: which frequencies a model's config asks for, tables of cosines and sines, and the rotation.
 *
 * Rules and roundings are those of transformers 5.23 (modeling_rope_utils.py): frequencies and angles in fp32, an angle is
 * position times frequency. `rope_scaling` (with `type` or `rope_type`) and the newer `rope_parameters` are read; where both
 * are there, the first counts. What stands in it goes before fields of the same name beside it (rope_theta,
 * partial_rotary_factor), except original_max_position_embeddings, where the one beside it does. Types: default, linear,
 * llama3, yarn; others and unknown fields are refused by name.
 *
 * Cosines and sines come from nn/exp.h, and are the same on every machine. */
#ifndef TREADLE_NN_ROPE_H
#define TREADLE_NN_ROPE_H

#include "base/status.h"
#include "nn/rows.h"

#include <jansson.h>

#define TREADLE_ROPE_MAX_POSITIONS (INT64_C(1) << 24) /* fp32 has each of them */

typedef enum treadle_rope_type {
  TREADLE_ROPE_DEFAULT,
  TREADLE_ROPE_LINEAR,
  TREADLE_ROPE_LLAMA3,
  TREADLE_ROPE_YARN,
} treadle_rope_type;

/* What the family says. Zeros are sane defaults. */
typedef struct treadle_rope_spec {
  int64_t
      head_dim; /* of what is rotated: with MLA qk_rope_head_dim. 0: head_dim, or hidden_size / num_attention_heads */
  double theta;     /* where the config has no rope_theta; 0: 10000 */
  double partial;   /* where it has no partial_rotary_factor; 0: 1 */
  bool interleaved; /* pairs are neighbours, unless the config has rope_interleave: false; else halves */
} treadle_rope_spec;

typedef struct treadle_rope {
  treadle_rope_type type;
  bool interleaved;
  int64_t pairs;          /* 2 * pairs values from the first of a head are rotated */
  double theta, factor;   /* factor: 1 where the type has none */
  float attention_factor; /* yarn: in cosines and sines already */
  /* yarn with mscale_all_dim, m = 0.1 * mscale_all_dim * ln(factor) + 1: m * m. DeepSeek's attention multiplies its
   * soft-max scale by it, others do not; 1 elsewhere. */
  double softmax_factor;
  float *inverse; /* [pairs] frequencies */
  int64_t positions;
  float *cosine,
      *sine; /* [positions, pairs], or where interleaved [positions, 2 * pairs], as nn/rows.h rotates */
} treadle_rope;

/* Reads the rope of a config.json; no positions yet. Messages begin with the field. *rope_p is ended by release. */
treadle_status treadle_rope_read(const json_t *config, const treadle_rope_spec *spec, treadle_rope *rope_p);
void treadle_rope_release(treadle_rope *rope);

/* Makes the tables long enough for positions below `positions`; what is there stays. Nobody may use the rope meanwhile. */
treadle_status treadle_rope_extend(treadle_rope *rope, int64_t positions);
/* Bytes of the tables for this many positions. */
int64_t treadle_rope_bytes(const treadle_rope *rope, int64_t positions);

/* Rotates `count` heads at `heads`, `stride` values apart, position < rope->positions. */
void treadle_rope_apply(const treadle_rope *rope, const treadle_row_ops *ops, float *heads, int64_t stride,
                        int64_t count, int64_t position);
/* The rotation by the opposite angle, which is the adjoint. Of heads of at most TREADLE_ROPE_WIDTH_MOST values. */
enum { TREADLE_ROPE_WIDTH_MOST = 1024 };
void treadle_rope_undo(const treadle_rope *rope, const treadle_row_ops *ops, float *heads, int64_t stride,
                       int64_t count, int64_t position);

#endif
