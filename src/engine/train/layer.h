/* A layer: forward with what is kept of it, and backward from that. */
#ifndef TREADLE_TRAIN_LAYER_H
#define TREADLE_TRAIN_LAYER_H

#include "train/back.h"
#include "train/stage.h"

/* What backward needs of a layer, of one micro batch. */
typedef struct treadle_train_activations {
  float *x;         /* [own rows, hidden]: the residual stream before the layer */
  float *middle_x;  /* [own rows, hidden]: between its halves */
  float *qkv, *raw; /* [rows, qkv]; raw: before norms of heads and rotation, where there are such norms */
  float *found;     /* [rows, found] */
  float *narrow, *latent; /* latent attention, before the norms: [rows, narrow], [rows, latent_dim] */
  float *latent_found;    /* [rows, latent] */
  float *gate_up;         /* [rows, 2 * inner]: of the MLP, or of the shared expert */
  float *router_logits, *shared_scale; /* [rows, experts]; [rows]: logits of the shared expert's gate */
  treadle_routed *routed;              /* [rows, top] */
} treadle_train_activations;

/* ---- activations.c ---- */

/* Has any layer norms of heads? */
bool treadle_train_norms_heads(const treadle_transformer *transformer);
/* Those of a layer of this rank and a micro batch. */
treadle_train_activations treadle_train_activations_of(const treadle_back *back,
                                                       const treadle_train_chunk *chunk, int32_t layer,
                                                       int32_t micro_batch);
/* Those of a layer that is computed again, without the residual stream. */
treadle_train_activations treadle_train_again(const treadle_back *back);
/* How many values forward keeps of a layer, and how many a layer has that is computed again. */
int64_t treadle_train_kept_values(const treadle_back *back);
int64_t treadle_train_again_values(const treadle_back *back);
/* The residual stream of a micro batch after the last layer. */
float *treadle_train_out(const treadle_back *back, int32_t micro_batch);

/* ---- layer.c ---- */

/* buffers.x of the pass, through a layer; what backward needs is kept. */
treadle_status treadle_train_forward(const treadle_back *back, int32_t layer, const treadle_pass_step *step,
                                     const treadle_train_activations *kept);
/* What backward needs beside: *kept_p is whole, and buffers.normed and normed2 are as they were. */
treadle_status treadle_train_prepare(const treadle_back *back, int32_t layer, const treadle_pass_step *step,
                                     treadle_train_activations *kept_p);

/* ---- back_layer.c ---- */

/* buffers.dx: from the gradient of what layer `layer` gave to that of what it was given. */
treadle_status treadle_back_layer(const treadle_back *back, int32_t layer, const treadle_pass_step *step,
                                  treadle_train_activations kept);

#endif
