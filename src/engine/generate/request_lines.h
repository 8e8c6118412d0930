/* What lines to generate from and lines to score have in common: taking a file apart, ids, and what is asked. */
#ifndef TREADLE_GENERATE_REQUEST_LINES_H
#define TREADLE_GENERATE_REQUEST_LINES_H

#include "generate/requests.h"

enum { TREADLE_LINE_NAME = 512 };

/* Goes through lines that are not white space. A zeroed struct with text and count begins. */
typedef struct treadle_request_reader {
  const char *what, *text;
  size_t count, at;
  int64_t line, number;
  char name[TREADLE_LINE_NAME]; /* "FILE: line 7" */
  json_t *object;               /* of this line; the reader's own */
} treadle_request_reader;

/* The next line as an object; *more_p is false behind the last. */
treadle_status treadle_request_reader_next(treadle_request_reader *reader, bool *more_p);
void treadle_request_reader_release(treadle_request_reader *reader);

/* Refuses keys that are in none of two lists of names, NULL at their ends. */
treadle_status treadle_request_check_keys(const treadle_request_reader *reader, const char *const *names,
                                          const char *const *others);

/* `id`; without one the number of the request. */
treadle_status treadle_request_read_id(const treadle_request_reader *reader, treadle_arena *arena,
                                       treadle_request_id *id_p);

/* What is asked under one of three keys, of which there is exactly one; keys: for text, messages, tokens. */
treadle_status treadle_request_read_input(const treadle_request_reader *reader,
                                          const treadle_requests_spec *spec, const char *const keys[3],
                                          treadle_arena *arena, treadle_request_input *input_p);

/* A list of ids of the vocabulary, not empty. */
treadle_status treadle_request_read_tokens(const treadle_request_reader *reader,
                                           const treadle_requests_spec *spec, const char *key,
                                           treadle_arena *arena, treadle_request_input *input_p);

/* Ids of the vocabulary, at least one, not too many. */
treadle_status treadle_request_check_ids(const char *what, const char *key, const int32_t *tokens,
                                         int64_t count, int64_t vocabulary);

#endif
