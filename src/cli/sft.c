/* treadle sft: supervised training. */
#include "cli/cli.h"
#include "cli/json_out.h"
#include "cli/session.h"

#include "treadle_engine.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_STOPPED = 130 };

static volatile sig_atomic_t asked;

/* Once: the run saves and ends. The second time the signal does what it always does. */
static void ask(int number) {
  asked = 1;
  signal(number, SIG_DFL);
}

static bool stops(void *context) {
  (void)context;
  return asked != 0;
}

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
  if (!json) {
    printf("%s%lld steps, loss %.5f to %.5f, %lld tokens in %.1f s, digest of the weights %s\n",
           r->stopped ? "stopped: " : "", (long long)r->steps, r->loss_first, r->loss_last,
           (long long)r->tokens, r->seconds, weights);
    if (r->checkpoint[0]) printf("newest checkpoint: %s\n", r->checkpoint);
    return;
  }
  treadle_json_out out = {.file = stdout};
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_int(&out, "steps", r->steps);
  treadle_json_out_real(&out, "loss_first", r->loss_first);
  treadle_json_out_real(&out, "loss_last", r->loss_last);
  treadle_json_out_int(&out, "tokens", r->tokens);
  treadle_json_out_real(&out, "seconds", r->seconds);
  treadle_json_out_real(&out, "tokens_per_second", r->seconds > 0 ? (double)r->tokens / r->seconds : 0);
  treadle_json_out_int(&out, "peak_bytes", (int64_t)r->peak_bytes);
  treadle_json_out_int(&out, "peak_predicted_bytes", (int64_t)r->peak_predicted_bytes);
  treadle_json_out_text(&out, "weights_digest", weights);
  treadle_json_out_text(&out, "losses_digest", losses);
  treadle_json_out_text(&out, "checkpoint", r->checkpoint[0] ? r->checkpoint : NULL);
  treadle_json_out_close(&out, '}');
}

static int help_config(bool json) {
  char *text = NULL;
  treadle_status status = treadle_train_config_help(json, &text);
  if (status) return treadle_report_refusal("sft", status);
  fputs(text, stdout);
  free(text);
  return treadle_finish_output("sft", TREADLE_EXIT_OK);
}

/* The configuration; rank 0 says what there is to say about it. */
static treadle_status read_config(const treadle_session *session, const treadle_arguments *a,
                                  treadle_train_config **config_p) {
  size_t count;
  treadle_status status;
  TRY(treadle_train_config_read(a->words[0], a->words + 1, (size_t)a->word_count - 1, config_p));
  const char *const *warnings = treadle_train_config_warnings(*config_p, &count);
  for (size_t i = 0; i < count && session->rank == 0; i++)
    fprintf(stderr, "treadle sft: warning: %s\n", warnings[i]);
out:
  return status;
}

static treadle_sft_options options_of(const treadle_arguments *a) {
  treadle_sft_options options = {.struct_size = sizeof options,
                                 .families = a->families,
                                 .kernels = a->kernels,
                                 .threads = (int32_t)a->threads,
                                 .progress = progress,
                                 .stops = stops,
                                 .context = a->json ? stderr : stdout};
  if (!a->resume || strcmp(a->resume, "never") == 0) return options;
  options.resume = strcmp(a->resume, "auto") == 0 ? TREADLE_RESUME_AUTO : TREADLE_RESUME_FROM;
  options.from = a->resume;
  return options;
}

int treadle_command_sft(const treadle_arguments *a) {
  treadle_session session = {0};
  treadle_train_config *config = NULL;
  treadle_sft_options options = options_of(a);
  treadle_sft_figures result = TREADLE_INIT(treadle_sft_figures);
  treadle_status status;
  if (a->help_config) return help_config(a->json);
  if (!a->word_count) {
    status = treadle_fail(TREADLE_REFUSED, "needs CONFIG.yaml; see treadle sft --help");
    return treadle_report_refusal("sft", status);
  }
  TRY(treadle_session_start_if_launched(&session, "sft", 600));
  TRY(treadle_session_agree(&session, read_config(&session, a, &config)));
  signal(SIGINT, ask);
  signal(SIGTERM, ask);
  TRY(treadle_session_agree(&session, treadle_sft_run(session.group, config, &options, &result)));
  if (session.rank == 0) print(&result, a->json);
out:
  if (status && !session.said) treadle_session_abandon(&session, status);
  treadle_train_config_destroy(config);
  int exit_status = treadle_finish_output("sft", treadle_exit_status(status));
  treadle_session_end(&session);
  return exit_status == TREADLE_EXIT_OK && result.stopped ? EXIT_STOPPED : exit_status;
}
