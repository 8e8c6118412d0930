/* treadle sft: supervised training. */
#include "base/text.h"
#include "cli/json_out.h"
#include "cli/run_command.h"
#include "cli/stop.h"

#include <string.h>

static void progress(void *context, const treadle_sft_step *step) {
  FILE *file = context;
  fprintf(file, "step %lld of %lld  loss %.5f  norm %.4g  lr %.3g  %.0f tokens/s  %.2f s%s",
          (long long)step->step, (long long)step->steps, step->loss, step->grad_norm, step->lr,
          step->seconds > 0 ? (double)step->tokens / step->seconds : 0, step->seconds,
          step->skipped ? "  skipped: the norm is not finite" : "");
  if (step->tested) fprintf(file, "  val loss %.5f", step->val_loss);
  if (step->checkpoint) fprintf(file, "  saved %s", step->checkpoint);
  fprintf(file, "\n");
  fflush(file);
}

static void print(const treadle_sft_figures *r, bool json) {
  char weights[32], losses[32];
  snprintf(weights, sizeof weights, "%016llx", (unsigned long long)r->weights_digest);
  snprintf(losses, sizeof losses, "%016llx", (unsigned long long)r->losses_digest);
  if (!json && !r->steps) {
    printf("no step to take: the run is at step %lld; digest of the weights %s\n", (long long)r->last_step,
           weights);
    return;
  }
  if (!json) {
    printf("%s%s, loss %.5f to %.5f, %s in %.1f s, digest of the weights %s\n",
           r->stopped ? "stopped: " : "", treadle_text_of_count(r->steps, "step"), r->loss_first,
           r->loss_last, treadle_text_of_count(r->tokens, "token"), r->seconds, weights);
    if (r->checkpoint[0]) printf("newest checkpoint: %s\n", r->checkpoint);
    return;
  }
  treadle_json_out out = {.file = stdout};
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_int(&out, "steps", r->steps);
  treadle_json_out_exact(&out, "loss_first", r->loss_first);
  treadle_json_out_exact(&out, "loss_last", r->loss_last);
  treadle_json_out_int(&out, "tokens", r->tokens);
  treadle_json_out_real(&out, "seconds", r->seconds);
  treadle_json_out_real(&out, "tokens_per_second", r->seconds > 0 ? (double)r->tokens / r->seconds : 0);
  treadle_json_out_int(&out, "peak_bytes", (int64_t)r->peak_bytes);
  treadle_json_out_int(&out, "peak_predicted_bytes", (int64_t)r->peak_predicted_bytes);
  treadle_json_out_text(&out, "weights_source", treadle_weights_name(r->weights));
  treadle_json_out_text(&out, "weights_digest", weights);
  treadle_json_out_text(&out, "losses_digest", losses);
  treadle_json_out_text(&out, "checkpoint", r->checkpoint[0] ? r->checkpoint : NULL);
  treadle_json_out_close(&out, '}');
}

static void note(void *context, bool warns, const char *line) {
  (void)context;
  (void)warns;
  fprintf(stderr, "treadle sft: warning: %s\n", line);
}

/* ---- --plan ---- */

static bool same_memory(const treadle_trainer_memory *a, const treadle_trainer_memory *b) {
  return memcmp(a, b, sizeof *a) == 0;
}

static void print_mib(const char *what, size_t bytes) {
  printf("  %s %.1f MiB", what, (double)bytes / (1 << 20));
}

/* A line for ranks that follow each other and hold the same. */
static void print_table(const treadle_trainer_memory *m, int64_t ranks) {
  for (int64_t first = 0, end; first < ranks; first = end) {
    for (end = first + 1; end < ranks && same_memory(&m[end], &m[first]);) end++;
    char name[64];
    snprintf(name, sizeof name, end - first > 1 ? "ranks %lld to %lld" : "rank %lld", (long long)first,
             (long long)end - 1);
    printf("%-20s", name);
    print_mib("params", m[first].params);
    print_mib("grads", m[first].grads);
    print_mib("optimizer", m[first].optimizer);
    print_mib("work", m[first].work + m[first].board);
    print_mib("peak", m[first].peak);
    printf("\n");
  }
}

static void print_plan(const treadle_trainer_memory *m, int64_t ranks, bool json) {
  treadle_json_out out = {.file = stdout};
  size_t peak = 0;
  if (!json) {
    print_table(m, ranks);
    return;
  }
  for (int64_t rank = 0; rank < ranks; rank++)
    if (m[rank].peak > peak) peak = m[rank].peak;
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_int(&out, "peak_bytes", (int64_t)peak);
  treadle_json_out_open(&out, "by_rank", '[');
  for (int64_t rank = 0; rank < ranks; rank++) {
    treadle_json_out_open(&out, NULL, '{');
    treadle_json_out_int(&out, "rank", rank);
    treadle_json_out_int(&out, "params", (int64_t)m[rank].params);
    treadle_json_out_int(&out, "grads", (int64_t)m[rank].grads);
    treadle_json_out_int(&out, "optimizer", (int64_t)m[rank].optimizer);
    treadle_json_out_int(&out, "work", (int64_t)(m[rank].work + m[rank].board));
    treadle_json_out_int(&out, "peak_bytes", (int64_t)m[rank].peak);
    treadle_json_out_close(&out, '}');
  }
  treadle_json_out_close(&out, ']');
  treadle_json_out_close(&out, '}');
}

static treadle_sft_options options_of(const treadle_arguments *a, treadle_observer *observer) {
  *observer = (treadle_observer){.struct_size = sizeof *observer, .note = note, .stop = treadle_stop_asked};
  treadle_sft_options options = {.struct_size = sizeof options,
                                 .families = a->model.families,
                                 .kernels = a->kernels.name,
                                 .threads = (int32_t)a->kernels.threads,
                                 .progress = progress,
                                 .context = a->json ? stderr : stdout,
                                 .observer = observer,
                                 .budget_bytes = a->memory.budget_bytes};
  options.resume = treadle_run_command_resume(&a->run, &options.from);
  return options;
}

static treadle_status plan(const treadle_arguments *a, treadle_train_config *config, int64_t ranks,
                           void *memory, bool *misfit_p) {
  treadle_trainer_memory *by_rank = memory;
  treadle_observer observer;
  const treadle_sft_options options = options_of(a, &observer);
  treadle_status status = treadle_sft_foresee(config, ranks, &options, by_rank);
  *misfit_p = status && by_rank[0].peak; /* more than the budget: the plan is there */
  if (!status || *misfit_p) print_plan(by_rank, ranks, a->json);
  return status;
}

static treadle_status run(const treadle_arguments *a, treadle_session *session,
                          treadle_train_config *config, bool *stopped_p) {
  treadle_observer observer;
  const treadle_sft_options options = options_of(a, &observer);
  treadle_sft_figures result = TREADLE_INIT(treadle_sft_figures);
  treadle_status status;
  treadle_stop_listen();
  treadle_stop_say(session);
  TRY(treadle_session_agree(session, treadle_sft_run(session->group, config, &options, &result)));
  if (session->rank == 0) print(&result, a->json);
  *stopped_p = result.stopped;
out:
  return status;
}

int treadle_command_sft(const treadle_arguments *a) {
  static const treadle_run_command sft = {.name = "sft",
                                          .help_config = treadle_train_config_help,
                                          .read_config = treadle_train_config_read,
                                          .memory_bytes = sizeof(treadle_trainer_memory),
                                          .plan = plan,
                                          .run = run};
  return treadle_run_command_run(&sft, a);
}
