/* Lines of JSON as requests to generate. All lines are read and checked before anything runs; the first bad one is refused as
 * "FILE: line 7: ...", lines counted from 1.
 *
 * A line is an object with exactly one of
 *
 *   prompt            a text, not empty
 *   messages          a list of objects with a text `role`, not empty
 *   prompt_token_ids  ids of the vocabulary, not empty
 *
 * and may have `id`, a text or a whole number, and sampling values by vLLM's names (sampling.h). Other keys are refused. Ids may
 * repeat: answers come in the order of the requests. A request without one has its number. Lines of white space are passed over. */
#ifndef TREADLE_GENERATE_REQUESTS_H
#define TREADLE_GENERATE_REQUESTS_H

#include "base/array.h"
#include "generate/sampling.h"

typedef enum treadle_request_type {
  TREADLE_REQUEST_TEXT,
  TREADLE_REQUEST_MESSAGES,
  TREADLE_REQUEST_TOKENS,
} treadle_request_type;

/* A text where `text.bytes` is not NULL, else a number. */
typedef struct treadle_request_id {
  treadle_text text;
  int64_t number;
} treadle_request_id;

/* What is asked, of a request or of a line to score. */
typedef struct treadle_request_input {
  treadle_request_type type;
  treadle_text text;
  json_t *messages;      /* the requests' own reference */
  const int32_t *tokens; /* [token_count] */
  int64_t token_count;
} treadle_request_input;

typedef struct treadle_request {
  int64_t line;   /* of the file, from 1 */
  int64_t number; /* of the requests, from 0 */
  treadle_request_id id;
  treadle_request_input input;
  treadle_sampling_values sampling; /* checked */
} treadle_request;

typedef struct treadle_requests {
  TREADLE_ARRAY(treadle_request) items;
  treadle_arena arena;
} treadle_requests;

enum {
  TREADLE_MOST_REQUESTS = 1 << 20,
  TREADLE_MOST_ALL_SAMPLES = 1 << 24, /* of all requests */
  TREADLE_MOST_LINE_BYTES = 1 << 26,
  TREADLE_MOST_PROMPT_TOKENS = 1 << 24,
};
#define TREADLE_MOST_REQUEST_BYTES (INT64_C(1) << 30)

/* What lines are read against. */
typedef struct treadle_requests_spec {
  const char *what;                        /* names the source in messages: a path */
  const treadle_sampling_values *sampling; /* what lines begin with */
  int64_t vocabulary;                      /* ids from 0 to vocabulary - 1; 0: not known yet, any from 0 */
} treadle_requests_spec;

/* Reads `count` bytes of lines. The text is not kept. *requests_p is ended by release, whatever is returned. */
treadle_status treadle_requests_parse(const treadle_requests_spec *spec, const char *text, size_t count,
                                      treadle_requests *requests_p);
void treadle_requests_release(treadle_requests *requests);

/* Its own seed, or one of the run's and its number: what its samples draw with. */
int64_t treadle_request_seed(const treadle_request *request, int64_t run_seed);

/* Ids in the vocabulary, at least one, and room for one new token below max_len. `what` and `key` name them. */
treadle_status treadle_request_check_prompt(const char *what, const char *key,
                                            const treadle_request_input *input, int64_t vocabulary,
                                            int64_t max_len);
/* The same checks for a request that has been turned into tokens. */
treadle_status treadle_request_check_tokens(const treadle_requests_spec *spec,
                                            const treadle_request *request, const int32_t *tokens,
                                            int64_t count, int64_t max_len);

#endif
