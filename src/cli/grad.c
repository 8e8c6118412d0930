/* treadle grad: loss and gradients of a few rows. */
#include "cli/cli.h"
#include "cli/json_lines.h"
#include "cli/json_out.h"
#include "cli/open_text.h"
#include "cli/session.h"

#include "base/clock.h"
#include "treadle_loop.h"
#include "treadle_tools.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct grad_job {
  treadle_session session; /* ranks of mpirun, or this one alone */
  treadle_model *model;
  treadle_layout *layout;
  treadle_tokenizer *tokenizer;
  treadle_chat *chat;
  treadle_trainer *trainer;
  treadle_batch *rows;
  treadle_json_lines lines;
  treadle_loss loss;
  double norm, seconds;
  uint64_t digest;
  size_t peak, predicted; /* bytes of the fullest rank */
} grad_job;

/* The layout with --dtype. */
static treadle_status open_layout(grad_job *job, const treadle_arguments *a) {
  const char *text = a->layouts.engine ? a->layouts.engine : "hf", *said = strstr(text, "dtype=");
  char whole[1024];
  if (said && a->grad.dtype && strncmp(said + strlen("dtype="), a->grad.dtype, strlen(a->grad.dtype)) != 0)
    return treadle_fail(TREADLE_REFUSED, "--dtype is %s, and the layout says otherwise: %s", a->grad.dtype,
                        text);
  snprintf(whole, sizeof whole, "%s%s%s%s", text,
           !a->grad.dtype || said ? ""
           : strchr(text, ':')    ? ","
                                  : ":",
           a->grad.dtype && !said ? "dtype=" : "", a->grad.dtype && !said ? a->grad.dtype : "");
  return treadle_layout_create(job->model, whole, job->session.size, NULL, &job->layout);
}

/* The largest sum of tokens of micro batches, and the longest row. */
static treadle_status measure(const grad_job *job, int64_t micro_batch, treadle_trainer_options *options) {
  const int64_t count = treadle_batch_rows(job->rows);
  treadle_column ids = TREADLE_INIT(treadle_column);
  treadle_status status;
  TRY(treadle_batch_column(job->rows, "ids", &ids));
  for (int64_t first = 0; first < count; first += micro_batch) {
    int64_t tokens = 0;
    for (int64_t r = first; r < count && r < first + micro_batch; r++) {
      const int64_t length = ids.offsets[r + 1] - ids.offsets[r];
      tokens += length;
      if (length > options->most_tokens) options->most_tokens = length;
    }
    if (tokens > options->most_rows) options->most_rows = tokens;
  }
  options->most_micro_batches = (int32_t)((count + micro_batch - 1) / micro_batch);
out:
  return status;
}

static bool mentions(const grad_job *job, const char *key) {
  return memmem(job->lines.text, job->lines.bytes, key, strlen(key)) != NULL;
}

/* The tokenizer and the chat template, where the rows seem to need them. */
static treadle_status open_texts(grad_job *job, const treadle_arguments *a) {
  bool chats = mentions(job, "\"prompt\"") || mentions(job, "\"messages\"");
  treadle_status status = TREADLE_OK;
  if (chats || mentions(job, "\"text\""))
    TRY(treadle_open_tokenizer(a->words[0], a->text.tokenizer, &job->tokenizer));
  if (chats) TRY(treadle_find_chat(a->words[0], a->text.tokenizer, &job->chat));
out:
  return status;
}

static treadle_status read_experts(const treadle_model *model, const char *path, treadle_batch *rows) {
  treadle_json_lines lines = {0};
  treadle_status status;
  TRY(treadle_json_lines_open(&lines, path));
  TRY(treadle_train_experts_read(model, path, lines.text, lines.bytes, rows));
out:
  treadle_json_lines_close(&lines);
  return status;
}

/* What there is before the trainer. */
static treadle_status prepare(grad_job *job, const treadle_arguments *a) {
  treadle_train_rows_spec spec = {.struct_size = sizeof spec, .what = a->files.in};
  treadle_status status;
  TRY(treadle_open_model(&a->model, a->words[0], job->session.rank == 0, &job->model));
  TRY(treadle_need_weights(job->model, a->words[0], job->session.rank == 0));
  TRY(open_layout(job, a));
  TRY(treadle_json_lines_open(&job->lines, a->files.in));
  TRY(open_texts(job, a));
  spec.tokenizer = job->tokenizer;
  spec.chat = job->chat;
  spec.layout = job->layout;
  TRY(treadle_train_rows_read(&spec, job->lines.text, job->lines.bytes, &job->rows));
  if (a->grad.experts) TRY(read_experts(job->model, a->grad.experts, job->rows));
  if (a->files.out && job->session.rank == 0) TRY(treadle_output_ask(a->files.out));
  if (a->grad.write_experts && job->session.rank == 0) TRY(treadle_output_ask(a->grad.write_experts));
out:
  return status;
}

/* Bytes of the fullest rank: as they are, and as the shapes alone say. */
static treadle_status find_peaks(grad_job *job, const treadle_trainer_options *options) {
  size_t ranks = (size_t)job->session.size, mine = treadle_trainer_bytes(job->trainer);
  size_t *all = calloc(ranks, sizeof *all);
  treadle_trainer_memory *plan = calloc(ranks, sizeof *plan);
  treadle_status status = TREADLE_OK;
  if (!all || !plan) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the forecast of %zu ranks", ranks));
  TRY(treadle_trainer_foresee(job->layout, options, plan));
  TRY(treadle_group_gather(job->session.group, &mine, sizeof mine, all));
  for (size_t rank = 0; rank < ranks; rank++) {
    if (all[rank] > job->peak) job->peak = all[rank];
    if (plan[rank].peak > job->predicted) job->predicted = plan[rank].peak;
  }
out:
  free(all);
  free(plan);
  return status;
}

/* A number from 0 on, or above 0; NULL: it is not given. */
static treadle_status read_number(const char *option, const char *text, bool above, double *value_p) {
  char *end = NULL;
  if (!text) return TREADLE_OK;
  *value_p = strtod(text, &end);
  if (end == text || *end || !(*value_p >= 0) || (above && *value_p == 0) || !isfinite(*value_p))
    return treadle_fail(TREADLE_REFUSED, "--%s %s: a number %s", option, text,
                        above ? "above 0" : "from 0 on");
  return TREADLE_OK;
}

static treadle_status read_routers(const treadle_arguments *a, treadle_trainer_options *options) {
  treadle_status status;
  TRY(read_number("aux-loss-coeff", a->grad.aux_loss_coeff, false, &options->aux_loss_coeff));
  if (a->grad.seq_aux_loss && !a->grad.aux_loss_coeff) REFUSE("--seq-aux-loss needs --aux-loss-coeff C");
  TRY(read_number("z-loss-coeff", a->grad.z_loss_coeff, false, &options->z_loss_coeff));
out:
  return status;
}

/* What there is to train in place of the weights. */
static treadle_status read_adapters(const treadle_arguments *a, treadle_trainer_options *options) {
  const treadle_grad_arguments *g = &a->grad;
  if (!g->lora_rank && (g->lora_alpha || g->lora_modules || g->lora_adapter))
    return treadle_fail(TREADLE_REFUSED,
                        "--lora-alpha, --target-modules and --lora are of adapters: give --lora-rank");
  options->lora_rank = g->lora_rank;
  options->lora_modules = g->lora_modules;
  options->lora_adapter = g->lora_adapter;
  return read_number("lora-alpha", g->lora_alpha, true, &options->lora_alpha);
}

static treadle_status run(grad_job *job, const treadle_arguments *a) {
  treadle_trainer_options options = {.struct_size = sizeof options,
                                     .kernels = a->kernels.name,
                                     .threads = (int32_t)a->kernels.threads,
                                     .fast = a->kernels.exact == 1,
                                     .recompute = a->grad.recompute == 1,
                                     .sequence_parallel = a->grad.sequence_parallel,
                                     .seq_aux_loss = a->grad.seq_aux_loss,
                                     .ulysses_ranks = (int32_t)a->grad.ulysses};
  const treadle_forward_options forward = {.struct_size = sizeof forward,
                                           .micro_batch_size =
                                               a->grad.micro_batch ? a->grad.micro_batch : 1,
                                           .replay_experts = a->grad.experts != NULL,
                                           .experts = a->grad.write_experts != NULL};
  const treadle_loss_options nll = {.struct_size = sizeof nll, .name = "nll"};
  treadle_batch *mine = NULL, *found = NULL;
  treadle_session *session = &job->session;
  treadle_status status;
  TRY(treadle_session_start(session, "grad", 600));
  TRY(treadle_session_agree(session, read_adapters(a, &options)));
  TRY(treadle_session_agree(session, read_routers(a, &options)));
  TRY(treadle_session_agree(session, treadle_as_refusal(prepare(job, a))));
  TRY(treadle_session_agree(session, measure(job, forward.micro_batch_size, &options)));
  TRY(treadle_session_agree(session,
                            treadle_trainer_create(session->group, job->layout, &options, &job->trainer)));
  TRY(treadle_session_agree(session, find_peaks(job, &options)));
  TRY(treadle_session_agree(session, treadle_trainer_load(job->trainer)));
  TRY(treadle_session_agree(session,
                            treadle_trainer_slice(job->trainer, job->rows, &forward, NULL, &mine)));
  TRY(treadle_session_agree(session, treadle_batch_create(treadle_batch_rows(mine), &found)));
  double begin = treadle_clock_seconds();
  TRY(treadle_session_agree(
      session, treadle_trainer_gradients(job->trainer, mine, &forward, &nll, found, &job->loss)));
  job->seconds = treadle_clock_seconds() - begin;
  TRY(treadle_session_agree(session, treadle_trainer_norm(job->trainer, &job->norm)));
  TRY(treadle_session_agree(session, treadle_trainer_digest(job->trainer, &job->digest)));
  if (a->files.out)
    TRY(treadle_session_agree(session, treadle_trainer_save_gradients(job->trainer, a->files.out)));
  if (a->grad.write_experts)
    TRY(treadle_session_agree(session,
                              treadle_trainer_save_experts(job->trainer, found, a->grad.write_experts)));
out:
  treadle_batch_destroy(found);
  treadle_batch_destroy(mine);
  return status;
}

static void print(const grad_job *job, const treadle_arguments *a) {
  double loss = job->loss.nll / (double)job->loss.tokens;
  char digest[32];
  snprintf(digest, sizeof digest, "%016llx", (unsigned long long)job->digest);
  if (!a->json) {
    printf("loss %.9g of %lld tokens, norm of the gradients %.9g, digest %s, %.2f s\n", loss,
           (long long)job->loss.tokens, job->norm, digest, job->seconds);
    if (a->grad.aux_loss_coeff || a->grad.z_loss_coeff)
      printf("losses of routers %.9g\n", job->loss.aux_loss);
    if (job->loss.experts_compared)
      printf("%lld of %lld tokens would have gone to other experts\n",
             (long long)job->loss.experts_differing, (long long)job->loss.experts_compared);
    return;
  }
  treadle_json_out out = {.file = stdout};
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_exact(&out, "loss", loss);
  treadle_json_out_int(&out, "tokens", job->loss.tokens);
  treadle_json_out_exact(&out, "aux_loss", job->loss.aux_loss);
  treadle_json_out_int(&out, "experts_compared", job->loss.experts_compared);
  treadle_json_out_int(&out, "experts_differing", job->loss.experts_differing);
  treadle_json_out_text(&out, "weights_source", treadle_weights_name(treadle_model_weights(job->model)));
  treadle_json_out_exact(&out, "grad_norm", job->norm);
  treadle_json_out_text(&out, "digest", digest);
  treadle_json_out_int(&out, "peak_bytes", (int64_t)job->peak);
  treadle_json_out_int(&out, "peak_predicted_bytes", (int64_t)job->predicted);
  treadle_json_out_real(&out, "seconds", job->seconds);
  treadle_json_out_close(&out, '}');
}

int treadle_command_grad(const treadle_arguments *a) {
  grad_job job = {.loss = TREADLE_INIT(treadle_loss)};
  if (a->grad.loss == 1) return treadle_grad_policy(a);
  treadle_status status = run(&job, a);
  if (status && !job.session.said) treadle_session_abandon(&job.session, status);
  if (!status && job.session.rank == 0) print(&job, a);
  treadle_batch_destroy(job.rows);
  treadle_trainer_destroy(job.trainer);
  treadle_chat_close(job.chat);
  treadle_tokenizer_close(job.tokenizer);
  treadle_layout_destroy(job.layout);
  treadle_model_close(job.model);
  treadle_json_lines_close(&job.lines);
  int exit_status = treadle_finish_output("grad", treadle_exit_status(status));
  treadle_session_end(&job.session);
  return exit_status;
}
