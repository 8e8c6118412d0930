/* treadle train: reinforcement learning. */
#include "cli/json_out.h"
#include "cli/run_command.h"
#include "cli/stop.h"
#include "cli/train_plan.h"

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
  if (s->expert_load_max > 0) fprintf(file, "  load %.2f to %.2f", s->expert_load_min, s->expert_load_max);
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
  treadle_train_plan p = {.by_rank = by_rank, .ranks = ranks};
  treadle_observer observer;
  const treadle_rl_options options = options_of(a, &observer);
  char why[1024];
  treadle_status status, foreseen;
  TRY(treadle_rl_foresee_kept(config, &options, &p.kept));
  foreseen = status = treadle_rl_foresee(config, ranks, &options, by_rank);
  snprintf(why, sizeof why, "%s", treadle_error_message());
  for (int64_t rank = 0; rank < ranks; rank++)
    if (by_rank[rank].peak_bytes > p.peak) p.peak = by_rank[rank].peak_bytes;
  *misfit_p = foreseen && p.peak; /* more than there is: the plan is there */
  p.fits = !foreseen;
  if (foreseen && !*misfit_p) goto out;
  TRY(treadle_train_plan_print(&p, config, &options, a->json));
  if (foreseen) status = treadle_error_set(foreseen, why);
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
                                            .count_ranks = treadle_train_plan_ranks,
                                            .plan = plan,
                                            .run = run};
  return treadle_run_command_run(&train, a);
}
