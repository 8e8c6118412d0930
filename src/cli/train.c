/* treadle train: reinforcement learning. */
#include "cli/json_out.h"
#include "cli/run_command.h"
#include "cli/stop.h"

#include <math.h>
#include <string.h>

static void progress(void *context, const treadle_rl_step *s) {
  FILE *file = context;
  treadle_progress_end();
  if (!s->step) {
    fprintf(file, "before the first step: test reward %.4f\n", s->val_reward);
    fflush(file);
    return;
  }
  fprintf(file, "step %lld of %lld  reward %.4f", (long long)s->step, (long long)s->steps, s->reward);
  if (!isnan(s->kl)) fprintf(file, "  kl %.3g", s->kl);
  if (!isnan(s->entropy)) fprintf(file, "  entropy %.3f", s->entropy);
  fprintf(file, "  length %.1f", s->response_length);
  if (!isnan(s->loss)) fprintf(file, "  norm %.3g", s->grad_norm);
  fprintf(file, "  %.2f s (gen %.2f, switch %.3f)  peak %.1f MiB", s->seconds, s->gen_seconds,
          s->switch_seconds, (double)s->peak_bytes / (1 << 20));
  if (s->logprob_differing)
    fprintf(file, "  %lld log-probabilities differ", (long long)s->logprob_differing);
  if (s->skipped) fprintf(file, "  skipped: the norm is not finite");
  if (s->tested) fprintf(file, "  test reward %.4f", s->val_reward);
  if (s->checkpoint) fprintf(file, "  saved %s", s->checkpoint);
  fprintf(file, "\n");
  fflush(file);
}

static void note(void *context, bool warns, const char *line) {
  FILE *file = context;
  treadle_progress_end();
  if (warns) {
    fprintf(stderr, "treadle train: warning: %s\n", line);
    return;
  }
  fprintf(file, "%s\n", line);
  fflush(file);
}

static void print_text(const treadle_rl_figures *r, const char *weights) {
  if (!r->steps && r->stopped) {
    printf("stopped before a step was taken: the run is at step %lld; digest of the weights %s\n",
           (long long)r->last_step, weights);
    return;
  }
  if (!r->steps) {
    printf("no step to take: the run is at step %lld; digest of the weights %s\n", (long long)r->last_step,
           weights);
    return;
  }
  printf("%s%lld step%s, reward %.4f to %.4f", r->stopped ? "stopped: " : "", (long long)r->steps,
         r->steps == 1 ? "" : "s", r->reward_first, r->reward_last);
  if (!isnan(r->val_first)) printf(", test %.4f to %.4f", r->val_first, r->val_last);
  printf(", %.2f s a step, %.0f tokens/s\n", r->step_seconds, r->tokens_per_second);
  printf("%lld of %lld log-probabilities differ; peak %zu bytes, foreseen %zu; digest of the weights %s\n",
         (long long)r->logprob_differing, (long long)r->logprob_tokens, r->peak_bytes,
         r->peak_predicted_bytes, weights);
  if (r->checkpoint[0]) printf("newest checkpoint: %s\n", r->checkpoint);
}

static void print(const treadle_rl_figures *r, bool json) {
  char weights[32], losses[32];
  treadle_json_out out = {.file = stdout};
  snprintf(weights, sizeof weights, "%016llx", (unsigned long long)r->weights_digest);
  snprintf(losses, sizeof losses, "%016llx", (unsigned long long)r->losses_digest);
  if (!json) {
    print_text(r, weights);
    return;
  }
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_int(&out, "steps", r->steps);
  treadle_json_out_exact(&out, "reward_first", r->reward_first);
  treadle_json_out_exact(&out, "reward_last", r->reward_last);
  treadle_json_out_exact(&out, "val_first", r->val_first);
  treadle_json_out_exact(&out, "val_last", r->val_last);
  treadle_json_out_int(&out, "logprob_tokens", r->logprob_tokens);
  treadle_json_out_int(&out, "logprob_differing", r->logprob_differing);
  treadle_json_out_exact(&out, "logprob_max_diff", r->logprob_max_diff);
  treadle_json_out_int(&out, "peak_bytes", (int64_t)r->peak_bytes);
  treadle_json_out_int(&out, "peak_predicted_bytes", (int64_t)r->peak_predicted_bytes);
  treadle_json_out_int(&out, "kv_blocks", r->kv_blocks);
  treadle_json_out_real(&out, "step_seconds", r->step_seconds);
  treadle_json_out_real(&out, "tokens_per_second", r->tokens_per_second);
  treadle_json_out_text(&out, "weights_source", treadle_weights_name(r->weights));
  treadle_json_out_text(&out, "weights_digest", weights);
  treadle_json_out_text(&out, "losses_digest", losses);
  treadle_json_out_text(&out, "checkpoint", r->checkpoint[0] ? r->checkpoint : NULL);
  treadle_json_out_close(&out, '}');
}

/* ---- --plan ---- */

static const struct {
  const char *name;
  treadle_class which[2];
} classes[] = {{"params", {TREADLE_PARAMS, TREADLE_PARAMS}},
               {"grads", {TREADLE_GRADS, TREADLE_GRADS}},
               {"optimizer", {TREADLE_OPTIMIZER, TREADLE_OPTIMIZER}},
               {"infer", {TREADLE_INFER_PARAMS, TREADLE_INFER_PARAMS}},
               {"kv", {TREADLE_KV, TREADLE_KV}},
               {"work", {TREADLE_WORK, TREADLE_TRAIN_WORK}},
               {"reference", {TREADLE_REFERENCE, TREADLE_REFERENCE}}};
enum { CLASSES = sizeof classes / sizeof *classes };

static const struct {
  const char *name;
  treadle_mode mode;
} modes[] = {{"train", TREADLE_TRAIN},
             {"forward", TREADLE_FORWARD},
             {"infer", TREADLE_INFER},
             {"host", TREADLE_HOST}};
enum { MODES = sizeof modes / sizeof *modes };

static size_t sum_of(const size_t *bytes) {
  size_t sum = 0;
  for (int c = 0; c < TREADLE_CLASSES; c++) sum += bytes[c];
  return sum;
}

/* Of a class, in a mode; in FORWARD, while the reference is there where there is one, or a critic is trained, whichever has more. */
static size_t bytes_of(const treadle_actor_memory *m, int mode, int c) {
  const size_t *bytes = m->by_mode[modes[mode].mode];
  if (modes[mode].mode == TREADLE_FORWARD && m->with_reference[TREADLE_REFERENCE])
    bytes = m->with_reference;
  if (modes[mode].mode == TREADLE_FORWARD && sum_of(m->with_critic) > sum_of(bytes)) bytes = m->with_critic;
  size_t sum = bytes[classes[c].which[0]];
  return classes[c].which[1] == classes[c].which[0] ? sum : sum + bytes[classes[c].which[1]];
}

/* "infer": the mode that holds the most. */
static const char *fullest_mode(const treadle_actor_memory *m) {
  size_t most = 0;
  int found = 0;
  for (int mode = 0; mode < MODES; mode++) {
    size_t sum = 0;
    for (int c = 0; c < CLASSES; c++) sum += bytes_of(m, mode, c);
    if (sum > most) found = mode;
    if (sum > most) most = sum;
  }
  return modes[found].name;
}

static void print_table(const treadle_actor_memory *m, int64_t ranks) {
  for (int64_t first = 0, end; first < ranks; first = end) {
    for (end = first + 1; end < ranks && memcmp(&m[end], &m[first], sizeof *m) == 0;) end++;
    printf("%s%lld", end - first > 1 ? "ranks " : "rank ", (long long)first);
    if (end - first > 1) printf(" to %lld", (long long)end - 1);
    printf(": peak %.1f MiB, most in mode %s; %lld KV blocks\n", (double)m[first].peak_bytes / (1 << 20),
           fullest_mode(&m[first]), (long long)m[first].kv_blocks);
    printf("  %-8s", "MiB");
    for (int c = 0; c < CLASSES; c++) printf(" %10s", classes[c].name);
    printf("\n");
    for (int mode = 0; mode < MODES; mode++) {
      printf("  %-8s", modes[mode].name);
      for (int c = 0; c < CLASSES; c++) printf(" %10.2f", (double)bytes_of(&m[first], mode, c) / (1 << 20));
      printf("\n");
    }
  }
}

static void print_rank(treadle_json_out *out, const treadle_actor_memory *m, int64_t rank, size_t kept) {
  treadle_json_out_open(out, NULL, '{');
  treadle_json_out_int(out, "rank", rank);
  treadle_json_out_open(out, "modes", '{');
  for (int mode = 0; mode < MODES; mode++) {
    treadle_json_out_open(out, modes[mode].name, '{');
    for (int c = 0; c < CLASSES; c++)
      treadle_json_out_int(out, classes[c].name, (int64_t)bytes_of(m, mode, c));
    treadle_json_out_close(out, '}');
  }
  treadle_json_out_close(out, '}');
  treadle_json_out_int(out, "peak_bytes", (int64_t)m->peak_bytes);
  treadle_json_out_int(out, "kept_bytes", (int64_t)kept);
  treadle_json_out_close(out, '}');
}

/* kept: bytes of ids that tokens were drawn from, in each rank's host memory. */
static void print_plan(const treadle_actor_memory *m, int64_t ranks, size_t kept, bool fits, bool json) {
  treadle_json_out out = {.file = stdout};
  size_t peak = 0;
  int64_t blocks = m->kv_blocks;
  if (!json) {
    print_table(m, ranks);
    return;
  }
  for (int64_t rank = 0; rank < ranks; rank++) {
    if (m[rank].peak_bytes > peak) peak = m[rank].peak_bytes;
    if (m[rank].kv_blocks < blocks) blocks = m[rank].kv_blocks;
  }
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_int(&out, "peak_bytes", (int64_t)peak);
  treadle_json_out_int(&out, "kv_blocks", blocks);
  treadle_json_out_bool(&out, "fits", fits);
  treadle_json_out_open(&out, "by_rank", '[');
  for (int64_t rank = 0; rank < ranks; rank++) print_rank(&out, &m[rank], rank, kept);
  treadle_json_out_close(&out, ']');
  treadle_json_out_close(&out, '}');
}

static treadle_rl_options options_of(const treadle_arguments *a, treadle_observer *observer) {
  *observer = (treadle_observer){.struct_size = sizeof *observer,
                                 .context = a->json ? stderr : stdout,
                                 .progress = treadle_progress_doing,
                                 .note = note,
                                 .stop = treadle_stop_asked};
  treadle_rl_options options = {.struct_size = sizeof options,
                                .families = a->model.families,
                                .kernels = a->kernels.name,
                                .threads = (int32_t)a->kernels.threads,
                                .progress = progress,
                                .context = observer->context,
                                .observer = observer};
  options.resume = treadle_run_command_resume(&a->run, &options.from);
  return options;
}

static treadle_status plan(const treadle_arguments *a, treadle_train_config *config, int64_t ranks,
                           void *memory, bool *misfit_p) {
  treadle_actor_memory *by_rank = memory;
  treadle_observer observer;
  const treadle_rl_options options = options_of(a, &observer);
  size_t kept;
  treadle_status status;
  TRY(treadle_rl_foresee_kept(config, &options, &kept));
  status = treadle_rl_foresee(config, ranks, &options, by_rank);
  *misfit_p = status && by_rank[0].peak_bytes; /* more than there is: the plan is there */
  if (!status || *misfit_p) print_plan(by_rank, ranks, kept, !*misfit_p, a->json);
out:
  return status;
}

static treadle_status run(const treadle_arguments *a, treadle_session *session,
                          treadle_train_config *config, bool *stopped_p) {
  treadle_observer observer;
  treadle_rl_options options = options_of(a, &observer);
  treadle_rl_figures result = TREADLE_INIT(treadle_rl_figures);
  treadle_status status;
  if (!a->run.resume) options.resume = treadle_rl_config_start(config, &options.from);
  treadle_stop_listen();
  treadle_stop_say(session);
  TRY(treadle_session_agree(session, treadle_rl_run(session->group, config, &options, &result)));
  treadle_progress_end();
  if (session->rank == 0) print(&result, a->json);
  *stopped_p = result.stopped;
out:
  return status;
}

int treadle_command_train(const treadle_arguments *a) {
  static const treadle_run_command train = {.name = "train",
                                            .nodes = true,
                                            .help_config = treadle_rl_config_help,
                                            .read_config = treadle_rl_config_read,
                                            .memory_bytes = sizeof(treadle_actor_memory),
                                            .plan = plan,
                                            .run = run};
  return treadle_run_command_run(&train, a);
}
