/* LoRA: which matrices have adapters. MindSpeed-RL has Megatron's names of them, a rank of 8 where it is not given, and no adapters where
 * lora_target_modules is not. */
#include "run/config.h"

#include "base/text.h"
#include "base/utf8.h"
#include "train/adapters.h"

#include <math.h>
#include <string.h>

#define KEY(member) TREADLE_KEY_OF(member)

enum { MINDSPEEDS_RANK = 8 };

/* Was the key given under this name, in either section? */
static bool is_from(const treadle_train_config *config, int key, const char *name) {
  const char *given = config->sources[key].name, *last = given ? strrchr(given, '.') : NULL;
  return last && strcmp(last + 1, name) == 0;
}

/* Hugging Face's names of what Megatron names so; the name itself where it is another. */
static const char *names_of(const char *name) {
  static const char *const names[][2] = {{"linear_qkv", "q_proj,k_proj,v_proj"},
                                         {"linear_q_proj", "q_proj"}, /* of latent attention */
                                         {"linear_q_down_proj", "q_a_proj"},
                                         {"linear_q_up_proj", "q_b_proj"},
                                         {"linear_kv_down_proj", "kv_a_proj_with_mqa"},
                                         {"linear_kv_up_proj", "kv_b_proj"},
                                         {"linear_proj", "o_proj"},
                                         {"linear_fc1", "gate_proj,up_proj"},
                                         {"linear_fc2", "down_proj"},
                                         {"output_layer", "lm_head"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(name, names[i][0]) == 0) return names[i][1];
  return name;
}

static treadle_status take_modules(treadle_train_config *config) {
  treadle_config_actor *actor = &config->settings.actor;
  treadle_builder text = {0};
  treadle_status status = TREADLE_OK;
  if (treadle_train_config_is_given(config, KEY(actor.target_modules)) && !actor->target_modules.count)
    REFUSE("%s: %s is an empty list; name matrices, or leave it out for all of them", config->file,
           treadle_train_config_place(config, KEY(actor.target_modules)));
  for (size_t i = 0; i < actor->target_modules.count; i++) {
    const char *name = actor->target_modules.items[i];
    if (!*name || strchr(name, ','))
      TRY(treadle_fail(TREADLE_REFUSED, "%s: %s has '%s', which is not a name of a matrix", config->file,
                       treadle_train_config_place(config, KEY(actor.target_modules)),
                       treadle_text_shown(name)));
    treadle_builder_add(&text, "%s%s", i ? "," : "", names_of(name));
  }
  if (text.length && strcmp(text.text, "all-linear") == 0) goto out; /* as without a list */
  if (text.length) actor->lora_modules = treadle_arena_copy_text(&config->arena, text.text);
  if (text.failed || (text.length && !actor->lora_modules))
    status = treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for the names of matrices", config->file);
out:
  treadle_builder_release(&text);
  return status;
}

static treadle_status settle_mindspeed(treadle_train_config *config) {
  treadle_config_actor *actor = &config->settings.actor;
  const int rank = KEY(actor.lora_rank), modules = KEY(actor.target_modules);
  if (is_from(config, modules, "lora_target_modules") && !treadle_train_config_is_given(config, rank)) {
    actor->lora_rank = MINDSPEEDS_RANK;
    treadle_train_config_follow(config, rank, "as MindSpeed-RL has it, by lora_target_modules");
  }
  if (!is_from(config, rank, "lora_r") || is_from(config, modules, "lora_target_modules"))
    return TREADLE_OK;
  const char *place = treadle_train_config_place(config, rank);
  actor->lora_rank = 0;
  treadle_train_config_follow(config, rank, "without lora_target_modules");
  return treadle_train_config_warn(
      config, treadle_arena_format(&config->arena,
                                   "%s: %s has no effect without lora_target_modules, as in MindSpeed-RL: "
                                   "all weights train; say lora_target_modules, or lora_rank in its place",
                                   config->file, place));
}

/* verl's section lora has an alpha, a dropout, a type and matrices of its own, for Megatron. */
static treadle_status refuse_section(const treadle_train_config *config) {
  const int rank = KEY(actor.lora_rank);
  const char *name = config->sources[rank].name;
  if (config->settings.actor.lora_rank && name && strstr(name, ".lora.rank"))
    REFUSE(
        "%s: %s is %lld: of that section rank alone is known; say lora_rank, lora_alpha and target_modules "
        "beside it",
        config->file, treadle_train_config_place(config, rank),
        (long long)config->settings.actor.lora_rank);
  return TREADLE_OK;
}

static treadle_status refuse_context(const treadle_train_config *config) {
  const char *context = treadle_train_config_place_of_context(config);
  if (context)
    REFUSE("%s: %s is %lld, with %s: adapters need all tokens of a row on one rank", config->file,
           treadle_train_config_place(config, KEY(actor.lora_rank)),
           (long long)config->settings.actor.lora_rank, context);
  return TREADLE_OK;
}

static const char without_rank[] = "has no effect with lora_rank: 0";

/* Without a rank: adapters to begin with are a mistake; the rest is in others' files, too. */
static treadle_status settle_whole(treadle_train_config *config) {
  const int more[] = {KEY(actor.lora_alpha), KEY(actor.lora_save_merged)};
  const treadle_train_list *modules = &config->settings.actor.target_modules;
  const bool all = modules->count == 1 && strcmp(modules->items[0], "all-linear") == 0;
  treadle_status status = TREADLE_OK;
  if (config->settings.actor.lora_adapter_path)
    REFUSE("%s: %s is given, and lora_rank is 0: say the rank of these adapters", config->file,
           treadle_train_config_place(config, KEY(actor.lora_adapter_path)));
  for (size_t i = 0; i < sizeof more / sizeof *more; i++)
    if (treadle_train_config_is_given(config, more[i]) && !treadle_train_config_is_default(config, more[i]))
      TRY(treadle_train_config_warn_of(config, treadle_train_config_place(config, more[i]), without_rank));
  if (modules->count && !all)
    TRY(treadle_train_config_warn_of(config, treadle_train_config_place(config, KEY(actor.target_modules)),
                                     without_rank));
out:
  return status;
}

treadle_status treadle_train_config_settle_lora(treadle_train_config *config) {
  const treadle_config_actor *actor = &config->settings.actor;
  treadle_status status;
  TRY(settle_mindspeed(config));
  TRY(refuse_section(config));
  if (!actor->lora_rank) return settle_whole(config);
  if (!(actor->lora_alpha > 0))
    TRY(treadle_fail(TREADLE_REFUSED, "%s: %s is %g: a number above 0", config->file,
                     treadle_train_config_place(config, KEY(actor.lora_alpha)), actor->lora_alpha));
  if (!isnormal((float)(actor->lora_alpha / (double)actor->lora_rank)))
    TRY(treadle_fail(TREADLE_REFUSED,
                     "%s: %s is %g: divided by lora_rank, %lld, it is beyond the numbers of fp32",
                     config->file, treadle_train_config_place(config, KEY(actor.lora_alpha)),
                     actor->lora_alpha, (long long)actor->lora_rank));
  TRY(refuse_context(config));
  TRY(take_modules(config));
out:
  return status;
}

void treadle_train_lora_options(const treadle_train_settings *s, treadle_trainer_options *options) {
  if (!s->actor.lora_rank) return;
  options->lora_rank = s->actor.lora_rank;
  options->lora_alpha = s->actor.lora_alpha;
  options->lora_modules = s->actor.lora_modules;
  options->lora_adapter = s->actor.lora_adapter_path;
  options->lora_seed = (uint64_t)s->training.seed;
  options->lora_save_merged = s->actor.lora_save_merged;
}

treadle_status treadle_train_config_check_lora(const treadle_train_config *config,
                                               const treadle_model *model) {
  const treadle_config_actor *actor = &config->settings.actor;
  treadle_trainer_options options = TREADLE_INIT(treadle_trainer_options);
  treadle_status status;
  if (!actor->lora_rank) return TREADLE_OK;
  treadle_train_lora_options(&config->settings, &options);
  status = treadle_train_check_adapters(model, &options);
  if (status != TREADLE_REFUSED) return status;
  return treadle_fail_in(status, "%s: %s: ", config->file,
                         treadle_train_config_place(config, actor->lora_modules ? KEY(actor.target_modules)
                                                                                : KEY(actor.lora_rank)));
}
