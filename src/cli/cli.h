/* The command: what its subcommands share.
 *
 * One file a subcommand, one row in the table of main.c. Options of all subcommands stand in one table in
 * options.c, which parses them and writes the help; a subcommand gets them as the structs of
 * arguments.h.
 *
 * Exit status: 0; 1 for a difference, a failure while running, or a plan that does not fit; 2 for input
 * that is refused. Results go to standard output, messages to standard error. */
#ifndef TREADLE_CLI_CLI_H
#define TREADLE_CLI_CLI_H

#include "base/status.h"
#include "base/text.h"
#include "cli/arguments.h"

#include <stdbool.h>
#include <stdint.h>

struct json_t; /* jansson.h */

enum { TREADLE_EXIT_OK = 0, TREADLE_EXIT_FAILED = 1, TREADLE_EXIT_REFUSED = 2 };

typedef struct treadle_command {
  const char *name;
  unsigned bit;      /* in the options' masks */
  const char *words; /* what stands besides options: "list | show NAME"; "" for nothing */
  int words_min, words_max;
  bool hidden;                           /* not in the short list */
  const char *summary;                   /* one line */
  const char *text;                      /* a paragraph or two */
  treadle_status (*list)(char **text_p); /* lines behind it, of a table of the library; NULL: none */
  const char *examples;
  int (*run)(const treadle_arguments *arguments); /* the exit status */
  int (*refuse)(treadle_status status);           /* says why the options are refused; NULL: as ever */
} treadle_command;

enum {
  TREADLE_IN_PLAN = 1 << 0,
  TREADLE_IN_LAYOUT = 1 << 1,
  TREADLE_IN_SWITCH = 1 << 2,
  TREADLE_IN_FAMILY = 1 << 3,
  TREADLE_IN_INSPECT = 1 << 4,
  TREADLE_IN_DOCTOR = 1 << 5,
  TREADLE_IN_MAKE_MODEL = 1 << 6,
  TREADLE_IN_CONVERT = 1 << 7,
  TREADLE_IN_GENERATE = 1 << 8,
  TREADLE_IN_SCORE = 1 << 9,
  TREADLE_IN_TOKENIZE = 1 << 10,
  TREADLE_IN_GRAD = 1 << 11,
  TREADLE_IN_SFT = 1 << 12,
  TREADLE_IN_DATA = 1 << 13,
  TREADLE_IN_TRAIN = 1 << 14,
  TREADLE_IN_EVAL = 1 << 15,
  TREADLE_IN_REPORT = 1 << 16,
  TREADLE_IN_ATTACH = 1 << 17,
  TREADLE_IN_POOLS = 1 << 18
};

/* The whole command: what main() gets, and the exit status. */
int treadle_main(int count, char **texts);

int treadle_command_plan(const treadle_arguments *arguments);
int treadle_command_layout(const treadle_arguments *arguments);
int treadle_command_switch(const treadle_arguments *arguments);
int treadle_command_switch_refuse(treadle_status status); /* once, not once a rank */
int treadle_command_attach(const treadle_arguments *arguments);
int treadle_command_family(const treadle_arguments *arguments);
/* Writes a draft of a family, or prints it. *open_p: it is not all that the checkpoint needs. */
treadle_status treadle_family_new(const treadle_arguments *arguments, const char *path, bool *open_p);
int treadle_command_inspect(const treadle_arguments *arguments);
int treadle_command_convert(const treadle_arguments *arguments);
int treadle_command_doctor(const treadle_arguments *arguments);
int treadle_command_tokenize(const treadle_arguments *arguments);
int treadle_command_make_model(const treadle_arguments *arguments);
int treadle_command_generate(const treadle_arguments *arguments);
int treadle_command_score(const treadle_arguments *arguments);
int treadle_command_grad(const treadle_arguments *arguments);
int treadle_grad_policy(const treadle_arguments *arguments); /* grad --loss grpo */
int treadle_command_sft(const treadle_arguments *arguments);
int treadle_command_train(const treadle_arguments *arguments);
int treadle_command_report(const treadle_arguments *arguments);
int treadle_command_eval(const treadle_arguments *arguments);
int treadle_command_pools(const treadle_arguments *arguments);
int treadle_command_data(const treadle_arguments *arguments);

/* Parses what follows the subcommand. Refused: unknown options (with the nearest one), options given twice,
 * values that are not what they should be, options that are missing. With --help nothing is missing. */
treadle_status treadle_options_parse(const treadle_command *command, int count, char **texts,
                                     treadle_arguments *arguments);
/* Refuses an output that is one of the inputs (replaces.c). */
treadle_status treadle_refuse_replaced(const treadle_arguments *arguments);

/* Opens the model of a path; with --scale-down, the small model of its config, without weights. `say`: one line on
 * standard error tells what was changed, and one that the family's file is not finished. */
treadle_status treadle_open_model(const treadle_model_arguments *arguments, const char *path, bool say,
                                  treadle_model **model_p);
/* For a command that needs values of weights: refused where the model has none. `say`: one line on standard error tells that they are made
 * up, if they are. */
treadle_status treadle_need_weights(const treadle_model *model, const char *path, bool say);
/* That line. */
void treadle_say_made_up(const char *path);
/* What follows the configuration, and --weights as one more: texts [TREADLE_MAX_SETTINGS]; how many there are. */
size_t treadle_overrides_of(const treadle_arguments *arguments, const char **texts);
/* "files" or "made_up", as JSON has it: where weights come from. */
const char *treadle_weights_name(treadle_weights weights);
/* That line, of a model that was scaled down. */
void treadle_say_scaled(const treadle_model_arguments *arguments, const treadle_model *model);
/* The other one: the file of the model's family has points that are open. */
void treadle_say_open(const treadle_model *model);
/* Warns of what was taken in another way than the config or the files say: treadle_model_info.notes. */
void treadle_say_notes(const treadle_model *model);
/* The parameters that --scale-down allows; 0: it is not given. */
treadle_status treadle_scale_down_elems(const treadle_model_arguments *arguments, int64_t *elems_p);

/* Makes two layouts. The rank map is of the one that is not for training, else of `to`. What is there, also after a failure,
 * the caller destroys. */
typedef struct treadle_pair_texts {
  const char *from, *to;
  treadle_rank_map rank_map;
  const int32_t *node_of; /* [ranks] for `best`; NULL: one node */
} treadle_pair_texts;
treadle_status treadle_open_layouts(const treadle_model *model, const treadle_pair_texts *texts,
                                    int64_t ranks, treadle_layout **from_p, treadle_layout **to_p);
/* How that one is mapped. */
const char *treadle_pair_rank_map(const treadle_layout *from, const treadle_layout *to);

/* The help of a subcommand; it fails where there is no memory for its list. */
treadle_status treadle_options_print_help(const treadle_command *command, FILE *file);

/* That of refused input for TREADLE_REFUSED, of a failure for what else is not TREADLE_OK. */
int treadle_exit_status(treadle_status status);

/* A message of the library without the name of the command in front, where it has that. */
const char *treadle_bare_message(const char *command, const char *message);

/* Says "treadle <command>: <message>" on standard error and gives the exit status. */
int treadle_report_error(const char *command, treadle_status status);

/* The same while input is read: a file that cannot be opened is refused input, too. */
int treadle_report_refusal(const char *command, treadle_status status);
/* Of --ranks without --plan: ranks are processes, which a launcher starts. */
int treadle_refuse_ranks(const char *command, const treadle_arguments *a);

/* Flushes standard output; a full disk or a closed pipe turns success into a failure. */
int treadle_finish_output(const char *command, int exit_status);

/* A line on standard error about what is being done, for work that has taken more than two seconds, when
 * standard error is a terminal. Time is counted from the start. */
void treadle_progress_begin(void);
void treadle_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void treadle_progress_end(void);
/* A treadle_watcher that says so: "plan of type 3 of 5". */
bool treadle_progress_watch(void *context, const char *doing, int64_t done, int64_t total);

/* What `doing` of runs is: "generating 3 of 5"; total 0: "the weights". */
void treadle_progress_doing(void *context, const char *what, int64_t done, int64_t total);

/* Moved over lower bound; 1 when nothing moved. */
double treadle_ratio(size_t moved, size_t lower_bound);

/* "70.55 billion", "31.79 million": a number of parameters. */
typedef struct treadle_count_text {
  char text[32];
} treadle_count_text;
treadle_count_text treadle_count_of(int64_t elems);

#endif
