/* Prompts and rewards that a configuration names, on the ranks that draw and that save. */
#include "rl/loop.h"

#include "io/json.h"
#include "reward/reward.h"

#include <stdlib.h>
#include <string.h>

/* A score that is 0 whatever the policy learns is said: whose answer key is another column has such answers. */
static void say_unmatched(const treadle_rl_rewards *rewards, const treadle_rl_crew *crew,
                          const treadle_train_settings *settings, const treadle_rl_prompts *prompts,
                          const char *place) {
  const treadle_rl_prompt *first;
  size_t count;
  (void)treadle_rl_prompts_items(prompts, &count);
  for (int r = 0; r < rewards->count; r++) {
    size_t unmatched = treadle_rl_prompts_unmatched(prompts, rewards->items[r], &first);
    if (unmatched)
      treadle_rl_note(crew,
                      "%s: no completion of %zu of %zu prompts can be right by the reward %s: the first is "
                      "line %lld, whose answer is '%.80s'",
                      place, unmatched, count, settings->rl.verifier.function.items[r],
                      (long long)first->line, first->answer);
  }
}

static treadle_status read_prompts(const treadle_rl *rl, const char *path, const char *place,
                                   const char *variables, treadle_rl_prompts **prompts_p) {
  const treadle_train_settings *s = rl->task.settings;
  static const treadle_rl_prompts_words words = {
      .prompt_key = "rl_config.prompt_key",
      .answer_key = "rl_config.answer_key",
      .too_long = "rl_config.too_long=leave_out leaves such prompts out",
      .no_answer = "rl_config.no_answer=leave_out leaves such prompts out",
      .no_tokenizer = "megatron_training.tokenizer_name_or_path names one"};
  const treadle_rl_prompts_spec spec = {.path = path,
                                        .words = &words,
                                        .prompt_key = s->rl.data.prompt_key,
                                        .answer_key = s->rl.data.answer_key,
                                        .data_source_key = s->rl.data.data_source_key,
                                        .tokenizer = rl->text.tokenizer,
                                        .chat = s->rl.data.apply_chat_template ? rl->text.chat : NULL,
                                        .chat_variables = variables,
                                        .vocabulary = rl->bounds.vocabulary,
                                        .most_tokens = rl->bounds.prompt_most,
                                        .leave_long_out = s->rl.data.too_long == 1,
                                        .need_answer = rl->rewards.needs_answers,
                                        .leave_unanswered_out = s->rl.data.no_answer == 1};
  treadle_status status = treadle_rl_prompts_read(&spec, prompts_p);
  if (status) return treadle_refused_at(place, status);
  say_unmatched(&rl->rewards, &rl->crew, rl->task.settings, *prompts_p, place);
  const long long too_long = treadle_rl_prompts_too_long(*prompts_p),
                  unanswered = treadle_rl_prompts_unanswered(*prompts_p);
  size_t count;
  (void)treadle_rl_prompts_items(*prompts_p, &count);
  const long long all = (long long)count + too_long + unanswered;
  if (too_long)
    treadle_rl_note(&rl->crew, "%s: %lld of %lld prompts %s more than %s, and %s left out (%s)", place,
                    too_long, all, too_long == 1 ? "has" : "have",
                    treadle_text_of_count(rl->bounds.prompt_most, "token"), too_long == 1 ? "is" : "are",
                    TREADLE_RL_PLACE(&rl->task, rl.data.too_long));
  if (unanswered)
    treadle_rl_note(&rl->crew, "%s: %lld of %lld prompts %s no answer, and %s left out (%s)", place,
                    unanswered, all, unanswered == 1 ? "has" : "have", unanswered == 1 ? "is" : "are",
                    TREADLE_RL_PLACE(&rl->task, rl.data.no_answer));
  return TREADLE_OK;
}

/* The run's variables of the chat template, with what a prompt always has; free() ends them. NULL: there are none. */
static treadle_status make_variables(const treadle_rl_task *task, const treadle_chat *chat,
                                     char **variables_p) {
  const treadle_train_settings *s = task->settings;
  json_t *all = NULL;
  treadle_status status;
  *variables_p = NULL;
  if (!s->rl.data.chat_template_kwargs || !s->rl.data.apply_chat_template) return TREADLE_OK;
  if (!chat)
    REFUSE("%s are variables of a chat template, and there is none",
           TREADLE_RL_PLACE(task, rl.data.chat_template_kwargs));
  TRY(treadle_json_parse(TREADLE_RL_PLACE(task, rl.data.chat_template_kwargs),
                         s->rl.data.chat_template_kwargs, strlen(s->rl.data.chat_template_kwargs), &all));
  if (json_object_set_new(all, "add_generation_prompt", json_true()) == 0)
    *variables_p = json_dumps(all, JSON_COMPACT);
  if (!*variables_p)
    status = treadle_fail(TREADLE_NO_MEMORY, "no memory for variables of the chat template");
out:
  json_decref(all);
  return status;
}

static treadle_status open_rewards(treadle_rl_rewards *rewards, const treadle_rl_task *task,
                                   const treadle_run_text *text) {
  const treadle_train_settings *s = task->settings;
  treadle_status status = TREADLE_OK;
  if (!s->rl.verifier.function.count && !treadle_train_has_reward_model(s))
    return treadle_fail(TREADLE_REFUSED,
                        "rl_config.verifier_function is needed, and not given: how answers are scored");
  if (s->rl.verifier.function.count > TREADLE_RL_REWARDS)
    return treadle_fail(TREADLE_REFUSED, "%s: %zu rewards; at most %d",
                        TREADLE_RL_PLACE(task, rl.verifier.function), s->rl.verifier.function.count,
                        TREADLE_RL_REWARDS);
  for (size_t i = 0; i < s->rl.verifier.function.count; i++) {
    const char *name = s->rl.verifier.function.items[i];
    const treadle_reward_options options = {.struct_size = sizeof options,
                                            .name = name,
                                            .command = s->rl.verifier.command,
                                            .timeout_seconds = s->rl.verifier.timeout,
                                            .parallel = (int32_t)s->rl.verifier.parallel};
    status = treadle_reward_create(&options, &rewards->items[i]);
    if (status) return treadle_fail_in(status, "%s: ", TREADLE_RL_PLACE(task, rl.verifier.function));
    rewards->weights[i] = i < s->rl.verifier.weight.count ? atof(s->rl.verifier.weight.items[i]) : 1;
    rewards->count++;
    rewards->needs_answers = rewards->needs_answers || treadle_reward_needs_answers(rewards->items[i]);
    if (!text->tokenizer && treadle_reward_judges_texts(rewards->items[i]))
      REFUSE("%s: %s judges texts, and there is no tokenizer to make them: %s has none; give "
             "megatron_training.tokenizer_name_or_path",
             TREADLE_RL_PLACE(task, rl.verifier.function), name, text->companions);
  }
  return status;
}

/* The file of others says how often its data is seen: the run is as long as its steps say. */
static void compare_epochs(const treadle_rl_task *task, const treadle_rl_crew *crew, size_t prompts) {
  const treadle_train_settings *s = task->settings;
  const int64_t batch = s->rl.filter_groups.enable && s->rl.filter_groups.gen_batch_size
                            ? s->rl.filter_groups.gen_batch_size
                            : s->training.global_batch_size;
  const double steps = task->config->most_epochs * (double)((int64_t)prompts / batch);
  if (task->config->most_epochs <= 0 || (double)s->training.train_iters <= steps) return;
  treadle_rl_note(crew,
                  "%g epochs of %zu prompts, as the file has them, are %g steps: the run takes %lld, %s",
                  task->config->most_epochs, prompts, steps, (long long)s->training.train_iters,
                  TREADLE_RL_PLACE(task, training.train_iters));
}

void treadle_rl_data_close(treadle_rl_data *data) {
  treadle_train_order_release(&data->order);
  treadle_rl_prompts_destroy(data->prompts);
  treadle_rl_prompts_destroy(data->tests);
}

void treadle_rl_rewards_release(treadle_rl_rewards *rewards) {
  for (int i = 0; i < rewards->count; i++) treadle_reward_destroy(rewards->items[i]);
  treadle_array_release(&rewards->judged);
  treadle_arena_release(&rewards->judged_texts);
}

treadle_status treadle_rl_open_data(treadle_rl *rl) {
  const treadle_train_settings *s = rl->task.settings;
  char *variables = NULL;
  treadle_status status;
  size_t count;
  if (!rl->crew.leads && !rl->crew.has_samples) return TREADLE_OK;
  TRY(open_rewards(&rl->rewards, &rl->task, &rl->text));
  TRY(make_variables(&rl->task, rl->text.chat, &variables));
  TRY(read_prompts(rl, s->training.data_path, TREADLE_RL_PLACE(&rl->task, training.data_path), variables,
                   &rl->data.prompts));
  if (s->training.val_path)
    TRY(read_prompts(rl, s->training.val_path, TREADLE_RL_PLACE(&rl->task, training.val_path), variables,
                     &rl->data.tests));
  (void)treadle_rl_prompts_items(rl->data.prompts, &count);
  compare_epochs(&rl->task, &rl->crew, count);
  TRY(treadle_train_order_init(&rl->data.order, (uint64_t)s->training.seed, count));
  if (s->training.no_shuffle) treadle_train_order_keep(&rl->data.order);
out:
  free(variables);
  return status;
}
