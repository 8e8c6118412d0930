/* A device that is too small: which rank of which role, which mode needs the most and of what, what has no room, and what would help by how much. What
 * would help is found by planning again with one key changed; keys that are as they should be are not named. */
#include "rl/memory.h"

#include "base/alloc.h"
#include "base/text.h"
#include "switch/switch.h"

#include <stdio.h>

static const treadle_mode modes[] = {TREADLE_TRAIN, TREADLE_FORWARD, TREADLE_INFER};
enum { MODES = sizeof modes / sizeof *modes };

static size_t sum_of(const size_t *bytes) {
  size_t sum = 0;
  for (int c = 0; c < TREADLE_CLASSES; c++) sum += bytes[c];
  return sum;
}

/* By class; in FORWARD, while the reference is there where there is one, or a critic is trained, whichever has more. */
static const size_t *bytes_of(const treadle_actor_memory *m, treadle_mode mode) {
  bool refers = mode == TREADLE_FORWARD && m->with_reference[TREADLE_REFERENCE];
  const size_t *bytes = refers ? m->with_reference : m->by_mode[mode];
  return mode == TREADLE_FORWARD && sum_of(m->with_critic) > sum_of(bytes) ? m->with_critic : bytes;
}

static size_t block_bytes(const treadle_actor_memory *m) {
  return m->kv_blocks > 0 ? m->by_mode[TREADLE_INFER][TREADLE_KV] / (size_t)m->kv_blocks : 0;
}

/* Blocks that there must be: the plan gives the cache all that other modes need, too. */
static size_t blocks_wanted(const treadle_train_settings *settings, const treadle_actor_memory *m) {
  const size_t block = block_bytes(m), wanted = block ? settings->generate.kv_memory / block : 0;
  return wanted < (size_t)m->kv_blocks ? wanted : (size_t)m->kv_blocks;
}

/* Bytes of a class that a mode must have. */
static size_t needed(const treadle_train_settings *settings, const treadle_actor_memory *m,
                     treadle_mode mode, int c) {
  bool fills = mode == TREADLE_INFER && c == TREADLE_KV;
  return fills ? blocks_wanted(settings, m) * block_bytes(m) : bytes_of(m, mode)[c];
}

static size_t total(const treadle_train_settings *settings, const treadle_actor_memory *m,
                    treadle_mode mode) {
  size_t sum = 0;
  for (int c = 0; c < TREADLE_CLASSES; c++) sum += needed(settings, m, mode, c);
  return sum;
}

static treadle_mode fullest_mode(const treadle_train_settings *settings, const treadle_actor_memory *m) {
  treadle_mode fullest = modes[0];
  for (int i = 1; i < MODES; i++)
    if (total(settings, m, modes[i]) > total(settings, m, fullest)) fullest = modes[i];
  return fullest;
}

static const treadle_actor_memory *fullest_rank(int ranks, const treadle_actor_memory *by_rank) {
  const treadle_actor_memory *worst = by_rank;
  for (int rank = 1; rank < ranks; rank++)
    if (by_rank[rank].least_bytes > worst->least_bytes) worst = &by_rank[rank];
  return worst;
}

/* Of those that do not fit; NULL: all do. */
static const treadle_actor_memory *worst_misfit(const treadle_rl_forecast *f, int team,
                                                const treadle_actor_memory *by_rank) {
  const int ranks = treadle_rl_teams_ranks(f->teams, team, f->crew);
  const treadle_actor_memory *worst = NULL;
  for (int rank = 0; rank < ranks; rank++)
    if (!treadle_rl_fits(f, team, rank, &by_rank[rank]) &&
        (!worst || by_rank[rank].least_bytes > worst->least_bytes))
      worst = &by_rank[rank];
  return worst;
}

/* ---- What it holds ------------------------------------------------------------------------------------------ */

/* "mode infer has 900: infer params 300, KV cache 500, work 100"; without the policy there are no modes. */
static void say_modes(const treadle_train_settings *settings, const treadle_actor_memory *m, size_t room,
                      bool policy, treadle_builder *text) {
  const treadle_mode mode = fullest_mode(settings, m);
  const char *pause = ": ";
  if (policy)
    treadle_builder_add(text, "mode %s has %zu", treadle_mode_text(mode), total(settings, m, mode));
  else
    treadle_builder_add(text, "its calls take %zu", total(settings, m, mode));
  for (int c = 0; c < TREADLE_CLASSES; c++) {
    if (!needed(settings, m, mode, c)) continue;
    treadle_builder_add(text, "%s%s %zu", pause, treadle_class_text(c), needed(settings, m, mode, c));
    pause = ", ";
  }
  for (int i = 0; i < MODES && policy; i++)
    if (modes[i] != mode && total(settings, m, modes[i]) > room)
      treadle_builder_add(text, "; mode %s has %zu", treadle_mode_text(modes[i]),
                          total(settings, m, modes[i]));
}

static void say_kv(const treadle_rl_task *task, const treadle_actor_memory *m, size_t room,
                   treadle_builder *text) {
  const size_t block = block_bytes(m), wanted = blocks_wanted(task->settings, m);
  const size_t rest = total(task->settings, m, TREADLE_INFER) - wanted * block;
  if (!block || rest + block > room)
    treadle_builder_add(text, "; not one KV block, %zu bytes, has room beside the rest", block);
  else
    treadle_builder_add(text, "; %zu KV blocks have room, and %s wants %zu", (room - rest) / block,
                        TREADLE_RL_PLACE(task, generate.kv_memory), wanted);
}

static void say_micro_batch(const treadle_train_settings *s, const treadle_actor_memory *m,
                            treadle_mode mode, size_t room, bool policy, treadle_builder *text) {
  const size_t *bytes = bytes_of(m, mode);
  if (total(s, m, mode) - bytes[TREADLE_WORK] - bytes[TREADLE_TRAIN_WORK] > room)
    treadle_builder_add(text, "; it is too much without a micro batch");
  else if (!policy)
    treadle_builder_add(text, "; a micro batch has no room beside the rest");
  else if (s->actor.micro_batch_size)
    treadle_builder_add(text, "; a micro batch of %s has no room beside the rest",
                        treadle_text_of_count(s->actor.micro_batch_size, "sample"));
  else
    treadle_builder_add(text, "; a micro batch of %lld tokens has no room beside the rest",
                        (long long)s->actor.max_tokens_per_micro);
}

/* ---- What would help ---------------------------------------------------------------------------------------- */

/* A key changed. */
typedef struct change {
  const treadle_rl_forecast *forecast;
  int team;
  const treadle_actor_memory *worst; /* of the fullest rank, as it is */
  treadle_train_settings s;          /* begins as the run's */
  char text[96];                     /* how the key is said */
} change;

static bool turn_on(change *c, bool *flag, const char *key) {
  bool was = *flag;
  *flag = true;
  snprintf(c->text, sizeof c->text, "%s=true", key);
  return !was;
}

static bool offload_param(change *c) {
  return turn_on(c, &c->s.generate.offload_train_param, "generate_config.offload_train_param");
}

static bool offload_grad(change *c) {
  return turn_on(c, &c->s.generate.offload_train_grad, "generate_config.offload_train_grad");
}

static bool offload_optimizer(change *c) {
  return turn_on(c, &c->s.generate.offload_train_optimizer, "generate_config.offload_train_optimizer");
}

static bool recompute(change *c) {
  bool was = c->s.training.recompute_granularity == TREADLE_RECOMPUTE_FULL;
  c->s.training.recompute_granularity = TREADLE_RECOMPUTE_FULL;
  snprintf(c->text, sizeof c->text, "megatron_training.recompute_granularity=full");
  return !was;
}

/* A new value of a key that counts; false: it was no more. */
static bool take_less(change *c, int64_t *value, int64_t less, const char *key) {
  bool more = *value > less;
  *value = less;
  snprintf(c->text, sizeof c->text, "%s=%lld", key, (long long)less);
  return more;
}

static int64_t sequence_tokens(const change *c) {
  return c->forecast->bounds->prompt_most + c->forecast->bounds->response_most;
}

/* Of a model's section. */
static bool one_sample_of(change *c, treadle_config_actor *config, const char *section) {
  char key[64];
  snprintf(key, sizeof key, "%s.%s", section,
           config->micro_batch_size ? "micro_batch_size" : "max_tokens_per_micro");
  return config->micro_batch_size ? take_less(c, &config->micro_batch_size, 1, key)
                                  : take_less(c, &config->max_tokens_per_micro, sequence_tokens(c), key);
}

static bool one_sample(change *c) { return one_sample_of(c, &c->s.actor, "actor_config"); }

static bool critic_sample(change *c) { return one_sample_of(c, &c->s.critic.trained, "critic_config"); }

static bool reward_sample(change *c) { return one_sample_of(c, &c->s.reward.scored, "reward_config"); }

static bool reference_sample(change *c) { return one_sample_of(c, &c->s.reference.frozen, "ref_config"); }

static bool critic_rests(change *c) {
  return turn_on(c, &c->s.critic.offload_param, "critic_config.offload_param");
}

static bool reward_rests(change *c) {
  return turn_on(c, &c->s.reward.offload_param, "reward_config.offload_param");
}

static bool reference_rests(change *c) {
  return turn_on(c, &c->s.reference.offload_param, "ref_config.offload_param");
}

/* Blocks of one sequence. */
static bool less_kv(change *c) {
  const int64_t blocks = (sequence_tokens(c) + c->s.generate.block_size - 1) / c->s.generate.block_size;
  int64_t bytes = (int64_t)c->s.generate.kv_memory;
  bool more = take_less(c, &bytes, blocks * (int64_t)block_bytes(c->worst), "generate_config.kv_memory");
  c->s.generate.kv_memory = (size_t)bytes;
  return bytes && more;
}

static bool one_sequence(change *c) {
  return take_less(c, &c->s.generate.max_num_seqs, 1, "generate_config.max_num_seqs");
}

static bool short_reads(change *c) {
  enum { FEW = 64, USUALLY = 512 };
  if (!c->s.generate.max_num_batched_tokens) c->s.generate.max_num_batched_tokens = USUALLY;
  return take_less(c, &c->s.generate.max_num_batched_tokens, FEW, "generate_config.max_num_batched_tokens");
}

/* Each changes its key; false: that is so already. */
static bool (*const changes[])(change *c) = {offload_param, offload_grad,   offload_optimizer, recompute,
                                             one_sample,    less_kv,        one_sequence,      short_reads,
                                             critic_sample, reward_sample,  reference_sample,  critic_rests,
                                             reward_rests,  reference_rests};
enum { CHANGES = sizeof changes / sizeof *changes };

/* Bytes that the fullest rank then needs less; 0 where it does not help, or cannot be done. */
static treadle_status try_change(const change *c, treadle_actor_memory *by_rank, size_t *less_p) {
  const size_t needs = c->worst->least_bytes;
  treadle_rl_forecast other = *c->forecast;
  treadle_status status;
  *less_p = 0;
  other.task.settings = &c->s;
  status = treadle_rl_foresee_team(&other, c->team, by_rank);
  if (status) return status == TREADLE_NO_MEMORY ? status : TREADLE_OK;
  const int ranks = treadle_rl_teams_ranks(other.teams, c->team, other.crew);
  const size_t least = fullest_rank(ranks, by_rank)->least_bytes;
  *less_p = least < needs ? needs - least : 0;
  return TREADLE_OK;
}

static treadle_status say_changes(const treadle_rl_forecast *f, int team, const treadle_actor_memory *worst,
                                  treadle_builder *text) {
  const int ranks = treadle_rl_teams_ranks(f->teams, team, f->crew);
  treadle_actor_memory *others = treadle_alloc_array((size_t)ranks, sizeof *others);
  treadle_status status = TREADLE_OK;
  if (!others) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the forecast of %d ranks", ranks);
  treadle_builder_add(text, "; less would do with ");
  for (int i = 0; i < CHANGES; i++) {
    change one = {.forecast = f, .team = team, .worst = worst, .s = *f->task.settings};
    size_t less;
    if (!changes[i](&one)) continue;
    TRY(try_change(&one, others, &less));
    if (less) treadle_builder_add(text, "%s (%zu less), ", one.text, less);
  }
  treadle_builder_add(text, "more ranks or a smaller model");
out:
  treadle_free(others);
  return status;
}

treadle_status treadle_rl_check_room(const treadle_rl_forecast *f, int team,
                                     const treadle_actor_memory *by_rank) {
  const treadle_train_settings *s = f->task.settings;
  const size_t room = treadle_rl_room(s);
  const treadle_actor_memory *worst = worst_misfit(f, team, by_rank);
  const bool policy = treadle_rl_teams_of(f->teams, TREADLE_POOL_ROLE_ACTOR_ROLLOUT) == team;
  char who[TREADLE_RL_TEAMS_NAME];
  treadle_builder text = {0};
  treadle_status status;
  if (!worst) return TREADLE_OK;
  const treadle_mode mode = fullest_mode(s, worst);
  treadle_rl_teams_name(f->teams, team, (int)(worst - by_rank), who);
  say_modes(s, worst, room, policy, &text);
  if (mode == TREADLE_INFER)
    say_kv(&f->task, worst, room, &text);
  else
    say_micro_batch(s, worst, mode, room, policy, &text);
  TRY(say_changes(f, team, worst, &text));
  status = text.failed ? treadle_fail(TREADLE_NO_MEMORY, "no memory to say what would fit")
                       : treadle_fail(TREADLE_REFUSED, "%s times %s leaves %zu bytes, and %s needs %zu: %s",
                                      TREADLE_RL_PLACE(&f->task, generate.device_memory),
                                      TREADLE_RL_PLACE(&f->task, generate.gpu_memory_utilization), room,
                                      who, worst->least_bytes, text.text);
out:
  treadle_builder_release(&text);
  return status;
}
