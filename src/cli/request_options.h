/* Options that stand for a request: values of sampling, and one prompt, as the JSON that lines of requests are. */
#ifndef TREADLE_CLI_REQUEST_OPTIONS_H
#define TREADLE_CLI_REQUEST_OPTIONS_H

#include "cli/cli.h"

#include <stddef.h>

/* A JSON object of what the options of sampling say, by vLLM's names; ended by free(). */
treadle_status treadle_write_sampling(const treadle_arguments *arguments, char **json_p);
/* --prompt or --prompt-ids as a line; NULL where it is --file; ended by free(). */
treadle_status treadle_write_prompt(const treadle_arguments *arguments, char **line_p);

/* "1,2,3" as ids, [*count_p]; `option` names it in messages. Ended by free(). */
treadle_status treadle_read_ids(const char *option, const char *list, int32_t **ids_p, size_t *count_p);
/* Digits with a point and an exponent, as a person writes them; finite. */
treadle_status treadle_read_number(const char *option, const char *text, double *number_p);

#endif
