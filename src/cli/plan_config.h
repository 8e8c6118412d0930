/* treadle plan --config: what a file of MindSpeed-RL, RLinf or verl gives to a plan. */
#ifndef TREADLE_CLI_PLAN_CONFIG_H
#define TREADLE_CLI_PLAN_CONFIG_H

#include "cli/cli.h"
#include "cli/json_out.h"
#include "treadle_loop.h"

/* A zeroed struct is one without a file. */
typedef struct treadle_plan_config {
  treadle_switch_config *config;
  treadle_switch_config_info info;
} treadle_plan_config;

/* Reads the file of --config, if there is one, and puts what it says where an option was not given. Its warnings go to standard error.
 * Refused: where neither says which model, or how many ranks. The caller releases the file in any case. */
treadle_status treadle_plan_config_read(treadle_plan_config *file, treadle_arguments *arguments);
void treadle_plan_config_release(treadle_plan_config *file);
/* The key `config`, and lines of the report; nothing without a file. */
void treadle_plan_config_print_json(const treadle_plan_config *file, treadle_json_out *out);
void treadle_plan_config_print(const treadle_plan_config *file, const char *path);

#endif
