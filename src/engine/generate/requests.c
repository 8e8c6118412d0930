/* Lines of JSON as requests to generate. */
#include "generate/requests.h"

#include "generate/request_lines.h"
#include "generate/uniform.h"

#include <stdio.h>

static const char *const inputs[] = {"prompt", "messages", "prompt_token_ids"};
static const char *const names[] = {"prompt", "messages", "prompt_token_ids", "id", NULL};

static treadle_status read_request(const treadle_requests_spec *spec, const treadle_request_reader *reader,
                                   treadle_arena *arena, treadle_request *request_p) {
  treadle_status status;
  request_p->line = reader->line;
  request_p->number = reader->number;
  request_p->sampling = *spec->sampling;
  TRY(treadle_request_check_keys(reader, names, treadle_sampling_keys));
  TRY(treadle_request_read_id(reader, arena, &request_p->id));
  TRY(treadle_request_read_input(reader, spec, inputs, arena, &request_p->input));
  TRY(treadle_sampling_read_line(reader->name, reader->object, arena, &request_p->sampling));
  TRY(treadle_sampling_check(reader->name, &request_p->sampling));
  if (spec->vocabulary > 0)
    TRY(treadle_sampling_check_ids(reader->name, &request_p->sampling, spec->vocabulary));
out:
  return status;
}

treadle_status treadle_requests_parse(const treadle_requests_spec *spec, const char *text, size_t count,
                                      treadle_requests *requests_p) {
  treadle_request_reader reader = {.what = spec->what, .text = text, .count = count};
  treadle_requests *requests = requests_p;
  int64_t samples = 0;
  bool more = false;
  treadle_status status;
  *requests = (treadle_requests){0};
  for (;;) {
    TRY(treadle_request_reader_next(&reader, &more));
    if (!more) break;
    TRY(treadle_array_push(&requests->items, (treadle_request){0}));
    treadle_request *request = &requests->items.items[requests->items.count - 1];
    TRY(read_request(spec, &reader, &requests->arena, request));
    samples += request->sampling.n;
    if (samples > TREADLE_MOST_ALL_SAMPLES)
      TRY(treadle_fail(TREADLE_REFUSED, "%s: the limit is %d samples of all requests", reader.name,
                       TREADLE_MOST_ALL_SAMPLES));
  }
  if (requests->items.count == 0) TRY(treadle_fail(TREADLE_REFUSED, "%s: has no requests", spec->what));
out:
  treadle_request_reader_release(&reader);
  return status;
}

void treadle_requests_release(treadle_requests *requests) {
  for (size_t i = 0; i < requests->items.count; i++) json_decref(requests->items.items[i].input.messages);
  treadle_array_release(&requests->items);
  treadle_arena_release(&requests->arena);
}

int64_t treadle_request_seed(const treadle_request *request, int64_t run_seed) {
  return request->sampling.has_seed ? request->sampling.seed
                                    : treadle_seed_of_request(run_seed, request->number);
}

treadle_status treadle_request_check_prompt(const char *what, const char *key,
                                            const treadle_request_input *input, int64_t vocabulary,
                                            int64_t max_len) {
  treadle_status status;
  TRY(treadle_request_check_ids(what, key, input->tokens, input->token_count, vocabulary));
  if (input->token_count >= max_len)
    REFUSE("%s: %s has %lld tokens; with a new one it must not be longer than %lld", what, key,
           (long long)input->token_count, (long long)max_len);
out:
  return status;
}

treadle_status treadle_request_check_tokens(const treadle_requests_spec *spec,
                                            const treadle_request *request, const int32_t *tokens,
                                            int64_t count, int64_t max_len) {
  const treadle_request_input input = {.tokens = tokens, .token_count = count};
  char name[TREADLE_LINE_NAME];
  snprintf(name, sizeof name, "%.400s: line %lld", spec->what, (long long)request->line);
  return treadle_request_check_prompt(name, inputs[request->input.type], &input, spec->vocabulary, max_len);
}
