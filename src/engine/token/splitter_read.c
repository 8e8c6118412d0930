/* Pre-tokenizers as JSON says them. */
#include "token/splitter.h"

#include "base/json.h"
#include "token/fields.h"
#include "token/normalizer.h"

#include <string.h>

enum { DEEPEST = 16, MOST_STEPS = 256 };

/* How GPT-2 cuts words (encoder.py): contractions, and letters, numbers or other signs with a space in front. */
static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static const char *const behaviors[] = {"Removed",        "Isolated",   "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous", NULL};

static treadle_status add(treadle_splitters *steps, treadle_splitter step) {
  treadle_status status = steps->count == MOST_STEPS
                              ? treadle_fail(TREADLE_REFUSED, "there are more than %d steps", MOST_STEPS)
                              : treadle_array_push(steps, step);
  if (status) treadle_regex_destroy(step.pattern);
  return status;
}

treadle_status treadle_splitters_add_pattern(treadle_splitters *steps, const char *pattern) {
  treadle_splitter step = {.type = TREADLE_SPLIT_PATTERN, .behavior = TREADLE_SPLIT_ISOLATED};
  treadle_status status = treadle_regex_create(pattern, strlen(pattern), false, &step.pattern);
  return status ? status : add(steps, step);
}

treadle_status treadle_splitters_add_byte_level(treadle_splitters *steps, bool prefix_space, bool cut) {
  treadle_splitter step = {.type = TREADLE_SPLIT_BYTE_LEVEL,
                           .prepend = prefix_space ? TREADLE_PREPEND_ALWAYS : TREADLE_PREPEND_NEVER};
  treadle_status status =
      cut ? treadle_regex_create(gpt2_pattern, strlen(gpt2_pattern), false, &step.pattern) : TREADLE_OK;
  return status ? status : add(steps, step);
}

static treadle_status read_split(const json_t *json, treadle_splitters *steps) {
  treadle_splitter step = {.type = TREADLE_SPLIT_PATTERN};
  treadle_status status;
  int behavior;
  TRY(treadle_field_word(json, "behavior", behaviors, -1, &behavior));
  TRY(treadle_field_bool(json, "invert", false, &step.invert));
  step.behavior = (treadle_split_behavior)behavior;
  TRY(treadle_pattern_read(json_object_get(json, "pattern"), &step.pattern));
  return add(steps, step);
out:
  return status;
}

static treadle_status read_byte_level(const json_t *json, treadle_splitters *steps) {
  bool prefix_space, cut;
  treadle_status status;
  TRY(treadle_field_bool(json, "add_prefix_space", true, &prefix_space));
  TRY(treadle_field_bool(json, "use_regex", true, &cut));
  TRY(treadle_splitters_add_byte_level(steps, prefix_space, cut));
out:
  return status;
}

static treadle_status read_metaspace(const json_t *json, treadle_splitters *steps) {
  static const char *const schemes[] = {"always", "first", "never", NULL};
  treadle_splitter step = {.type = TREADLE_SPLIT_METASPACE};
  treadle_status status;
  uint32_t sign;
  int scheme;
  bool prefix;
  TRY(treadle_field_character(json, "replacement", &sign));
  if (!sign) REFUSE("replacement is missing");
  step.sign_bytes = treadle_utf8_encode(sign, step.sign);
  TRY(treadle_field_word(json, "prepend_scheme", schemes, TREADLE_PREPEND_ALWAYS, &scheme));
  TRY(treadle_field_bool(json, "add_prefix_space", true, &prefix));
  if (!prefix && json_object_get(json, "prepend_scheme") && scheme != TREADLE_PREPEND_NEVER)
    REFUSE("add_prefix_space is false, and prepend_scheme is '%s'", schemes[scheme]);
  step.prepend = prefix ? (treadle_split_prepend)scheme : TREADLE_PREPEND_NEVER;
  TRY(treadle_field_bool(json, "split", true, &step.cut));
  return add(steps, step);
out:
  return status;
}

static treadle_status read_digits(const json_t *json, treadle_splitters *steps) {
  bool each;
  treadle_status status = treadle_field_bool(json, "individual_digits", false, &each);
  treadle_splitter step = {.type = TREADLE_SPLIT_CLASS,
                           .is_match = treadle_unicode_is_number,
                           .behavior = each ? TREADLE_SPLIT_ISOLATED : TREADLE_SPLIT_CONTIGUOUS};
  return status ? status : add(steps, step);
}

static treadle_status read_punctuation(const json_t *json, treadle_splitters *steps) {
  int behavior;
  treadle_status status =
      treadle_field_word(json, "behavior", behaviors, TREADLE_SPLIT_ISOLATED, &behavior);
  treadle_splitter step = {.type = TREADLE_SPLIT_CLASS,
                           .is_match = treadle_unicode_is_punctuation,
                           .behavior = (treadle_split_behavior)behavior};
  return status ? status : add(steps, step);
}

static treadle_status read_spaces(const json_t *json, treadle_splitters *steps) {
  (void)json;
  treadle_splitter step = {
      .type = TREADLE_SPLIT_CLASS, .is_match = treadle_unicode_is_space, .behavior = TREADLE_SPLIT_REMOVED};
  return add(steps, step);
}

static const struct {
  const char *name;
  treadle_status (*read)(const json_t *json, treadle_splitters *steps);
} kinds[] = {
    {"Split", read_split},   {"ByteLevel", read_byte_level},    {"Metaspace", read_metaspace},
    {"Digits", read_digits}, {"Punctuation", read_punctuation}, {"WhitespaceSplit", read_spaces},
};

static treadle_status read_steps(const json_t *json, int depth, treadle_splitters *steps) {
  treadle_status status;
  const char *type;
  const json_t *list;
  if (!json || json_is_null(json)) return TREADLE_OK;
  if (depth > DEEPEST) REFUSE("sequences are nested more than %d deep", DEEPEST);
  if (!treadle_json_is_object(json)) REFUSE("is not an object");
  TRY(treadle_field_needed_text(json, "type", &type));
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (strcmp(kinds[i].name, type) != 0) continue;
    status = kinds[i].read(json, steps);
    return status ? treadle_fail_in(status, "%s: ", type) : TREADLE_OK;
  }
  if (strcmp(type, "Sequence") != 0) REFUSE("pre-tokenizer '%s' is not known here", type);
  TRY(treadle_field_list(json, "pretokenizers", &list));
  if (!list) REFUSE("pretokenizers is missing");
  for (size_t i = 0; i < json_array_size(list); i++) {
    status = read_steps(json_array_get(list, i), depth + 1, steps);
    if (status) return treadle_fail_in(status, "pretokenizers[%zu]: ", i);
  }
out:
  return status;
}

treadle_status treadle_splitters_read(const json_t *json, treadle_splitters *steps) {
  return read_steps(json, 0, steps);
}

void treadle_splitters_release(treadle_splitters *steps) {
  for (size_t i = 0; i < steps->count; i++) treadle_regex_destroy(steps->items[i].pattern);
  treadle_array_release(steps);
}
