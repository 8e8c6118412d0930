/* Comparing the sampler with what vLLM's rules give. */
#include "golden_support/golden_recording.h"

#include "generate/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Both are made in double of the same logits; exponentials may differ in the last bits. */
#define MOST_DIFFERENCE 1e-12

typedef struct sampling_case {
  size_t number;
  golden_recording *r;
  float *logits;
  int64_t vocabulary;
  treadle_sampling_values sampling;
  treadle_token_counts counts;
} sampling_case;

static double real(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}

static void add_tokens(treadle_token_counts *counts, const json_t *ids, bool generated) {
  for (size_t i = 0; i < json_array_size(ids); i++)
    if (treadle_token_counts_add(counts, (int32_t)json_integer_value(json_array_get(ids, i)), generated))
      abort();
}

static void read_case(const json_t *item, sampling_case *c) {
  const json_t *logits = json_object_get(item, "logits"), *params = json_object_get(item, "params");
  c->vocabulary = (int64_t)json_array_size(logits);
  c->logits = malloc(((size_t)c->vocabulary + 1) * sizeof *c->logits);
  if (!c->logits) abort();
  for (int64_t i = 0; i < c->vocabulary; i++) {
    const json_t *value = json_array_get(logits, (size_t)i);
    c->logits[i] = json_is_null(value) ? -INFINITY : (float)json_number_value(value);
  }
  treadle_sampling_default(&c->sampling);
  c->sampling.temperature = real(params, "temperature");
  c->sampling.top_k = json_integer_value(json_object_get(params, "top_k"));
  c->sampling.top_p = real(params, "top_p");
  c->sampling.min_p = real(params, "min_p");
  c->sampling.repetition_penalty = real(params, "repetition_penalty");
  c->sampling.presence_penalty = real(params, "presence_penalty");
  c->sampling.frequency_penalty = real(params, "frequency_penalty");
  add_tokens(&c->counts, json_object_get(item, "prompt_ids"), false);
  add_tokens(&c->counts, json_object_get(item, "output_ids"), true);
}

static bool differ(const sampling_case *c, const char *what, double got, double wanted) {
  golden_say(c->r, "case %zu: %s is %.17g, golden %.17g", c->number, what, got, wanted);
  return false;
}

static bool keep(const sampling_case *c, treadle_sampler *sampler, const treadle_sampling_values *sampling,
                 treadle_candidates *candidates_p) {
  const treadle_sampler_row row = {.logits = c->logits, .sampling = sampling, .counts = &c->counts};
  if (treadle_sampler_keep(sampler, &row, candidates_p) == TREADLE_OK) return true;
  golden_say(c->r, "case %zu: refused: %s", c->number, treadle_error_message());
  return false;
}

/* How many are left behind min-p, top-k and top-p: the later ones are switched off. */
static bool compare_counts(const sampling_case *c, treadle_sampler *sampler, const json_t *kept) {
  static const char *const names[] = {"count behind min-p", "count behind top-k", "count behind top-p"};
  for (int i = 0; i < 3 && !treadle_sampling_is_greedy(&c->sampling); i++) {
    treadle_sampling_values sampling = c->sampling;
    treadle_candidates candidates;
    if (i < 1) sampling.top_k = 0;
    if (i < 2) sampling.top_p = 1;
    if (!keep(c, sampler, &sampling, &candidates)) return false;
    int64_t wanted = json_integer_value(json_array_get(kept, (size_t)i));
    if (candidates.count != wanted) return differ(c, names[i], (double)candidates.count, (double)wanted);
  }
  return true;
}

static bool compare(const sampling_case *c, treadle_sampler *sampler, const json_t *item) {
  const json_t *ids = json_object_get(item, "ids"), *probs = json_object_get(item, "probs");
  treadle_candidates candidates;
  size_t count = 0;
  if (!compare_counts(c, sampler, json_object_get(item, "kept"))) return false;
  if (!keep(c, sampler, &c->sampling, &candidates)) return false;
  for (int64_t i = 0; i < candidates.count; i++) {
    double probability = candidates.weights[i] / candidates.total;
    if (!(probability > 0)) continue;
    double id = (double)json_integer_value(json_array_get(ids, count)),
           wanted = json_number_value(json_array_get(probs, count));
    if (count >= json_array_size(ids) || candidates.ids[i] != id)
      return differ(c, "an id", candidates.ids[i], id);
    if (!(fabs(probability - wanted) <= MOST_DIFFERENCE))
      return differ(c, "a probability", probability, wanted);
    count++;
  }
  if (count != json_array_size(ids)) return differ(c, "count", (double)count, (double)json_array_size(ids));
  return true;
}

/* NULL, or why the case cannot be compared. */
static const char *missing_in(json_t *item, char reason_p[GOLDEN_REASON]) {
  const json_t *logits = json_object_get(item, "logits");
  if (!golden_keys(item,
                   "?x:kind l:logits i:prompt_ids i:output_ids o:params i:ids f:probs i:kept ?x:margin "
                   "?x:border_tie",
                   reason_p) ||
      !golden_keys(json_object_get(item, "params"),
                   "n:temperature n:top_k n:top_p n:min_p n:repetition_penalty n:presence_penalty "
                   "n:frequency_penalty",
                   reason_p))
    return reason_p;
  for (size_t i = 0; i < json_array_size(logits); i++)
    if (!json_is_number(json_array_get(logits, i)) && !json_is_null(json_array_get(logits, i)))
      return "its 'logits' have what is not a number";
  if (json_array_size(json_object_get(item, "kept")) != 3) return "its 'kept' is not of three numbers";
  return json_array_size(logits) ? NULL : "its 'logits' are empty";
}

static void check_case(golden_recording *r, const json_t *item, size_t number) {
  sampling_case c = {.number = number, .r = r};
  treadle_sampler *sampler = NULL;
  read_case(item, &c);
  if (treadle_sampler_create(c.vocabulary, &sampler) != TREADLE_OK) abort();
  bool is_equal = treadle_sampling_check("sampling", &c.sampling) == TREADLE_OK;
  if (!is_equal) golden_say(r, "case %zu: refused: %s", number, treadle_error_message());
  is_equal = is_equal && compare(&c, sampler, item);
  golden_count(r, (golden_counts){.equal = is_equal, .different = !is_equal});
  treadle_sampler_destroy(sampler);
  treadle_token_counts_release(&c.counts);
  free(c.logits);
}

void golden_check_sampling(golden_recording *r) {
  json_t *cases = json_object_get(r->root, "cases"), *item;
  size_t i;
  json_array_foreach(cases, i, item) {
    char reason[GOLDEN_REASON];
    const char *missing = missing_in(item, reason);
    if (missing)
      golden_skip(r, 1, "case %zu: %s", i, missing);
    else
      check_case(r, item, i);
  }
}
