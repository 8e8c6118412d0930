/* Making checkpoints: the hf layout of one rank, loaded without a checkpoint, dealt to files. */
#include "cli/made.h"

#include "base/dtype.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/model.h"
#include "test.h"

#include <sys/stat.h>

enum { MOST = 4096 };

static int32_t list(const treadle_model *model, const treadle_layout *layout, const char *window,
                    bool copies, treadle_stored *tensors, treadle_storage_info *infos) {
  static const int64_t buffer[2] = {1, 2};
  int32_t count = treadle_layout_storage_count(layout, 0), total = count;
  assert_true(count + model->tied_count + 1 <= MOST);
  for (int32_t i = 0; i < count; i++) {
    infos[i] = TREADLE_INIT(treadle_storage_info);
    assert_ok(treadle_layout_storage(layout, 0, i, &infos[i]));
    tensors[i] = (treadle_stored){.name = infos[i].name,
                                  .dtype = infos[i].dtype,
                                  .ndim = infos[i].ndim,
                                  .data = window + infos[i].offset_bytes,
                                  .bytes = infos[i].bytes};
    memcpy(tensors[i].shape, infos[i].shape, sizeof infos[i].shape);
  }
  if (!copies) return total;
  for (int32_t a = 0; a < model->tied_count; a++)
    for (int32_t i = 0; i < count; i++)
      if (strcmp(tensors[i].name, model->tensors[model->tied[a].tensor].name) == 0) {
        tensors[total] = tensors[i];
        tensors[total++].name = model->tied[a].name;
      }
  tensors[total++] = (treadle_stored){.name = "model.layers.0.self_attn.rotary_emb.inv_freq",
                                      .dtype_text = "I64",
                                      .ndim = 1,
                                      .shape = {2},
                                      .data = buffer,
                                      .bytes = sizeof buffer};
  return total;
}

static void write_text(const char *folder, const char *name, const char *text) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  assert_ok(treadle_file_write(path, text, strlen(text)));
}

/* Every shards-th tensor, the last first. */
static void write_shard(const char *folder, const char *name, const treadle_stored *tensors, int32_t count,
                        int shard, int shards, json_t *map) {
  static treadle_stored chosen[MOST];
  char path[256];
  int32_t some = 0;
  for (int32_t i = count - 1; i >= 0; i--)
    if (i % shards == shard) chosen[some++] = tensors[i];
  treadle_safetensors_writer *writer;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  assert_ok(treadle_safetensors_create(path, chosen, some, NULL, &writer));
  for (int32_t i = 0; i < some; i++) {
    assert_ok(treadle_safetensors_append(writer, chosen[i].data, chosen[i].bytes));
    json_object_set_new(map, chosen[i].name, json_string(name));
  }
  assert_ok(treadle_safetensors_finish(writer));
  treadle_safetensors_writer_destroy(writer);
}

void made_checkpoint(const char *folder, const char *config, const made_options *options) {
  static treadle_stored tensors[MOST];
  static treadle_storage_info infos[MOST];
  json_t *root, *map = json_object();
  treadle_model *model;
  treadle_layout *layout;
  assert_int_equal(mkdir(folder, 0777), 0);
  assert_ok(treadle_json_parse("config", config, strlen(config), &root));
  assert_ok(treadle_model_from_config("config", root, NULL, &model));
  assert_ok(treadle_layout_create(model, "hf", 1, NULL, &layout));
  char *window = malloc(treadle_layout_window_bytes(layout, 0) + 1);
  assert_ok(treadle_layout_load(layout, 0, window));
  int32_t count = list(model, layout, window, options->copies, tensors, infos);
  int shards = options->shards ? options->shards : 1;
  for (int s = 0; s < shards; s++) {
    char name[64] = "model.safetensors";
    if (options->shards) snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", s + 1, shards);
    write_shard(folder, name, tensors, count, s, shards, map);
  }
  if (options->shards) {
    json_t *index = json_pack("{s:o, s:{s:i}}", "weight_map", map, "metadata", "total_size", 12345);
    char *text = json_dumps(index, JSON_INDENT(3));
    write_text(folder, "model.safetensors.index.json", text);
    free(text);
    json_decref(index);
  } else {
    json_decref(map);
  }
  write_text(folder, "config.json", config);
  write_text(folder, "tokenizer.json", "{\"model\": {}}\n");
  treadle_layout_destroy(layout);
  treadle_model_close(model);
  json_decref(root);
  free(window);
}
