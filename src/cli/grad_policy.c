/* treadle grad --loss grpo: loss and gradients of a mini batch of dumped samples. */
#include "cli/cli.h"
#include "cli/json_out.h"
#include "cli/session.h"

#include "base/clock.h"
#include "treadle_loop.h"
#include "treadle_tools.h"

#include <string.h>

typedef struct policy_job {
  treadle_session session;
  treadle_model *model;
  treadle_layout *layout;
  treadle_train_config *config;
  treadle_rl_mini_batch *mini;
  treadle_trainer *trainer;
  treadle_rl_mini_figures figures;
  double norm, seconds;
  uint64_t digest;
} policy_job;

/* Options of the rows of --loss nll would do nothing here. */
static treadle_status refuse_others(const treadle_grad_arguments *g) {
  const struct {
    const char *option;
    bool given;
  } others[] = {{"lora-rank", g->lora_rank > 0},
                {"lora-alpha", g->lora_alpha != NULL},
                {"target-modules", g->lora_modules != NULL},
                {"lora", g->lora_adapter != NULL},
                {"aux-loss-coeff", g->aux_loss_coeff != NULL},
                {"z-loss-coeff", g->z_loss_coeff != NULL},
                {"seq-aux-loss", g->seq_aux_loss},
                {"experts", g->experts != NULL},
                {"write-experts", g->write_experts != NULL}};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (others[i].given) REFUSE("--%s goes with --loss nll, and this is --loss grpo", others[i].option);
  return TREADLE_OK;
}

static treadle_status prepare(policy_job *job, const treadle_arguments *a) {
  const char *layout = a->layouts.engine ? a->layouts.engine : "hf";
  char text[1024];
  treadle_status status;
  if (!a->grad.config) REFUSE("--loss grpo needs --config CONFIG.yaml");
  TRY(refuse_others(&a->grad));
  TRY(treadle_rl_config_read(a->grad.config, NULL, 0, &job->config));
  TRY(treadle_open_model(&a->model, a->words[0], job->session.rank == 0, &job->model));
  TRY(treadle_need_weights(job->model, a->words[0], job->session.rank == 0));
  snprintf(text, sizeof text, "%s%s%s%s", layout, a->grad.dtype ? strchr(layout, ':') ? "," : ":" : "",
           a->grad.dtype ? "dtype=" : "", a->grad.dtype ? a->grad.dtype : "");
  TRY(treadle_layout_create(job->model, text, job->session.size, NULL, &job->layout));
  TRY(treadle_rl_mini_batch_read(job->config, job->layout, a->files.in,
                                 a->grad.mini_batch > 0 ? a->grad.mini_batch : 0, &job->mini));
  if (a->files.out && job->session.rank == 0) TRY(treadle_output_ask(a->files.out));
out:
  return status;
}

static treadle_status run(policy_job *job, const treadle_arguments *a) {
  treadle_trainer_options options = {.struct_size = sizeof options,
                                     .kernels = a->kernels.name,
                                     .threads = (int32_t)a->kernels.threads,
                                     .fast = a->kernels.exact == 1,
                                     .recompute = a->grad.recompute == 1,
                                     .sequence_parallel = a->grad.sequence_parallel,
                                     .ulysses_ranks = (int32_t)a->grad.ulysses};
  treadle_session *session = &job->session;
  treadle_status status;
  TRY(treadle_session_start(session, "grad", 600));
  status = treadle_as_refusal(prepare(job, a));
  if (!status) status = treadle_rl_mini_batch_measure(job->mini, a->grad.micro_batch, &options);
  TRY(treadle_session_agree(session, status));
  TRY(treadle_session_agree(session,
                            treadle_trainer_create(session->group, job->layout, &options, &job->trainer)));
  TRY(treadle_session_agree(session, treadle_trainer_load(job->trainer)));
  double begin = treadle_clock_seconds();
  TRY(treadle_session_agree(session,
                            treadle_rl_mini_batch_gradients(job->mini, job->trainer, &job->figures)));
  job->seconds = treadle_clock_seconds() - begin;
  TRY(treadle_session_agree(session, treadle_trainer_norm(job->trainer, &job->norm)));
  TRY(treadle_session_agree(session, treadle_trainer_digest(job->trainer, &job->digest)));
  if (a->files.out)
    TRY(treadle_session_agree(session, treadle_trainer_save_gradients(job->trainer, a->files.out)));
out:
  return status;
}

static void print(const policy_job *job, bool json) {
  const treadle_rl_mini_figures *f = &job->figures;
  char digest[32];
  treadle_json_out out = {.file = stdout};
  snprintf(digest, sizeof digest, "%016llx", (unsigned long long)job->digest);
  if (!json) {
    printf("loss %.9g (policy %.9g, kl %.9g, entropy %.9g) of %lld tokens in %lld samples, norm of the "
           "gradients %.9g, "
           "digest %s, %.2f s\n",
           f->loss, f->pg_loss, f->kl_loss, f->entropy, (long long)f->tokens, (long long)f->samples,
           job->norm, digest, job->seconds);
    return;
  }
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_exact(&out, "loss", f->loss);
  treadle_json_out_exact(&out, "pg_loss", f->pg_loss);
  treadle_json_out_exact(&out, "kl_loss", f->kl_loss);
  treadle_json_out_exact(&out, "entropy", f->entropy);
  treadle_json_out_exact(&out, "pg_clipfrac", f->clipfrac);
  treadle_json_out_exact(&out, "pg_clipfrac_lower", f->clipfrac_lower);
  treadle_json_out_exact(&out, "ppo_kl", f->ppo_kl);
  treadle_json_out_text(&out, "weights_source", treadle_weights_name(treadle_model_weights(job->model)));
  treadle_json_out_int(&out, "samples", f->samples);
  treadle_json_out_int(&out, "tokens", f->tokens);
  treadle_json_out_exact(&out, "grad_norm", job->norm);
  treadle_json_out_text(&out, "digest", digest);
  treadle_json_out_real(&out, "seconds", job->seconds);
  treadle_json_out_close(&out, '}');
}

int treadle_grad_policy(const treadle_arguments *a) {
  policy_job job = {.figures = TREADLE_INIT(treadle_rl_mini_figures)};
  treadle_status status = run(&job, a);
  if (status && !job.session.said) treadle_session_abandon(&job.session, status);
  if (!status && job.session.rank == 0) print(&job, a->json);
  treadle_trainer_destroy(job.trainer);
  treadle_rl_mini_batch_destroy(job.mini);
  treadle_train_config_destroy(job.config);
  treadle_layout_destroy(job.layout);
  treadle_model_close(job.model);
  int exit_status = treadle_finish_output("grad", treadle_exit_status(status));
  treadle_session_end(&job.session);
  return exit_status;
}
