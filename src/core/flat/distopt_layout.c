/* distopt: the fp32 main weights of Megatron's distributed optimizer, cut over dp x cp (those of experts over their own
 * data parallel ranks). The grid is Megatron's; distopt.h says how its buffers are laid. docs/rules.md 10.5. */
#include "flat/distopt.h"
#include "flat/flat_grid.h"
#include "grid/megatron.h"
#include "layout/layout_types.h"

#include <inttypes.h>

typedef struct options {
  treadle_megatron_options megatron;
  int64_t bucket_size; /* 0: one bucket */
  bool pad;
} options;

/* One buffer: the dense or the expert parameters of a chunk. */
typedef struct buffer {
  treadle_layout *layout;
  const options *o;
  int32_t stage, chunk;
  bool experts;
  const treadle_dim *over;
} buffer;

/* With ep = 1 experts lie in the dense buffer, and none is apart (docs/rules.md 10.5). */
static bool is_of_experts(const buffer *b, const treadle_flat_param *param) {
  const treadle_grid *grid = b->layout->state;
  return b->o->megatron.ep > 1 && grid->rules[param->storage->rule].ep != NULL;
}

/* With pp > 1, the embedding and its copy: the head of a tied model or, with MTP layers, the one they have. */
static bool is_shared_embedding(const buffer *b, const treadle_flat_param *param) {
  const treadle_grid *grid = b->layout->state;
  const treadle_model *model = b->layout->model;
  const treadle_rule *rule = grid->rules[param->storage->rule].rule;
  bool mtp = model->mtp_layers > 0, tied = false;
  if (b->o->megatron.pp == 1 || !rule->pad_vocab) return false;
  for (int32_t r = 0; r < grid->rule_count; r++) {
    const treadle_rule *head = grid->rules[r].rule;
    if (head->at != TREADLE_AT_LAST || !head->pad_vocab) continue;
    int32_t pattern = head->parts[0].pattern;
    tied |= model->tensors[model->first_tensor[pattern]].pattern != pattern;
  }
  return rule->at == TREADLE_AT_LAST ? tied && !mtp : tied || mtp;
}

static bool is_mine(const buffer *b, const treadle_flat_param *param) {
  return !param->buffer && param->storage->chunk == b->chunk && is_of_experts(b, param) == b->experts;
}

/* Each bucket is a unit. mine: the numbers of the `count` parameters, which are laid backwards: those of a bucket follow each
 * other, and come before those of the bucket before it.
 * So bucket 0 has the end of the list, and `count` goes down to its begin. Addresses are counted from the
 * bucket's begin. A bucket is one vector of over->size ranges. */
static treadle_status lay_buckets(const buffer *b, const int32_t *mine, const treadle_distopt_param *params,
                                  int64_t count, const treadle_distopt_buckets *buckets) {
  treadle_status status = TREADLE_OK;
  treadle_flat_grid *flat = b->layout->state;
  treadle_flat_stage *stage = &flat->stages[b->stage];
  for (size_t k = 0; k < buckets->count; k++) {
    int64_t end = count;
    while (count > 0 && params[count - 1].bucket == (int32_t)k) count--;
    const treadle_distopt_bucket *bucket = &buckets->items[k];
    const char *name =
        treadle_arena_format(&flat->grid.arena, "%s.bucket_%d", b->experts ? "expert" : "dense", (int)k);
    int32_t unit = -1;
    if (!name) return treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out");
    for (int64_t i = count; i < end; i++) {
      treadle_flat_param *param = &stage->params[mine[i]];
      if (unit < 0)
        TRY(treadle_flat_unit_add(b->layout, b->stage, param, name, b->over,
                                  (bucket->end - bucket->start) / b->over->size, &unit));
      param->unit = unit;
      param->start = params[i].start - bucket->start;
    }
  }
out:
  return status;
}

/* mine[i] and params[i] are one parameter, in the order of modules (docs/rules.md 7.10). Only the first
 * stage's first chunk has more than one bucket, but for shared embeddings. */
static treadle_status lay_buffer(const buffer *b) {
  treadle_status status = TREADLE_OK;
  treadle_flat_stage *stage = &((treadle_flat_grid *)b->layout->state)->stages[b->stage];
  treadle_distopt_buckets buckets = {0};
  treadle_distopt_param *params = treadle_alloc_array((size_t)stage->param_count + 1, sizeof *params);
  int32_t *mine = treadle_alloc_array((size_t)stage->param_count + 1, sizeof *mine);
  int64_t count = 0;
  if (!params || !mine) TRY(treadle_fail(TREADLE_NO_MEMORY, "layout: memory is out"));
  for (int32_t i = 0; i < stage->param_count; i++) {
    if (!is_mine(b, &stage->params[i])) continue;
    mine[count] = i;
    params[count++] = (treadle_distopt_param){
        .numel = stage->params[i].elems, .shared_embedding = is_shared_embedding(b, &stage->params[i])};
  }
  treadle_distopt_options o = {.dp = b->over->size,
                               .bucket_size = b->stage == 0 && b->chunk == 0 ? b->o->bucket_size : 0,
                               .pad_for_high_nccl = b->o->pad};
  TRY(treadle_distopt_layout(&o, params, count, &buckets));
  TRY(lay_buckets(b, mine, params, count, &buckets));
out:
  treadle_free(params);
  treadle_free(mine);
  treadle_array_release(&buckets);
  return status;
}

/* Units in the order of the window: chunk by chunk, in each the dense buckets, then those of experts. */
static treadle_status lay(treadle_layout *layout, treadle_grid *grid, const treadle_grid_spec *spec,
                          const void *context) {
  treadle_status status = TREADLE_OK;
  TRY(treadle_flat_list(layout));
  for (int32_t c = 0; c < spec->chunks.count; c++)
    for (int experts = 0; experts < 2; experts++) {
      buffer b = {.layout = layout,
                  .o = context,
                  .stage = spec->chunks.items[c].stage,
                  .chunk = spec->chunks.items[c].number,
                  .experts = experts > 0,
                  .over = treadle_mesh_find(&grid->mesh, experts ? "edp" : "dp_cp")};
      TRY(lay_buffer(&b));
    }
  TRY(treadle_flat_finish(layout, true));
out:
  return status;
}

/* Data parallel ranks of the dense part, in ascending order: the faster of dp and cp is the low digit.
 * With cp=2 at stride 1 and dp=4 at stride 2 the place in dp_cp is cp + 2 * dp. */
static void add_shard_dim(treadle_mesh *mesh) {
  treadle_dim dp = *treadle_mesh_find(mesh, "dp"), cp = *treadle_mesh_find(mesh, "cp");
  bool dp_low = cp.size == 1 || (dp.size > 1 && dp.stride < cp.stride);
  treadle_dim low = dp_low ? dp : cp, high = dp_low ? cp : dp;
  treadle_mesh_add_digits(mesh, "dp_cp", low.size, low.stride, high.size, high.stride);
}

static treadle_status create(treadle_layout *layout, treadle_settings *words, treadle_arena *words_arena,
                             treadle_builder *normal) {
  treadle_status status = TREADLE_OK;
  (void)words_arena;
  options o = {0};
  treadle_grid_spec spec = {
      .dtype = layout->dtype ? layout->dtype : TREADLE_FP32, .lay = lay, .lay_context = &o};
  treadle_flat_grid *flat;
  TRY(treadle_flat_start(layout, &flat));
  TRY(treadle_megatron_read(layout, words, &flat->grid, &o.megatron, &spec, normal));
  TRY(treadle_settings_size(words, "bucket_size", 0, &o.bucket_size));
  TRY(treadle_settings_flag(words, "pad", &o.pad));
  if (o.bucket_size) treadle_normal_number(normal, "bucket_size", o.bucket_size);
  if (o.pad) treadle_normal_text(normal, "pad", "on");
  if (layout->model->experts > 0 && o.megatron.ep == 1 && o.megatron.tp % o.megatron.etp != 0)
    REFUSE("layout '%s': with ep=1 experts lie in the dense buffer, so etp=%" PRId64
           " must divide tp=%" PRId64 "; other ranks of the buffer would have other shards of them",
           words->text, o.megatron.etp, o.megatron.tp);
  add_shard_dim(&spec.mesh);
  TRY(treadle_grid_build(layout, &flat->grid, &spec));
out:
  return status;
}

static const char *const keys[] = {TREADLE_MEGATRON_KEYS, "bucket_size", "pad", "dtype", "on", NULL};
const treadle_layout_type treadle_layout_type_distopt = {"distopt", keys, false, create};
