#include "sft/sft_scene.h"

#include "io/file.h"
#include "run/checkpoint.h"
#include "run/checkpoint_parts.h"
#include "test.h"

enum { OVERRIDES_MOST = 16 };

static const char model_config[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_act\": \"silu\",\n"
    " \"hidden_size\": 64, \"intermediate_size\": 128, \"max_position_embeddings\": 64, \"vocab_size\": "
    "16,\n"
    " \"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"num_hidden_layers\": 4,\n"
    " \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000.0, \"tie_word_embeddings\": false,\n"
    " \"torch_dtype\": \"bfloat16\"}\n";

static const char run_config[] = "megatron_training:\n"
                                 "  data_path: %s/rows.jsonl\n"
                                 "  val_path: %s/rows.jsonl\n"
                                 "  train_iters: 12\n"
                                 "  global_batch_size: 8\n"
                                 "  save_interval: 2\n"
                                 "  max_ckpt_to_keep: 0\n"
                                 "  bf16: false\n"
                                 "actor_config:\n"
                                 "  model: %s/config.json\n"
                                 "  save: %s/run\n"
                                 "  micro_batch_size: 2\n"
                                 "  lr: 1.0e-3\n";

static void write_rows(const char *path) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  for (int r = 0; r < SFT_SCENE_ROWS; r++) {
    int count = 6 + r * 7 % 19;
    fprintf(file, "{\"ids\": [");
    for (int i = 0; i < count; i++) fprintf(file, "%s%d", i ? ", " : "", 5 + (r * i + i) % 11);
    fprintf(file, "], \"mask\": [");
    for (int i = 0; i < count; i++) fprintf(file, "%s%d", i ? ", " : "", i > 3);
    fprintf(file, "]}\n");
  }
  assert_int_equal(fclose(file), 0);
}

void sft_scene_remove(char *folder) {
  test_remove(folder);
  free(folder);
}

char *sft_scene_make(void) {
  char *folder = strdup(test_folder());
  char path[300], text[2000];
  snprintf(path, sizeof path, "%s/config.json", folder);
  assert_ok(treadle_file_write(path, model_config, strlen(model_config)));
  snprintf(path, sizeof path, "%s/rows.jsonl", folder);
  write_rows(path);
  snprintf(path, sizeof path, "%s/sft.yaml", folder);
  snprintf(text, sizeof text, run_config, folder, folder, folder, folder);
  assert_ok(treadle_file_write(path, text, strlen(text)));
  return folder;
}

treadle_status sft_scene_train(const sft_scene_run *run, treadle_sft_figures *figures_p) {
  treadle_train_config *config = NULL;
  treadle_sft_options options = run->options;
  char path[300];
  size_t count = 0;
  treadle_status status;
  options.struct_size = sizeof options;
  options.threads = 1;
  snprintf(path, sizeof path, "%s/sft.yaml", run->folder);
  while (run->overrides && run->overrides[count]) count++;
  TRY(treadle_train_config_read(path, run->overrides, count, &config));
  TRY(treadle_sft_run(run->group, config, &options, figures_p));
out:
  treadle_train_config_destroy(config);
  return status;
}

int sft_scene_checkpoints(const char *folder, int64_t *newest_p) {
  char run[300], path[400];
  treadle_steps steps = {0};
  treadle_model *model;
  treadle_layout *layout;
  snprintf(path, sizeof path, "%s/config.json", folder);
  assert_ok(treadle_model_open(path, NULL, &model));
  assert_ok(treadle_layout_create(model, "hf:dtype=fp32", 1, NULL, &layout));
  void *window = malloc(treadle_layout_window_bytes(layout, 0));
  assert_non_null(window);
  snprintf(run, sizeof run, "%s/run", folder);
  assert_ok(treadle_train_checkpoint_list(run, &steps));
  for (size_t i = 0; i < steps.count; i++) {
    snprintf(path, sizeof path, "%s/global_step_%lld", run, (long long)steps.items[i]);
    assert_ok(treadle_train_checkpoint_check(path));
    for (int part = 0; part < PARTS; part++) assert_ok(load_part(path, part, layout, 0, window));
  }
  int count = (int)steps.count;
  if (newest_p) *newest_p = count ? steps.items[count - 1] : -1;
  treadle_array_release(&steps);
  free(window);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
  return count;
}
