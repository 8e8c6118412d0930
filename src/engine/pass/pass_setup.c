/* What a pass reckons with beside weights: positions, attention, routing, the places of layers in the cache. */
#include "pass/pass_steps.h"

#include "base/dtype.h"

#include <math.h>
#include <string.h>

static treadle_status no_memory(void) {
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for a forward pass");
}

static treadle_status set_rope(treadle_pass *p) {
  const treadle_transformer *d = p->transformer;
  treadle_rope_spec spec = {.head_dim = d->rope_dim, .interleaved = d->interleaved};
  treadle_status status;
  TRY(treadle_rope_read(treadle_transformer_config(d), &spec, &p->rope));
  TRY(treadle_rope_extend(&p->rope, p->options.most_positions));
out:
  return status == TREADLE_OK ? status : treadle_fail_in(status, "%s: ", d->model->path);
}

static treadle_status set_attention(treadle_pass *p) {
  const treadle_transformer *d = p->transformer;
  bool latent = d->attention == TREADLE_ATTENTION_MLA;
  const int64_t ranks = p->context.ranks;
  treadle_status status;
  TRY(treadle_context_check_heads(p));
  p->kv = (treadle_kv_shape){.heads = latent ? 1 : treadle_context_kv_heads(p),
                             .key_dim = latent ? d->latent_dim + d->rope_dim : d->head_dim,
                             .value_dim = latent ? d->latent_dim : d->value_dim,
                             .block_tokens = p->options.block_tokens,
                             .dtype = p->options.dtype,
                             .shared = latent};
  p->attention = (treadle_attention_spec){
      .kv = p->kv,
      .heads = p->heads.count / ranks,
      .scale = (float)((latent ? p->rope.softmax_factor : 1.0) / sqrt((double)d->head_dim))};
  p->attention_ops = treadle_attention_ops_for(p->options.kernels);
  TRY(treadle_kv_check(&p->kv));
  TRY(treadle_attention_check(&p->attention));
  p->buffers.scratch_bytes = (treadle_attention_scratch_bytes(&p->attention) + 63) / 64 * 64;
out:
  return status;
}

static treadle_status set_router(treadle_pass *p) {
  const treadle_transformer_routing *r = &p->transformer->routing;
  if (!r->experts) return TREADLE_OK;
  p->router = (treadle_router){.type = r->sigmoid      ? TREADLE_ROUTER_NOAUX_TC
                                       : r->groups > 1 ? TREADLE_ROUTER_GROUP_LIMITED
                                                       : TREADLE_ROUTER_SOFTMAX,
                               .experts = (int)r->experts,
                               .top_k = (int)r->top,
                               .groups = (int)r->groups,
                               .top_groups = (int)r->top_groups,
                               .renormalised = r->renormalise,
                               .scale = r->scale};
  return treadle_router_check(&p->router);
}

/* What is filled when weights are bound. */
static treadle_status take_copies(treadle_pass *p) {
  const treadle_transformer *d = p->transformer;
  p->cache_place = treadle_arena_alloc_array(&p->arena, (size_t)d->layers, sizeof *p->cache_place);
  p->latent_copies = treadle_arena_alloc_array(&p->arena, (size_t)d->layers, sizeof *p->latent_copies);
  if (!p->cache_place || !p->latent_copies) return no_memory();
  for (int32_t l = 0; l < d->layers; l++) {
    const treadle_weight *weight = p->layers[l].weight;
    if (!weight[TREADLE_ROLE_O].segment_count) continue;
    p->cache_place[l] = (int32_t)p->cache_layers++;
    if (weight[TREADLE_ROLE_ROUTER_BIAS].segment_count && !p->router_bias) {
      size_t count = (size_t)(d->layers * d->routing.experts);
      p->router_bias = treadle_arena_alloc_array(&p->arena, count, sizeof *p->router_bias);
      if (!p->router_bias) return no_memory();
    }
  }
  return TREADLE_OK;
}

treadle_status treadle_pass_set_up(treadle_pass *p) {
  treadle_status status;
  TRY(set_rope(p));
  TRY(set_attention(p));
  TRY(set_router(p));
  TRY(take_copies(p));
out:
  return status;
}

void treadle_pass_copy_bias(treadle_pass *p) {
  const treadle_transformer *d = p->transformer;
  for (int32_t l = 0; p->router_bias && l < d->layers; l++) {
    float *to = p->router_bias + l * d->routing.experts;
    memset(to, 0, (size_t)d->routing.experts * sizeof *to);
    treadle_pass_add_bias(p, to, &p->layers[l].weight[TREADLE_ROLE_ROUTER_BIAS]);
  }
}

size_t treadle_pass_block_bytes(const treadle_pass *pass) {
  return (size_t)(pass->cache_layers * treadle_kv_block_bytes(&pass->kv) + treadle_pass_record_room(pass));
}

const char *treadle_pass_kernels_used(const treadle_pass *pass) { return pass->kernels_used; }

const char *treadle_pass_kernels(const treadle_pass *pass) {
  const treadle_gemm_kernel *kernel;
  int32_t leaf = (int32_t)pass->transformer->hidden;
  if (treadle_gemm_choose(pass->options.kernels, pass->options.dtype, leaf, &kernel) != TREADLE_OK)
    return "none";
  return kernel->name;
}
