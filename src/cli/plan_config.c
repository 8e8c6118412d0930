/* treadle plan --config. Options go before the file, and its rank map goes with its layouts. */
#include "cli/plan_config.h"

#include "base/utf8.h"

#include <string.h>
#include <unistd.h>

/* The layouts of the file have its rank map; others have none of it. */
static void take_layouts(const treadle_switch_config_info *info, treadle_layouts_arguments *layouts,
                         int64_t *rank_map_p) {
  if (*rank_map_p < 0) *rank_map_p = layouts->from || layouts->to ? TREADLE_CONTIGUOUS : info->rank_map;
  if (!layouts->from) layouts->from = info->train;
  if (!layouts->to) layouts->to = info->infer;
}

static treadle_status take_model(const treadle_switch_config_info *info, treadle_arguments *a) {
  if (a->model.path) return TREADLE_OK;
  if (!info->model)
    REFUSE("%s does not say which model it is: give --model DIR|config.json", a->plan.config);
  if (access(info->model, F_OK) != 0)
    REFUSE("%s: the model '%s' is neither a folder nor a file here, such as a hub's name: give --model "
           "DIR|config.json",
           a->plan.config, treadle_text_shown(info->model));
  a->model.path = info->model;
  return TREADLE_OK;
}

static treadle_status take_ranks(const treadle_switch_config_info *info, treadle_arguments *a) {
  if (!a->ranks.count) a->ranks.count = info->ranks;
  if (!a->ranks.count) REFUSE("%s does not say how many ranks there are: give --ranks N", a->plan.config);
  if (!a->ranks.nodes && info->nodes > 1) a->ranks.nodes = info->nodes;
  if (!a->memory.cap_bytes) a->memory.cap_bytes = info->cap_bytes;
  return TREADLE_OK;
}

treadle_status treadle_plan_config_read(treadle_plan_config *file, treadle_arguments *a) {
  const char *const *warnings;
  size_t count;
  treadle_status status;
  *file = (treadle_plan_config){.info = TREADLE_INIT(treadle_switch_config_info)};
  if (!a->plan.config) return TREADLE_OK;
  TRY(treadle_switch_config_read(a->plan.config, a->words, (size_t)a->word_count, &file->config));
  treadle_switch_config_get_info(file->config, &file->info);
  warnings = treadle_switch_config_warnings(file->config, &count);
  for (size_t i = 0; i < count; i++) fprintf(stderr, "treadle plan: warning: %s\n", warnings[i]);
  take_layouts(&file->info, &a->layouts, &a->ranks.map);
  TRY(take_model(&file->info, a));
  TRY(take_ranks(&file->info, a));
out:
  return status;
}

void treadle_plan_config_release(treadle_plan_config *file) {
  treadle_switch_config_destroy(file->config);
  file->config = NULL;
}

/* 0: null */
static void print_count(treadle_json_out *out, const char *key, int64_t value) {
  if (value)
    treadle_json_out_int(out, key, value);
  else
    treadle_json_out_text(out, key, NULL);
}

enum { OFFLOADS = 3 };

/* The words of `treadle switch --offload`; how many there are. */
static int list_offload(const treadle_switch_config_info *info, const char *words[OFFLOADS]) {
  int count = 0;
  if (info->offload_params) words[count++] = "params";
  if (info->offload_grads) words[count++] = "grads";
  if (info->offload_optimizer) words[count++] = "optimizer";
  return count;
}

void treadle_plan_config_print_json(const treadle_plan_config *file, treadle_json_out *out) {
  const treadle_switch_config_info *info = &file->info;
  const char *words[OFFLOADS];
  if (!file->config) return;
  treadle_json_out_open(out, "config", '{');
  treadle_json_out_text(out, "model", info->model);
  treadle_json_out_text(out, "train", info->train);
  treadle_json_out_text(out, "infer", info->infer);
  print_count(out, "ranks", info->ranks);
  print_count(out, "nodes", info->nodes);
  treadle_json_out_open(out, "offload", '[');
  for (int i = 0, count = list_offload(info, words); i < count; i++)
    treadle_json_out_text(out, NULL, words[i]);
  treadle_json_out_close(out, ']');
  print_count(out, "cap", (int64_t)info->cap_bytes);
  treadle_json_out_text(out, "source", info->source);
  treadle_json_out_close(out, '}');
}

void treadle_plan_config_print(const treadle_plan_config *file, const char *path) {
  const char *words[OFFLOADS];
  if (!file->config) return;
  const int count = list_offload(&file->info, words);
  printf("config            %s, of %s\n", treadle_text_shown(path), file->info.source);
  printf("offload           ");
  for (int i = 0; i < count; i++) printf("%s%s", i ? ", " : "", words[i]);
  printf("%s during inference\n", count ? "" : "nothing");
}
