/* JSON files, read by base/json.h. */
#ifndef TREADLE_IO_JSON_H
#define TREADLE_IO_JSON_H

#include "base/json.h"
#include "base/text.h"

/* A file of at most 1 GiB. *root_p is ended by json_decref(). The message names path, line and column. */
treadle_status treadle_json_load(const char *path, json_t **root_p);
/* length bytes at text; `what` names the source in messages. */
treadle_status treadle_json_parse(const char *what, const char *text, size_t length, json_t **root_p);

/* Appends a text as JSON has it, in quotes: what is not plain as \uNNNN, what is not UTF-8 as \ufffd. text[count] is readable: texts end with 0. */
void treadle_json_add_text(treadle_builder *builder, const char *text, size_t count);

#endif
