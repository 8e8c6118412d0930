/* Activations: what backward needs of a layer lies in memory that forward fills for each layer and micro batch, or in that of the one layer
 * which is computed again. */
#include "train/layer.h"

#include "base/larger.h"

enum { ALIGNMENT = 64 };

bool treadle_train_norms_heads(const treadle_transformer *transformer) {
  for (int32_t l = 0; l < transformer->layers; l++)
    if (transformer->layer[l].tensor[TREADLE_ROLE_Q_NORM] >= 0 ||
        transformer->layer[l].tensor[TREADLE_ROLE_K_NORM] >= 0)
      return true;
  return false;
}

/* Values of what is kept of the choices of experts. */
static int64_t place_routing(const treadle_back *back, float *at, treadle_train_activations *kept) {
  const treadle_transformer *d = back->transformer;
  const int64_t unit = ALIGNMENT / (int64_t)sizeof(float), rows = back->rows;
  const int64_t sizes[] = {rows * d->routing.experts, d->shared_intermediate ? rows : 0,
                           rows * d->routing.top * (int64_t)(sizeof(treadle_routed) / sizeof(float))};
  float *places[3];
  int64_t used = 0;
  for (int i = 0; i < 3; i++) {
    places[i] = at && sizes[i] ? at + used : NULL;
    used += (sizes[i] + unit - 1) / unit * unit;
  }
  kept->router_logits = places[0];
  kept->shared_scale = places[1];
  kept->routed = (treadle_routed *)(void *)places[2];
  return used;
}

/* Values of what is kept of a layer, at each 64 bytes; at NULL they are only counted. */
static int64_t place_layer(const treadle_back *back, float *at, bool stream, bool parts,
                           treadle_train_activations *kept) {
  const int64_t unit = ALIGNMENT / (int64_t)sizeof(float), hidden = back->transformer->hidden;
  const int64_t own = back->own_rows;
  const int64_t qkv = parts ? back->width.qkv : 0;
  /* of context parallel ranks, all rows of the heads that are compared here, which may be repeated ones */
  const int64_t compared = parts ? back->context.rows * back->attended.qkv : 0;
  const int64_t sizes[] = {stream ? own * hidden : 0,
                           stream && parts ? own * hidden : 0,
                           treadle_larger(back->rows * qkv, back->context.ranks > 1 ? compared : 0),
                           treadle_train_norms_heads(back->transformer) ? back->rows * qkv : 0,
                           parts ? back->rows * back->width.found : 0,
                           parts ? back->rows * back->width.narrow : 0,
                           parts && back->width.latent ? back->rows * back->transformer->latent_dim : 0,
                           parts ? back->rows * back->width.latent : 0,
                           parts ? back->rows * 2 * back->width.inner : 0};
  float **const places[] = {&kept->x,      &kept->middle_x,     &kept->qkv,
                            &kept->raw,    &kept->found,        &kept->narrow,
                            &kept->latent, &kept->latent_found, &kept->gate_up};
  int64_t used = 0;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    *places[i] = at && sizes[i] ? at + used : NULL;
    used += (sizes[i] + unit - 1) / unit * unit;
  }
  return parts ? used + place_routing(back, at ? at + used : NULL, kept) : used;
}

treadle_train_activations treadle_train_activations_of(const treadle_back *back,
                                                       const treadle_train_chunk *chunk, int32_t layer,
                                                       int32_t micro_batch) {
  int64_t place = chunk->place + layer - chunk->first_layer;
  treadle_train_activations kept = {0};
  place_layer(back,
              back->buffers.kept +
                  (place * back->kept_count + micro_batch % back->kept_count) * back->kept_each,
              true, back->keeps_all, &kept);
  return kept;
}

treadle_train_activations treadle_train_again(const treadle_back *back) {
  treadle_train_activations kept = {0};
  place_layer(back, back->buffers.again, false, true, &kept);
  return kept;
}

float *treadle_train_out(const treadle_back *back, int32_t micro_batch) {
  return back->buffers.out + micro_batch % back->kept_count * back->rows * back->transformer->hidden;
}

int64_t treadle_train_kept_values(const treadle_back *back) {
  treadle_train_activations kept = {0};
  return place_layer(back, NULL, true, back->keeps_all, &kept);
}

int64_t treadle_train_again_values(const treadle_back *back) {
  treadle_train_activations kept = {0};
  return place_layer(back, NULL, false, true, &kept);
}
