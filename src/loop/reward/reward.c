/* The table of rewards, and what is the same for all: the name with its argument, the loop over samples, the thread that scores while the
 * caller does other things. The thread writes into memory of the run alone, which wait hands over; so a run that is never waited for
 * writes nowhere. */
#include "reward/reward.h"

#include "base/alloc.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/utf8.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

static const treadle_reward_rule *const rules[] = {&treadle_reward_sequence, &treadle_reward_gsm8k,
                                                   &treadle_reward_math,     &treadle_reward_regex,
                                                   &treadle_reward_length,   &treadle_reward_command};

enum { RULES = sizeof rules / sizeof *rules, MESSAGE_BYTES = 1024, MOST_PARALLEL = 1024 };

struct treadle_reward {
  const treadle_reward_rule *rule;
  void *state;
  atomic_bool stops;
  bool started;
  pthread_mutex_t lock; /* of `ended` */
  pthread_cond_t changed;
  bool ended;
  /* From start to wait: */
  pthread_t thread;
  treadle_reward_batch run;
  treadle_status status;
  char message[MESSAGE_BYTES];
};

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "no memory for a reward"); }

treadle_status treadle_reward_keep(const char *bytes, size_t count, char **pred_p) {
  if (!pred_p) return TREADLE_OK;
  *pred_p = treadle_alloc(count + 1); /* zeroed */
  if (!*pred_p) return no_memory();
  if (count) memcpy(*pred_p, bytes, count);
  return TREADLE_OK;
}

/* "regex:P" */
static void write_name(const treadle_reward_rule *rule, char *to, size_t room) {
  snprintf(to, room, "%s%s%s", rule->name, rule->argument ? ":" : "", rule->argument ? rule->argument : "");
}

static void list_names(char *to, size_t room) {
  size_t at = 0;
  for (int i = 0; i < RULES && at < room; i++) {
    if (i) at += (size_t)snprintf(to + at, room - at, ", ");
    if (at < room) write_name(rules[i], to + at, room - at);
    at += strlen(to + at);
  }
}

/* The row of "name" or "name:argument". */
static treadle_status find_rule(const char *name, const treadle_reward_rule **rule_p,
                                const char **argument_p) {
  const char *names[RULES + 1] = {NULL}, *colon = strchr(name, ':');
  size_t length = colon ? (size_t)(colon - name) : strlen(name);
  char word[64], list[200];
  for (int i = 0; i < RULES; i++) {
    const treadle_reward_rule *rule = rules[i];
    names[i] = rule->name;
    if (strlen(rule->name) != length || strncmp(name, rule->name, length) != 0) continue;
    if (colon && !rule->argument) REFUSE("reward %s: nothing may stand behind %s", name, rule->name);
    if (rule->argument && (!colon || !colon[1]))
      REFUSE("reward %s: it is %s:%s", name, rule->name, rule->argument);
    *rule_p = rule;
    *argument_p = colon ? colon + 1 : NULL;
    return TREADLE_OK;
  }
  snprintf(word, sizeof word, "%.*s", length < sizeof word ? (int)length : (int)sizeof word - 1, name);
  list_names(list, sizeof list);
  const char *nearest = treadle_nearest_name(word, names);
  REFUSE("'%s' is not a reward%s%s%s: there are %s", treadle_text_shown(name),
         nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "", list);
}

static treadle_status check_options(const treadle_reward_options *o) {
  if (!o->name) REFUSE("treadle_reward_create: no name");
  if (o->timeout_seconds != 0) {
    treadle_status status =
        treadle_check_seconds("treadle_reward_create", "timeout_seconds", o->timeout_seconds);
    if (status) return status;
  }
  if (o->parallel < 0 || o->parallel > MOST_PARALLEL)
    REFUSE("treadle_reward_create: parallel %d, 0 to %d are taken", (int)o->parallel, MOST_PARALLEL);
  return TREADLE_OK;
}

static bool make_lock(treadle_reward *reward) {
  pthread_condattr_t monotonic;
  if (pthread_mutex_init(&reward->lock, NULL) != 0) return false;
  bool made = pthread_condattr_init(&monotonic) == 0;
  if (made) {
    made = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
           pthread_cond_init(&reward->changed, &monotonic) == 0;
    pthread_condattr_destroy(&monotonic);
  }
  if (!made) pthread_mutex_destroy(&reward->lock);
  return made;
}

static void release_lock(treadle_reward *reward) {
  pthread_cond_destroy(&reward->changed);
  pthread_mutex_destroy(&reward->lock);
}

treadle_status treadle_reward_create(const treadle_reward_options *options, treadle_reward **reward_p) {
  treadle_reward_options o;
  treadle_status status;
  const char *argument = NULL;
  treadle_reward *reward = NULL;
  TREADLE_NEED(reward_p);
  *reward_p = NULL;
  TREADLE_NEED(options);
  TRY(TREADLE_TAKE(options, &o));
  TRY(check_options(&o));
  reward = treadle_alloc(sizeof *reward);
  if (!reward || !make_lock(reward)) {
    treadle_free(reward);
    return no_memory();
  }
  TRY(find_rule(o.name, &reward->rule, &argument));
  if (reward->rule->create) TRY(reward->rule->create(&o, argument, &reward->state));
  *reward_p = reward;
  return TREADLE_OK;
out:
  if (reward) release_lock(reward);
  treadle_free(reward);
  return status;
}

bool treadle_reward_needs_answers(const treadle_reward *reward) { return reward->rule->needs_answers; }

bool treadle_reward_can_match(const treadle_reward *reward, const char *answer) {
  return !reward->rule->can_match || reward->rule->can_match(answer);
}

bool treadle_reward_judges_texts(const treadle_reward *reward) { return reward->rule->judges_texts; }

/* One sample after the other. */
static treadle_status judge_each(treadle_reward *reward, const treadle_reward_batch *batch) {
  for (size_t i = 0; i < batch->count; i++) {
    if (atomic_load(batch->stops)) return treadle_fail(TREADLE_CANCELLED, "nobody waits for the reward");
    treadle_reward_sample sample = batch->samples[i];
    if (!sample.completion) sample.completion = "";
    treadle_status status = reward->rule->judge(reward->state, &sample, &batch->scores[i],
                                                batch->preds ? &batch->preds[i] : NULL);
    if (status) return treadle_fail_in(status, "reward %s: sample %zu: ", reward->rule->name, i);
  }
  return TREADLE_OK;
}

static void drop_preds(const treadle_reward_batch *batch) {
  for (size_t i = 0; batch->preds && i < batch->count; i++) {
    treadle_free(batch->preds[i]);
    batch->preds[i] = NULL;
  }
}

static treadle_status score_batch(treadle_reward *reward, const treadle_reward_batch *batch) {
  for (size_t i = 0; i < batch->count; i++) {
    batch->scores[i] = 0;
    if (batch->preds) batch->preds[i] = NULL;
  }
  treadle_status status =
      reward->rule->score ? reward->rule->score(reward->state, batch) : judge_each(reward, batch);
  if (status) drop_preds(batch);
  return status;
}

static treadle_status check_samples(const treadle_reward *reward, const treadle_reward_sample *samples,
                                    size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (samples[i].completion_bytes && !samples[i].completion)
      REFUSE("reward %s: sample %zu has no completion (NULL) of %zu bytes", reward->rule->name, i,
             samples[i].completion_bytes);
    if (reward->rule->needs_answers && !samples[i].answer)
      REFUSE("reward %s: sample %zu has no answer", reward->rule->name, i);
  }
  return TREADLE_OK;
}

/* ---- In a thread -------------------------------------------------------------------------------------- */

static void *run_thread(void *context) {
  treadle_reward *reward = context;
  reward->status = score_batch(reward, &reward->run);
  if (reward->status) snprintf(reward->message, sizeof reward->message, "%s", treadle_error_message());
  pthread_mutex_lock(&reward->lock);
  reward->ended = true;
  pthread_cond_broadcast(&reward->changed);
  pthread_mutex_unlock(&reward->lock);
  return NULL;
}

static void release_run(treadle_reward *reward) {
  drop_preds(&reward->run);
  treadle_free(reward->run.scores);
  treadle_free(reward->run.preds);
  reward->run = (treadle_reward_batch){0};
  reward->started = false;
}

treadle_status treadle_reward_start(treadle_reward *reward, const treadle_reward_sample *samples,
                                    size_t count) {
  return treadle_reward_start_tokens(reward, samples, count, NULL);
}

treadle_status treadle_reward_start_tokens(treadle_reward *reward, const treadle_reward_sample *samples,
                                           size_t count, const treadle_reward_tokens *tokens) {
  treadle_status status;
  TREADLE_NEED(reward);
  if (reward->started) return treadle_fail(TREADLE_STATE, "treadle_reward_start: it was started before");
  if (count) TREADLE_NEED(samples);
  TRY(check_samples(reward, samples, count));
  reward->run =
      (treadle_reward_batch){.samples = samples, .count = count, .tokens = tokens, .stops = &reward->stops};
  reward->run.scores = treadle_alloc_array(count + 1, sizeof *reward->run.scores);
  reward->run.preds = treadle_alloc_array(count + 1, sizeof *reward->run.preds);
  if (!reward->run.scores || !reward->run.preds) {
    status = no_memory();
    goto out;
  }
  reward->ended = false;
  if (pthread_create(&reward->thread, NULL, run_thread, reward) != 0) {
    status = treadle_fail(TREADLE_SYSTEM, "treadle_reward_start: no thread can be made");
    goto out;
  }
  reward->started = true;
out:
  if (status) release_run(reward);
  return status;
}

bool treadle_reward_ends_within(treadle_reward *reward, double seconds) {
  struct timespec until;
  if (!reward->started) return true;
  clock_gettime(CLOCK_MONOTONIC, &until);
  int64_t nanoseconds = until.tv_nsec + (int64_t)(seconds * 1e9);
  until.tv_sec += (time_t)(nanoseconds / 1000000000);
  until.tv_nsec = (long)(nanoseconds % 1000000000);
  pthread_mutex_lock(&reward->lock);
  while (!reward->ended && pthread_cond_timedwait(&reward->changed, &reward->lock, &until) == 0) {
  }
  bool ended = reward->ended;
  pthread_mutex_unlock(&reward->lock);
  return ended;
}

treadle_status treadle_reward_wait(treadle_reward *reward, double *scores, char **preds) {
  TREADLE_NEED(reward);
  if (!reward->started)
    return treadle_fail(TREADLE_STATE, "treadle_reward_wait: without treadle_reward_start");
  if (reward->run.count) TREADLE_NEED(scores);
  pthread_join(reward->thread, NULL);
  treadle_reward_batch *run = &reward->run;
  for (size_t i = 0; i < run->count; i++) {
    scores[i] = run->scores[i];
    if (!preds) continue;
    preds[i] = run->preds[i];
    run->preds[i] = NULL;
  }
  release_run(reward);
  return reward->status ? treadle_fail(reward->status, "%s", reward->message) : TREADLE_OK;
}

void treadle_reward_abandon(treadle_reward *reward) {
  if (!reward->started) return;
  atomic_store(&reward->stops, true);
  pthread_join(reward->thread, NULL);
  release_run(reward);
  atomic_store(&reward->stops, false);
}

void treadle_reward_destroy(treadle_reward *reward) {
  if (!reward) return;
  treadle_reward_abandon(reward);
  if (reward->rule->release && reward->state) reward->rule->release(reward->state);
  release_lock(reward);
  treadle_free(reward);
}

treadle_status treadle_reward_help(char **text_p) {
  treadle_builder text = {0};
  char name[64];
  TREADLE_NEED(text_p);
  *text_p = NULL;
  for (int i = 0; i < RULES; i++) {
    write_name(rules[i], name, sizeof name);
    treadle_builder_add(&text, "%-16s  %s\n", name, rules[i]->help);
  }
  if (text.failed) {
    treadle_builder_release(&text);
    return no_memory();
  }
  *text_p = text.text;
  return TREADLE_OK;
}
