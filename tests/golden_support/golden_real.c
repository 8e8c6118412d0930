/* Real models (real_models.json): tokens and texts of prompts, log-probabilities of the prompt and of what was generated greedily, the
 * same tokens generated again, in fp32 and bf16.
 *
 * A tolerance is, as for the small models (golden_logits.c), 20 times what two ways of fp32 differ, at least 1e-4; in bf16 three times
 * what transformers differs from its fp32. */
#include "golden_support/golden_real.h"

#include "golden_support/golden_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct real_work {
  golden_recording *r;
  const char *name;
  machine m;
  golden_speech speech;
  int64_t vocabulary, eos;
  bool bf16;
  double allowed; /* of a log-probability in fp32 */
  /* of a prompt */
  json_t *item;
  golden_tokens tokens;
  size_t prompt_count;
  double largest; /* difference of whatever is recorded in fp32 */
  size_t other_tokens;
  /* of all */
  double bf16_sum, bf16_largest;
  size_t bf16_count;
} real_work;

static double number_of(const json_t *item, const char *key, size_t i) {
  return json_number_value(json_array_get(json_object_get(item, key), i));
}

static void take_difference(real_work *w, double ours, double golden) {
  double difference = fabs(ours - golden);
  if (!(difference <= w->largest)) w->largest = difference <= 1e30 ? difference : INFINITY;
}

/* The row behind which token `made` of the generated ones stands. */
static void take_made(real_work *w, size_t made, const float *logits, double log_sum) {
  const json_t *banned = json_object_get(w->item, "banned");
  int32_t id = w->tokens.ids[w->prompt_count + made];
  double logprob = logits[id] - log_sum, difference = fabs(logprob - number_of(w->item, "logprobs", made));
  int64_t second = json_integer_value(json_array_get(json_object_get(w->item, "second"), made));
  double gap = number_of(w->item, "gaps", made);
  w->bf16_sum += difference;
  w->bf16_count++;
  if (!(difference <= w->bf16_largest)) w->bf16_largest = difference;
  if (w->bf16) return;
  take_difference(w, logprob, number_of(w->item, "logprobs", made));
  if (gap > w->allowed && golden_best(logits, w->vocabulary, banned) != id) w->other_tokens++;
  if (second < 0 || second >= w->vocabulary)
    w->other_tokens++;
  else
    take_difference(w, ((double)logits[id] - logits[second]) / 2, gap / 2);
}

static treadle_status take_row(void *context, size_t text, size_t token, const float *logits) {
  real_work *w = context;
  double log_sum = golden_log_sum(logits, w->vocabulary);
  const json_t *top = json_object_get(w->item, "first_logits_top8");
  (void)text;
  if (token + 1 < w->prompt_count && !w->bf16)
    take_difference(w, logits[w->tokens.ids[token + 1]] - log_sum,
                    number_of(w->item, "prompt_logprobs", token));
  for (size_t i = 0; token + 1 == w->prompt_count && !w->bf16 && i < json_array_size(top); i++) {
    const json_t *one = json_array_get(top, i);
    int64_t id = json_integer_value(json_array_get(one, 0));
    if (id < 0 || id >= w->vocabulary)
      w->other_tokens++;
    else
      take_difference(w, logits[id], json_number_value(json_array_get(one, 1)));
  }
  if (token + 1 >= w->prompt_count && token + 1 < w->tokens.count)
    take_made(w, token + 1 - w->prompt_count, logits, log_sum);
  return TREADLE_OK;
}

/* The engine bans its end tokens together with others: then these have to be banned, too. */
static bool can_ban(const real_work *w) {
  const json_t *banned = json_object_get(w->item, "banned");
  bool has_eos = json_array_size(banned) == 0;
  for (size_t i = 0; i < json_array_size(banned); i++)
    has_eos = has_eos || json_integer_value(json_array_get(banned, i)) == w->eos;
  return has_eos;
}

static treadle_status generate(real_work *w) {
  golden_tokens prompt = {w->tokens.ids, w->prompt_count}, made = {0};
  const golden_greedy greedy = {.prompt = &prompt,
                                .count = w->tokens.count - w->prompt_count,
                                .banned = json_object_get(w->item, "banned")};
  treadle_status status = golden_engine_generate(&w->m, &greedy, &made);
  double allowed = w->bf16 ? w->bf16_largest : w->allowed;
  for (size_t i = 0; i < greedy.count && number_of(w->item, "gaps", i) > 2 * allowed; i++)
    if (i >= made.count || made.ids[i] != w->tokens.ids[w->prompt_count + i]) {
      w->other_tokens++;
      break;
    }
  free(made.ids);
  return status;
}

static const char *text_differs(const real_work *w) {
  const json_t *user = json_object_get(w->item, "user"), *text = json_object_get(w->item, "text");
  bool is_chat = strcmp(json_string_value(json_object_get(w->item, "kind")), "chat") == 0;
  if (!w->speech.tokenizer) return "there is no tokenizer";
  if (is_chat && !w->speech.chat) return "there is no template";
  if (is_chat && !golden_speech_asks(&w->speech, user, text)) return "the template gives another text";
  if (!golden_speech_encodes(&w->speech, text, json_object_get(w->item, "ids")))
    return "its text has other ids";
  if (!golden_speech_decodes(&w->speech, &w->tokens, w->prompt_count, json_object_get(w->item, "text_out")))
    return "its tokens have another text";
  return NULL;
}

static bool first_eos_is_right(const real_work *w) {
  const json_t *first = json_object_get(w->item, "first_eos");
  size_t at = w->prompt_count;
  while (at < w->tokens.count && w->tokens.ids[at] != w->eos) at++;
  return at == w->tokens.count ? json_is_null(first)
                               : json_integer_value(first) == (json_int_t)(at - w->prompt_count);
}

/* NULL, or why the prompt cannot be compared. */
static const char *prepare(real_work *w, char reason_p[GOLDEN_REASON]) {
  if (!golden_keys(w->item,
                   "s:kind ?s:user s:text i:ids i:banned i:out s:text_out f:logprobs f:gaps i:second "
                   "x:first_eos ?n:min_gap f:prompt_logprobs l:first_logits_top8 ?n:cached_vs_full_max "
                   "?n:bf16_max ?n:bf16_mean ?n:bf16_all_vocab_max ?n:bf16_same_argmax",
                   reason_p))
    return reason_p;
  const char *kind = json_string_value(json_object_get(w->item, "kind"));
  bool is_chat = strcmp(kind, "chat") == 0;
  if (!is_chat && strcmp(kind, "raw") != 0) return "its 'kind' is neither 'raw' nor 'chat'";
  if (is_chat && !json_object_get(w->item, "user")) return "it has no 'user'";
  w->tokens.count = 0;
  golden_tokens_add(&w->tokens, json_object_get(w->item, "ids"));
  w->prompt_count = w->tokens.count;
  golden_tokens_add(&w->tokens, json_object_get(w->item, "out"));
  size_t made = w->tokens.count - w->prompt_count;
  if (!w->prompt_count || !made) return "it has no tokens";
  if (json_array_size(json_object_get(w->item, "logprobs")) != made ||
      json_array_size(json_object_get(w->item, "gaps")) != made ||
      json_array_size(json_object_get(w->item, "second")) != made ||
      json_array_size(json_object_get(w->item, "prompt_logprobs")) + 1 != w->prompt_count)
    return "its lists are of different lengths";
  return NULL;
}

static void check_prompt(real_work *w, size_t number) {
  char reason[GOLDEN_REASON];
  w->largest = 0;
  w->other_tokens = 0;
  const char *missing = prepare(w, reason);
  if (missing) {
    golden_skip(w->r, 1, "%s prompt %zu: %s", w->name, number, missing);
    return;
  }
  treadle_status status = golden_engine_score(&w->m, &w->tokens, take_row, w);
  if (!status && can_ban(w)) status = generate(w);
  const char *text = w->bf16 ? NULL : text_differs(w);
  bool equal = !status && !text && w->largest <= w->allowed && !w->other_tokens && first_eos_is_right(w);
  golden_count(w->r, (golden_counts){.equal = equal, .different = !equal});
  if (!equal)
    golden_say(w->r,
               "%s %s prompt %zu: log-probabilities and logits differ by %.3g (allowed: %.3g), %zu greedy "
               "tokens are others%s%s%s",
               w->name, w->bf16 ? "bf16" : "fp32", number, w->largest, w->allowed, w->other_tokens,
               first_eos_is_right(w) ? "" : ", first_eos is another", text || status ? ", " : "",
               status ? treadle_error_message()
               : text ? text
                      : "");
}

/* A question, and the answer up to the end token. */
static void check_answer(real_work *w, json_t *one, size_t number) {
  char reason[GOLDEN_REASON];
  golden_tokens tokens = {0}, made = {0};
  if (!golden_keys(one, "?s:kind s:prompt s:answer ?b:names_paris", reason) || !w->speech.tokenizer) {
    golden_skip(w->r, 1, "%s paris %zu: %s", w->name, number,
                w->speech.tokenizer ? reason : "no tokenizer");
    return;
  }
  const json_t *prompt = json_object_get(one, "prompt"), *answer = json_object_get(one, "answer");
  int32_t *ids = NULL;
  treadle_status status =
      treadle_tokenizer_encode(w->speech.tokenizer, json_string_value(prompt), json_string_length(prompt),
                               w->speech.begins, &ids, &tokens.count);
  tokens.ids = ids;
  golden_greedy greedy = {.prompt = &tokens, .count = 64, .ends = true};
  char *text = NULL;
  size_t bytes = 0;
  /* A raw text is answered by an end token alone, which was banned there. */
  json_t *banned = json_pack("[I]", (json_int_t)w->eos);
  const json_t *kind = json_object_get(one, "kind");
  if (json_is_string(kind) && strcmp(json_string_value(kind), "raw") == 0) greedy.banned = banned;
  if (!status) status = golden_engine_generate(&w->m, &greedy, &made);
  while (!greedy.banned && made.count && made.ids[made.count - 1] == w->eos) made.count--;
  if (!status)
    status = treadle_tokenizer_decode(w->speech.tokenizer, made.ids, made.count, true, &text, &bytes);
  bool equal =
      !status && bytes == json_string_length(answer) && memcmp(text, json_string_value(answer), bytes) == 0;
  golden_count(w->r, (golden_counts){.equal = equal, .different = !equal});
  if (!equal)
    golden_say(w->r, "%s paris %zu: '%s'", w->name, number, status ? treadle_error_message() : text);
  json_decref(banned);
  free(text);
  free(ids);
  free(made.ids);
}

static void judge_bf16(real_work *w, const json_t *tolerance) {
  double mean = 3 * json_number_value(json_object_get(tolerance, "bf16_mean")),
         most = 3 * json_number_value(json_object_get(tolerance, "bf16_max"));
  double ours = w->bf16_count ? w->bf16_sum / (double)w->bf16_count : INFINITY;
  bool equal = ours <= mean && w->bf16_largest <= most;
  golden_count(w->r, (golden_counts){.equal = equal, .different = !equal});
  if (!equal)
    golden_say(w->r,
               "%s bf16: log-probabilities differ by %.3g in the mean (allowed: %.3g), %.3g at most (%.3g)",
               w->name, ours, mean, w->bf16_largest, most);
}

static void check_dtype(real_work *w, const json_t *one, const char *folder) {
  json_t *prompts = json_object_get(one, "prompts"), *answers = json_object_get(one, "paris"), *item;
  const json_t *tolerance = json_object_get(one, "tolerance");
  treadle_generator_info info = TREADLE_INIT(treadle_generator_info);
  golden_opened opened = golden_engine_open(&w->m, folder, w->bf16 ? "bf16" : "fp32");
  int cases = (int)(json_array_size(prompts) + (w->bf16 ? 1 : json_array_size(answers)));
  size_t i;
  if (opened == GOLDEN_NOT_COMPUTED) {
    golden_skip(w->r, cases, "%s: %s", w->name, treadle_error_message());
  } else if (opened == GOLDEN_NOT_OPENED) {
    golden_say(w->r, "%s: %s", w->name, treadle_error_message());
    for (int c = 0; c < cases; c++) golden_count(w->r, (golden_counts){.different = 1});
  } else {
    treadle_generator_get_info(w->m.engine, &info);
    w->vocabulary = info.vocabulary;
    w->allowed = 20 * json_number_value(json_object_get(tolerance, "float32_cached_vs_full_max"));
    if (!(w->allowed >= 1e-4)) w->allowed = 1e-4;
    json_array_foreach(prompts, i, item) {
      w->item = item;
      check_prompt(w, i);
    }
    if (w->bf16) judge_bf16(w, tolerance);
    for (i = 0; !w->bf16 && i < json_array_size(answers); i++)
      check_answer(w, json_array_get(answers, i), i);
  }
  machine_close(&w->m);
}

static void check_model(golden_recording *r, json_t *one, size_t number) {
  char reason[GOLDEN_REASON], config[1200], name[1200];
  real_work w = {.r = r, .name = json_string_value(json_object_get(one, "name"))};
  if (!golden_keys(one, "s:name s:path n:eos l:prompts ?l:paris o:tolerance", reason) ||
      !golden_keys(json_object_get(one, "tolerance"),
                   "n:float32_cached_vs_full_max n:bf16_max n:bf16_mean ?n:bf16_all_vocab_max ?n:least_gap",
                   reason)) {
    golden_skip(r, 1, "model %zu: %s", number, reason);
    return;
  }
  snprintf(name, sizeof name, "%s/config.json", json_string_value(json_object_get(one, "path")));
  if (!golden_data_find(name, config, sizeof config)) {
    golden_skip(r, (int)json_array_size(json_object_get(one, "prompts")), "%s is not there", name);
    return;
  }
  *strrchr(config, '/') = 0;
  w.eos = json_integer_value(json_object_get(one, "eos"));
  golden_speech_open(&w.speech, config);
  check_dtype(&w, one, config);
  w.bf16 = true;
  w.bf16_sum = w.bf16_largest = 0;
  w.bf16_count = 0;
  check_dtype(&w, one, config);
  golden_speech_close(&w.speech);
  free(w.tokens.ids);
}

void golden_check_real_models(golden_recording *r) {
  json_t *models = json_object_get(r->root, "models"), *one;
  size_t i;
  json_array_foreach(models, i, one) check_model(r, one, i);
}
