/* What a configuration gives for a key: noted, held against what was given before, or refused by name. */
#include "run/config_given.h"

#include "base/argument.h"
#include "base/real.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

const char *treadle_given_head_at(const treadle_train_config *config, const char *path, int line) {
  static _Thread_local char text[1024];
  if (line)
    snprintf(text, sizeof text, "%.500s:%d: %.500s", config->file, line, treadle_text_shown(path));
  else
    snprintf(text, sizeof text, "override %.500s", treadle_text_shown(path));
  return text;
}

const char *treadle_given_head(const treadle_config_reader *reader, const treadle_given_value *given) {
  return treadle_given_head_at(reader->config, given->path, given->line);
}

treadle_status treadle_train_config_warn(treadle_train_config *config, const char *text) {
  return text ? treadle_array_push(&config->warnings, text) : treadle_given_no_memory(config);
}

bool treadle_given_is_same(const char *a, const char *b) {
  double x, y;
  bool p, q;
  if (treadle_yaml_truth(a, &p) && treadle_yaml_truth(b, &q)) return p == q;
  if (treadle_text_to_real(a, &x) && treadle_text_to_real(b, &y)) return x == y;
  return strcasecmp(a, b) == 0;
}

bool treadle_given_is_of_verl(const char *path) {
  static const char *const sections[] = {"actor_rollout_ref.", "data.",   "algorithm.",
                                         "trainer.",           "critic.", "reward_model."};
  bool is = false;
  for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
    is = is || treadle_text_starts(path, sections[i]);
  return is;
}

/* verl's files have two KLs, one of the loss and one of the reward. Is the new one that of the reward, which is used? */
static treadle_status is_of_reward(const treadle_config_reader *reader, const treadle_given_value *given,
                                   bool *is_p) {
  static const char *const switches[] = {"${oc.select:algorithm.use_kl_in_reward,false}",
                                         "${oc.select:rl_config.use_kl_in_reward,false}"};
  treadle_status status = TREADLE_OK;
  *is_p = false;
  for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
    const char *text;
    TRY(treadle_train_expand(&reader->names, treadle_given_head(reader, given), NULL, switches[i], &text));
    *is_p = *is_p || strcasecmp(text, "true") == 0;
  }
  *is_p = *is_p == treadle_text_starts(given->path, "algorithm.");
out:
  return status;
}

/* verl's actor has grad_clip, and its optimizer a clip_grad: the actor's counts. */
static treadle_status choose_clip(treadle_train_config *config, treadle_train_source *old,
                                  const treadle_train_source *new) {
  const bool is = strstr(new->name, ".grad_clip") != NULL;
  const treadle_train_source *counts = is ? new : old, *other = is ? old : new;
  treadle_status status = treadle_train_config_warn(
      config, treadle_arena_format(&config->arena, "%s:%d: %s gives way to %s on line %d", config->file,
                                   other->line, other->name, counts->name, counts->line));
  if (is) *old = *new;
  return status;
}

static bool is_of_rlinf(const char *path) {
  static const char *const sections[] = {"actor.", "model.", "megatron.", "rollout.", "runner.", "reward."};
  bool is = false;
  for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
    is = is || treadle_text_starts(path, sections[i]);
  return is;
}

/* RLinf's two KLs, of which one is 0; its two rates at the end of the decay, of which the optimizer's counts; and names that say the same. */
static bool is_settled(treadle_train_source *old, const treadle_train_source *new) {
  static const char beta[] = "algorithm.kl_beta", plus[] = "algorithm.reinpp_kl_beta",
                    optim[] = "actor.optim.min_lr", sched[] = "actor.lr_sched.min_lr";
  const bool is_kl = strcmp(old->name, beta) == 0 || strcmp(new->name, beta) == 0,
             is_plus = strcmp(old->name, plus) == 0 || strcmp(new->name, plus) == 0;
  if (is_kl && is_plus) {
    const treadle_train_source *loss = strcmp(old->name, beta) == 0 ? old : new,
                               *other = loss == old ? new : old;
    const treadle_train_source counts = treadle_given_is_same(loss->text, "0") ? *other : *loss;
    *old = counts;
    return true;
  }
  if (strcmp(old->name, sched) == 0 && strcmp(new->name, optim) == 0) *old = *new;
  if (strcmp(old->name, optim) == 0 && (old->line == new->line || strcmp(new->name, sched) == 0))
    return true;
  return is_of_rlinf(old->name) && is_of_rlinf(new->name) && treadle_given_is_same(old->text, new->text);
}

/* Of a file that says a key twice: the same by two names; one of verl's two KLs; or MindSpeed-RL, which lets actor_config go before
 * megatron_training. */
static treadle_status give_again(treadle_config_reader *reader, int key, const treadle_given_value *given) {
  treadle_train_config *config = reader->config;
  treadle_train_source *old = &config->sources[key];
  const treadle_train_source new = {TREADLE_FROM_FILE, given->line, given->path, given->text, NULL, false};
  if (is_settled(old, &new)) return TREADLE_OK;
  const bool is_kl = key == TREADLE_KEY_OF(rl.kl.penalty) || key == TREADLE_KEY_OF(rl.kl.init_coef);
  if (strcmp(old->name, given->path) != 0 && treadle_given_is_of_verl(old->name) &&
      treadle_given_is_of_verl(given->path)) {
    bool counts = false;
    treadle_status status = is_kl ? is_of_reward(reader, given, &counts) : TREADLE_OK;
    if (counts) *old = new;
    if (status || is_kl || treadle_given_is_same(old->text, given->text)) return status;
  }
  if (key == TREADLE_KEY_OF(actor.clip_grad) && treadle_given_is_of_verl(old->name) &&
      treadle_given_is_of_verl(given->path))
    return choose_clip(config, old, &new);
  bool was = treadle_text_starts(old->name, "actor_config."),
       is = treadle_text_starts(given->path, "actor_config.");
  bool shared = (was && treadle_text_starts(given->path, "megatron_training.")) ||
                (is && treadle_text_starts(old->name, "megatron_training."));
  if (!shared || strcmp(strchr(old->name, '.'), strchr(given->path, '.')) != 0)
    REFUSE("%s: %s on line %d says the same", treadle_given_head(reader, given), old->name, old->line);
  int line = given->line;
  treadle_status status = treadle_train_config_warn(
      config, treadle_arena_format(&config->arena, "%s:%d: %s gives way to %s on line %d", config->file,
                                   is ? old->line : line, is ? old->name : given->path,
                                   is ? given->path : old->name, is ? line : old->line));
  if (!status && is) *old = new;
  return status;
}

/* Two names of verl's on the command line, as its scripts have them: the same, or one of its two KLs, or of its two norms. */
static treadle_status override_again(treadle_config_reader *reader, int key,
                                     const treadle_given_value *given) {
  treadle_train_source *old = &reader->config->sources[key];
  const treadle_train_source new = {TREADLE_FROM_OVERRIDE, 0, given->path, given->text, NULL, false};
  const bool is_kl = key == TREADLE_KEY_OF(rl.kl.penalty) || key == TREADLE_KEY_OF(rl.kl.init_coef);
  bool counts = false;
  if (is_settled(old, &new)) return TREADLE_OK;
  if (strcmp(old->name, given->path) == 0 && treadle_given_is_of_verl(given->path)) { /* as in Hydra */
    *old = new;
    return TREADLE_OK;
  }
  if (strcmp(old->name, given->path) == 0 || !treadle_given_is_of_verl(old->name) ||
      !treadle_given_is_of_verl(given->path) ||
      (!is_kl && !treadle_given_is_same(old->text, given->text) && key != TREADLE_KEY_OF(actor.clip_grad)))
    REFUSE("%s is given twice, the first time as %s", treadle_given_head(reader, given), old->name);
  treadle_status status = is_kl ? is_of_reward(reader, given, &counts) : TREADLE_OK;
  if (counts || (key == TREADLE_KEY_OF(actor.clip_grad) && strstr(given->path, ".grad_clip"))) *old = new;
  return status;
}

/* A list of the file, as text. */
static treadle_status give_list(treadle_config_reader *reader, int key, const treadle_given_value *given) {
  const bool is_list =
      treadle_train_keys[key].type == TREADLE_KEY_LIST; /* else paths, with commas between */
  treadle_builder text = {0};
  treadle_given_value whole = *given;
  treadle_status status = TREADLE_OK;
  treadle_builder_add(&text, "%s", is_list ? "[" : "");
  for (size_t i = 0; i < given->node->count; i++) {
    const char *item = given->node->items[i]->text;
    if (given->node->items[i]->type != TREADLE_YAML_SCALAR) {
      status = treadle_fail(TREADLE_REFUSED, "%s: item %zu is not a single value",
                            treadle_given_head(reader, given), i);
      goto out;
    }
    TRY(treadle_train_expand(&reader->names, treadle_given_head(reader, given), NULL, item, &item));
    if (i) treadle_builder_add(&text, is_list ? ", " : ",");
    if (is_list)
      treadle_train_write_item(&text, item);
    else
      treadle_builder_add(&text, "%s", item);
  }
  treadle_builder_add(&text, "%s", is_list ? "]" : "");
  whole.text = text.failed ? NULL : treadle_arena_copy_text(&reader->config->arena, text.text);
  status = whole.text ? treadle_given_take(reader, key, &whole) : treadle_given_no_memory(reader->config);
out:
  treadle_builder_release(&text);
  return status;
}

/* Is there an override of this very path? */
bool treadle_given_is_overridden(const treadle_config_reader *reader, const char *path) {
  path = treadle_train_short_path(path);
  for (size_t i = 0; i < reader->names.count; i++) {
    const char *other = treadle_train_short_path(reader->names.overrides[i]);
    size_t at = 0;
    while (path[at] && path[at] == (other[at] == '-' ? '_' : other[at])) at++;
    if (!path[at] && other[at] == '=') return true;
  }
  return false;
}

treadle_status treadle_given_take(treadle_config_reader *reader, int key,
                                  const treadle_given_value *given) {
  treadle_train_source *source = &reader->config->sources[key];
  treadle_given_value meant = *given;
  if (!given->text && given->node->type == TREADLE_YAML_LIST &&
      (treadle_train_keys[key].type == TREADLE_KEY_LIST || key == TREADLE_KEY_OF(training.data_path) ||
       key == TREADLE_KEY_OF(training.val_path)))
    return give_list(reader, key, given);
  if (!given->text)
    REFUSE("%s is a %s, and must be %s%s", treadle_given_head(reader, given),
           given->node->type == TREADLE_YAML_LIST ? "list" : "map",
           treadle_train_keys[key].type == TREADLE_KEY_INTEGER ? "an " : "a ",
           treadle_train_key_type_text(&treadle_train_keys[key]));
  if (!given->node) {
    if (source->from == TREADLE_FROM_OVERRIDE) return override_again(reader, key, given);
    *source = (treadle_train_source){TREADLE_FROM_OVERRIDE, 0, given->path, given->text, NULL, false};
    return TREADLE_OK;
  }
  if (treadle_given_is_overridden(reader, given->path)) return TREADLE_OK;
  if (treadle_train_is_null(given->text)) {
    if (!treadle_train_keys[key].nothing) return TREADLE_OK;
    meant.text = treadle_train_keys[key].nothing;
    given = &meant;
  }
  if (source->from == TREADLE_FROM_FILE) return give_again(reader, key, given);
  *source = (treadle_train_source){TREADLE_FROM_FILE, given->line, given->path, given->text, NULL, false};
  return TREADLE_OK;
}
