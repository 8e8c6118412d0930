/* A configuration of training: what is taken has values in range, is written as a text that gives the same values, and has a layout's
 * text that can be parsed. One that begins with #! is read for a switch: its layouts can be parsed, too. The first line is an override where it
 * begins with '='. */
#include "layout/settings.h"
#include "run/config_switch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static void need(bool holds) {
  if (!holds) __builtin_trap();
}

static void check_values(const treadle_train_settings *s, treadle_train_run run) {
  need(s->training.global_batch_size >= 1 && s->actor.micro_batch_size >= 0 &&
       s->actor.max_tokens_per_micro >= 0);
  need(!s->actor.micro_batch_size != !s->actor.max_tokens_per_micro);
  need(run == TREADLE_RUN_RL || !s->actor.micro_batch_size ||
       s->training.global_batch_size % s->actor.micro_batch_size == 0);
  need(isfinite(s->actor.lr) && s->actor.min_lr >= 0 && s->actor.min_lr <= s->actor.lr &&
       s->actor.adam_beta1 < 1 && s->actor.adam_beta2 < 1);
  need(s->actor.tensor_model_parallel_size >= 1 && s->actor.pipeline_model_parallel_size >= 1);
  need(!(s->actor.strategy == TREADLE_STRATEGY_FSDP2 && s->training.use_distributed_optimizer));
}

static bool same_text(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

static bool same_list(const treadle_train_list *a, const treadle_train_list *b) {
  bool same = a->count == b->count;
  for (size_t i = 0; same && i < a->count; i++) same = same_text(a->items[i], b->items[i]);
  return same;
}

static void check_written(const treadle_train_config *config) {
  treadle_train_config *again = NULL;
  char *first = NULL, *second = NULL;
  need(treadle_train_config_text(config, &first) == TREADLE_OK);
  need(treadle_train_config_parse("again", first, strlen(first), NULL, 0, config->run, &again) ==
       TREADLE_OK);
  need(treadle_train_config_text(again, &second) == TREADLE_OK);
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++) {
    const treadle_train_key *key = &treadle_train_keys[i];
    const char *a = (const char *)&config->settings + key->at,
               *b = (const char *)&again->settings + key->at;
    if (!treadle_train_key_is_of(key, config->run)) continue;
    if (key->type == TREADLE_KEY_LIST)
      need(same_list((const treadle_train_list *)(const void *)a,
                     (const treadle_train_list *)(const void *)b));
    else if (key->type == TREADLE_KEY_TEXT)
      need(same_text(*(const char *const *)a, *(const char *const *)b));
    else
      need(memcmp(a, b, key->type == TREADLE_KEY_BOOL ? 1 : key->type == TREADLE_KEY_CHOICE ? 4 : 8) == 0);
  }
  treadle_train_config_destroy(again);
  free(first);
  free(second);
}

static void check_layout(const treadle_train_config *config) {
  char text[1024];
  for (int part = 0; part < 2; part++) {
    treadle_arena arena = {0};
    treadle_settings words;
    if (treadle_train_config_layout(config, (treadle_train_part)part, 12, 8, text, sizeof text) ==
        TREADLE_OK)
      need(treadle_settings_parse(text, &arena, &words) == TREADLE_OK);
    else
      need(*treadle_error_message());
    treadle_arena_release(&arena);
  }
}

static void check_switch(const treadle_train_config *config) {
  const treadle_switch_config_info *info = &config->asked->info;
  treadle_arena arena = {0};
  treadle_settings words;
  need(info->source && info->ranks >= 0 && info->nodes >= 0);
  need(treadle_settings_parse(info->train, &arena, &words) == TREADLE_OK);
  need(treadle_settings_parse(info->infer, &arena, &words) == TREADLE_OK);
  treadle_arena_release(&arena);
}

static treadle_train_run run_of(const char *text, size_t count) {
  if (!count || text[0] != '#') return TREADLE_RUN_SFT;
  return count > 1 && text[1] == '!' ? TREADLE_RUN_SWITCH : TREADLE_RUN_RL;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  const char *text = (const char *)bytes, *end = count ? memchr(text, '\n', count) : NULL;
  char line[256] = "";
  const char *override = line + 1;
  bool has = end && *text == '=' && (size_t)(end - text) < sizeof line;
  if (has) {
    memcpy(line, text, (size_t)(end - text));
    count -= (size_t)(end - text) + 1;
    text = end + 1;
  }
  treadle_train_config *config;
  const treadle_train_run run = run_of(text, count);
  if (treadle_train_config_parse("input", text, count, &override, has, run, &config) == TREADLE_OK) {
    if (run == TREADLE_RUN_SWITCH) {
      check_switch(config);
    } else {
      check_values(treadle_train_config_settings(config), run);
      check_written(config);
      check_layout(config);
    }
    treadle_train_config_destroy(config);
  } else {
    need(!config && *treadle_error_message()); /* a refusal has a reason */
  }
  return 0;
}
