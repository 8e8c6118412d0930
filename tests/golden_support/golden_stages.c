/* Golden tables of pipelines: which layers each stage and chunk has, and what stands around them. */
#include "golden_support/golden_parts.h"

#include <stdlib.h>
#include <string.h>

/* The canonical layer that a storage tensor is made of, by its first element; -1: outside layers. */
static int64_t layer_of_storage(const golden_case *c, int64_t rank, int32_t storage) {
  treadle_run *runs = NULL;
  size_t count = 0;
  treadle_tensor_info info = {.struct_size = sizeof info, .layer = -1};
  if (c->subject->runs(c->layout, rank, storage, &runs, &count) && count > 0 && runs[0].tensor >= 0)
    c->subject->tensor(c->layout, runs[0].tensor, &info);
  free(runs);
  return info.layer;
}

/* A chunk's layers in the order of their first tensors: the canonical layer and the local number. MTP layers
 * are counted apart; their canonical numbers follow the decoder's. */
typedef struct chunk_layers {
  size_t count, mtp;
  int64_t layer, local; /* of the last one */
} chunk_layers;

static golden_verdict next_layer(const golden_case *c, const json_t *chunk, int64_t rank, int32_t storage,
                                 const treadle_storage_info *info, chunk_layers *done) {
  const json_t *layers = json_object_get(chunk, "layers"),
               *locals = json_object_get(chunk, "local_layer_name_indices");
  bool mtp = strncmp(info->name, "mtp.layers.", 11) == 0;
  if (!mtp && strncmp(info->name, "decoder.layers.", 15) != 0) return GOLDEN_EQUAL;
  int64_t local = strtoll(info->name + (mtp ? 11 : 15), NULL, 10);
  int64_t layer = layer_of_storage(c, rank, storage), wanted = -1, wanted_local = -1;
  size_t *count_p = mtp ? &done->mtp : &done->count;
  if (layer != done->layer || local != done->local) ++*count_p;
  done->layer = layer;
  done->local = local;
  if (mtp) {
    wanted_local = (int64_t)done->mtp - 1;
    wanted = golden_int(c->item, "num_layers", 0) + wanted_local;
  } else if (done->count <= json_array_size(layers)) {
    wanted_local = golden_at(locals, done->count - 1);
    wanted = golden_at(layers, done->count - 1);
  }
  return layer == wanted && local == wanted_local
             ? GOLDEN_EQUAL
             : golden_differ(c, "stage %lld, %s is of layer %lld; golden layer %lld, local %lld",
                             (long long)rank, info->name, (long long)layer, (long long)wanted,
                             (long long)wanted_local);
}

/* One chunk of one stage: its layers in order with their local numbers, its MTP layers, and which of the three
 * tensors outside layers it has. */
static golden_verdict compare_chunk(const golden_case *c, const json_t *chunk) {
  int64_t rank = golden_int(chunk, "pp", -1), v = golden_int(chunk, "vp", -1);
  static const struct {
    const char *key, *name;
  } outside[] = {{"embedding", "embedding.word_embeddings.weight"},
                 {"final_layernorm", "decoder.final_layernorm.weight"},
                 {"output_layer", "output_layer.weight"}};
  bool found[3] = {0};
  chunk_layers done = {.layer = -1, .local = -1};
  for (int32_t i = 0; i < c->subject->storage_count(c->layout, rank); i++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    if (!c->subject->storage(c->layout, rank, i, &info))
      return golden_differ(c, "%s", c->subject->reason());
    if (info.chunk != v) continue;
    for (int k = 0; k < 3; k++) found[k] |= strcmp(info.name, outside[k].name) == 0;
    golden_verdict verdict = next_layer(c, chunk, rank, i, &info, &done);
    if (verdict != GOLDEN_EQUAL) return verdict;
  }
  size_t layers = json_array_size(json_object_get(chunk, "layers")),
         mtp = (size_t)golden_int(chunk, "mtp_layers", 0);
  if (done.count != layers || done.mtp != mtp)
    return golden_differ(c, "stage %lld, chunk %lld has %d layers and %d of MTP, golden %d and %d",
                         (long long)rank, (long long)v, (int)done.count, (int)done.mtp, (int)layers,
                         (int)mtp);
  for (int k = 0; k < 3; k++) {
    if (found[k] != json_is_true(json_object_get(chunk, outside[k].key)))
      return golden_differ(c, "stage %lld, chunk %lld: %s is %s", (long long)rank, (long long)v,
                           outside[k].name, found[k] ? "here, golden not" : "missing");
  }
  return GOLDEN_EQUAL;
}

/* A layout as a string, or as a list of lists of names. */
static void add_layout(golden_case *c, const json_t *layout) {
  char text[256] = "";
  size_t length = 0;
  static const struct {
    const char *name;
    char letter;
  } letters[] = {{"embedding", 'E'}, {"decoder", 't'}, {"mtp", 'm'}, {"loss", 'L'}};
  for (size_t s = 0; s < json_array_size(layout); s++) {
    const json_t *stage = json_array_get(layout, s);
    if (s > 0) text[length++] = '|';
    for (size_t i = 0; i < json_array_size(stage); i++) {
      for (int k = 0; k < 4; k++) {
        if (strcmp(json_string_value(json_array_get(stage, i)), letters[k].name) == 0)
          text[length++] = letters[k].letter;
      }
    }
  }
  golden_option(c, "layout=\"%s\"", json_is_string(layout) ? json_string_value(layout) : text);
}

golden_verdict golden_check_megatron_layers(golden_case *c) {
  int64_t vpp = golden_int(c->item, "vpp", 0), mtp = golden_int(c->item, "mtp_num_layers", 0),
          layers = golden_int(c->item, "num_layers", 0);
  const json_t *first = json_object_get(c->item, "num_layers_in_first_pipeline_stage"),
               *last = json_object_get(c->item, "num_layers_in_last_pipeline_stage");
  const json_t *layout = json_object_get(c->item, "pipeline_model_parallel_layout");
  bool tied = json_is_true(json_object_get(c->item, "tied"));
  if (mtp > 0) {
    golden_dense_mtp(c, layers, mtp, tied);
  } else {
    golden_llama(c, 64, 4, layers, 2, 2, 4, tied);
  }
  c->ranks = golden_int(c->item, "pp", 1);
  snprintf(c->text, sizeof c->text, "megatron:pp=%lld", (long long)c->ranks);
  if (vpp > 0) golden_option(c, "vpp=%lld", (long long)vpp);
  /* As they are, 0 and less among them. */
  if (json_is_integer(first)) golden_option(c, "first=%lld", (long long)json_integer_value(first));
  if (json_is_integer(last)) golden_option(c, "last=%lld", (long long)json_integer_value(last));
  if (json_is_true(json_object_get(c->item, "account_for_embedding_in_pipeline_split")))
    golden_option(c, "embedding_split=on");
  if (json_is_true(json_object_get(c->item, "account_for_loss_in_pipeline_split")))
    golden_option(c, "loss_split=on");
  if (layout) add_layout(c, layout);

  /* Megatron divides by zero for PP2 with both F and Z and VP > 1, although the numbers are good: whoever
   * takes them is as right as who refuses them (docs/rules.md 2.1). */
  const char *class = json_string_value(json_object_get(json_object_get(c->item, "error"), "class"));
  if (class && strcmp(class, "ZeroDivisionError") == 0) {
    c->layout = c->subject->open(c->config, c->text, c->ranks);
    return c->layout ? GOLDEN_EQUAL : GOLDEN_REFUSED;
  }
  golden_verdict verdict = golden_open(c, false);
  const json_t *chunks = json_object_get(c->item, "chunks");
  for (size_t i = 0; verdict == GOLDEN_EQUAL && i < json_array_size(chunks); i++)
    verdict = compare_chunk(c, json_array_get(chunks, i));
  return verdict;
}

/* vllm_pp and sglang_pp: stages[p] = [first layer, last layer + 1]. SGLang's function answers for more stages
 * than layers, but its models refuse to be built so. */
golden_verdict golden_check_engine_stages(golden_case *c) {
  bool is_vllm = strcmp(c->file, "vllm_pp") == 0;
  int64_t layers = golden_int(c->item, "layers", 0), pp = golden_int(c->item, "pp", 1);
  const char *partition = json_string_value(json_object_get(c->item, "partition"));
  golden_llama(c, 64, 4, layers, 2, 2, 4, false);
  c->ranks = pp;
  snprintf(c->text, sizeof c->text, "%s:pp=%lld", is_vllm ? "vllm" : "sglang", (long long)pp);
  if (partition) golden_option(c, "partition=\"%s\"", partition);
  golden_verdict verdict = golden_open(c, !is_vllm && pp > layers);
  const json_t *stages = json_object_get(c->item, "stages");
  for (size_t p = 0; verdict == GOLDEN_EQUAL && p < json_array_size(stages); p++) {
    int64_t next = golden_at(json_array_get(stages, p), 0), end = golden_at(json_array_get(stages, p), 1);
    int64_t now = -1;
    for (int32_t i = 0; verdict == GOLDEN_EQUAL && i < c->subject->storage_count(c->layout, (int64_t)p);
         i++) {
      treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
      c->subject->storage(c->layout, (int64_t)p, i, &info);
      if (strncmp(info.name, "model.layers.", 13) != 0) continue;
      int64_t layer = strtoll(info.name + 13, NULL, 10);
      if (layer != now && layer != next++) verdict = golden_differ(c, "stage %d has %s", (int)p, info.name);
      now = layer;
      if (layer_of_storage(c, (int64_t)p, i) != layer)
        verdict = golden_differ(c, "stage %d: %s", (int)p, info.name);
    }
    if (verdict == GOLDEN_EQUAL && next != end)
      verdict = golden_differ(c, "stage %d ends before layer %lld, golden %lld", (int)p, (long long)next,
                              (long long)end);
  }
  return verdict;
}
