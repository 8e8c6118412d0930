#include "golden_support/golden_engine.h"

#include "model/model.h"
#include "treadle_builtin.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void golden_tokens_add(golden_tokens *tokens, const json_t *list) {
  size_t more = json_array_size(list);
  tokens->ids = realloc(tokens->ids, (tokens->count + more + 1) * sizeof *tokens->ids);
  if (!tokens->ids) abort();
  for (size_t i = 0; i < more; i++)
    tokens->ids[tokens->count++] = (int32_t)json_integer_value(json_array_get(list, i));
}

golden_opened golden_engine_open(machine *m, const char *folder, const char *dtype) {
  char layout[32];
  snprintf(layout, sizeof layout, "hf:dtype=%s", dtype);
  const machine_spec spec = {
      .folder = folder, .layout = layout, .options = {.prefill_chunk = 48, .threads = 1}};
  treadle_status status = machine_open(m, &spec);
  if (status == TREADLE_OK) return GOLDEN_OPENED;
  bool computed = !m->model || m->model->family->forward;
  return computed || status != TREADLE_REFUSED ? GOLDEN_NOT_OPENED : GOLDEN_NOT_COMPUTED;
}

treadle_status golden_engine_score(machine *m, const golden_tokens *tokens,
                                   treadle_status (*row)(void *context, size_t text, size_t token,
                                                         const float *logits),
                                   void *context) {
  treadle_score_options options = {.struct_size = sizeof options, .logits = row, .context = context};
  const treadle_score_text text = {tokens->ids, tokens->count};
  return treadle_generator_score(m->engine, &text, 1, &options);
}

static treadle_status take_answer(void *context, const char *line, size_t bytes) {
  json_t *answer = json_loadb(line, bytes, 0, NULL);
  golden_tokens_add(context, json_object_get(answer, "token_ids"));
  json_decref(answer);
  return TREADLE_OK;
}

treadle_status golden_engine_generate(machine *m, const golden_greedy *greedy, golden_tokens *out_p) {
  json_t *ids = json_array(), *banned = json_array();
  for (size_t i = 0; i < greedy->prompt->count; i++)
    json_array_append_new(ids, json_integer(greedy->prompt->ids[i]));
  for (size_t i = 0; i < json_array_size(greedy->banned); i++)
    json_array_append(banned, json_array_get(greedy->banned, i));
  json_int_t count = (json_int_t)greedy->count, least = json_array_size(banned) ? count : 0;
  json_t *line = json_pack("{so, sI, si, sI, so, sb, sf, sf, sf}", "prompt_token_ids", ids, "max_tokens",
                           count, "temperature", 0, "min_tokens", least, "stop_token_ids", banned,
                           "ignore_eos", !greedy->ends, "repetition_penalty", 1.0, "presence_penalty", 0.0,
                           "frequency_penalty", 0.0);
  char *text = json_dumps(line, 0);
  treadle_generate_options options = {
      .struct_size = sizeof options, .answer = take_answer, .context = out_p};
  treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
  treadle_status status =
      treadle_generator_generate_lines(m->engine, text, strlen(text), &options, &figures);
  free(text);
  json_decref(line);
  return status;
}

double golden_log_sum(const float *logits, int64_t count) {
  double largest = logits[0], sum = 0;
  for (int64_t i = 1; i < count; i++) largest = logits[i] > largest ? logits[i] : largest;
  for (int64_t i = 0; i < count; i++) sum += exp(logits[i] - largest);
  return largest + log(sum);
}

static bool is_in(const json_t *list, int64_t id) {
  for (size_t i = 0; i < json_array_size(list); i++)
    if (json_integer_value(json_array_get(list, i)) == id) return true;
  return false;
}

int64_t golden_best(const float *logits, int64_t count, const json_t *banned) {
  int64_t best = -1;
  for (int64_t i = 0; i < count; i++)
    if ((best < 0 || logits[i] > logits[best]) && !is_in(banned, i)) best = i;
  return best;
}
