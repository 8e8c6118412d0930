#include "cli/run_command.h"

#include "cli/stop.h"

#include <stdlib.h>
#include <string.h>

static int help_config(const treadle_run_command *command, bool json) {
  char *text = NULL;
  treadle_status status = command->help_config(json, &text);
  if (status) return treadle_report_refusal(command->name, status);
  fputs(text, stdout);
  free(text);
  return treadle_finish_output(command->name, TREADLE_EXIT_OK);
}

/* The configuration; rank 0 says what there is to say about it. */
static treadle_status read_config(const treadle_run_command *command, const treadle_session *session,
                                  const treadle_arguments *a, treadle_train_config **config_p) {
  const char *overrides[TREADLE_MAX_SETTINGS];
  size_t count = treadle_overrides_of(a, overrides);
  treadle_status status;
  TRY(command->read_config(a->words[0], overrides, count, config_p));
  const char *const *warnings = treadle_train_config_warnings(*config_p, &count);
  for (size_t i = 0; i < count && session->rank == 0; i++)
    fprintf(stderr, "treadle %s: warning: %s\n", command->name, warnings[i]);
out:
  return status;
}

static int plan(const treadle_run_command *command, const treadle_arguments *a) {
  const treadle_session alone = {.command = command->name, .size = 1};
  treadle_train_config *config = NULL;
  int64_t ranks = a->ranks.count ? a->ranks.count : 1;
  void *memory = NULL;
  bool misfit = false;
  treadle_status status;
  TRY(read_config(command, &alone, a, &config));
  if (!a->ranks.count && command->count_ranks) TRY(command->count_ranks(config, &ranks));
  memory = calloc((size_t)ranks, command->memory_bytes);
  if (!memory)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the forecast of %lld ranks", (long long)ranks));
  status = command->plan(a, config, ranks, memory, &misfit);
out:
  treadle_train_config_destroy(config);
  free(memory);
  if (!status) return treadle_finish_output(command->name, TREADLE_EXIT_OK);
  int exit_status = treadle_report_refusal(command->name, status);
  return misfit ? TREADLE_EXIT_FAILED : exit_status;
}

treadle_start treadle_run_command_resume(const treadle_run_arguments *a, const char **from_p) {
  if (!a->resume || strcmp(a->resume, "never") == 0) return TREADLE_RESUME_NEVER;
  *from_p = a->resume;
  return strcmp(a->resume, "auto") == 0 ? TREADLE_RESUME_AUTO : TREADLE_RESUME_FROM;
}

/* Ranks may be on several nodes where the command has options of how they meet. */
static treadle_status start(treadle_session *session, const treadle_run_command *command,
                            const treadle_arguments *a) {
  const double seconds = 600;
  const treadle_launch_options launch = {
      .meet = a->switching.meet,
      .job = a->switching.job,
      .nodes = a->switching.nodes,
      .rank = a->ranks.rank,
      .ranks = a->ranks.count,
      .seconds = a->switching.timeout_seconds > 0 ? a->switching.timeout_seconds : seconds};
  treadle_status status;
  TRY(treadle_session_start_by(session, command->name, command->nodes ? &launch : NULL, seconds));
  if (command->nodes)
    TRY(treadle_session_agree(session,
                              treadle_group_choose_net(session->group, a->switching.net ? "ucx" : "tcp")));
out:
  return status;
}

int treadle_run_command_run(const treadle_run_command *command, const treadle_arguments *a) {
  treadle_session session = {0};
  treadle_train_config *config = NULL;
  bool stopped = false;
  treadle_status status;
  if (a->run.help_config) return help_config(command, a->json);
  if (!a->word_count) {
    status = treadle_fail(TREADLE_REFUSED, "needs CONFIG.yaml; see treadle %s --help", command->name);
    return treadle_report_refusal(command->name, status);
  }
  if (a->run.plan) return plan(command, a);
  if (a->ranks.count && !a->switching.meet) return treadle_refuse_ranks(command->name, a);
  TRY(start(&session, command, a));
  TRY(treadle_session_agree(&session, treadle_as_refusal(read_config(command, &session, a, &config))));
  TRY(command->run(a, &session, config, &stopped));
out:
  if (status && !session.said) treadle_session_abandon(&session, status);
  treadle_train_config_destroy(config);
  int exit_status = treadle_finish_output(command->name, treadle_exit_status(status));
  treadle_session_end(&session);
  return exit_status == TREADLE_EXIT_OK && stopped ? TREADLE_EXIT_STOPPED : exit_status;
}
