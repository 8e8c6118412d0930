/* Does a pattern of PCRE2 match somewhere in the completion? The pattern sees characters (its \w and \d know Unicode); bytes that are no
 * UTF-8 match nothing. Steps and memory of a search are limited: too many are an error, so that no pattern runs for ever. */
#include "reward/reward.h"

#include "base/alloc.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

enum { MOST_PATTERN = 1 << 16, MOST_STEPS = 10 * 1000 * 1000, MOST_HEAP_KIB = 64 << 10 };

typedef struct pattern {
  char *text;
  bool failed; /* an allocation: PCRE2 says it in many ways */
  pcre2_general_context *general;
  pcre2_code *code;
  pcre2_match_context *context;
  pcre2_match_data *data;
} pattern;

static void *allocate(size_t bytes, void *failed) {
  void *memory = treadle_alloc(bytes);
  if (!memory) *(bool *)failed = true;
  return memory;
}
static void deallocate(void *memory, void *failed) {
  (void)failed;
  treadle_free(memory);
}
static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "no memory for a pattern"); }

static void release(void *state) {
  pattern *p = state;
  if (p->data) pcre2_match_data_free(p->data);
  if (p->context) pcre2_match_context_free(p->context);
  if (p->code) pcre2_code_free(p->code);
  if (p->general) pcre2_general_context_free(p->general);
  treadle_free(p->text);
  treadle_free(p);
}

static treadle_status compile(pattern *p) {
  int error;
  PCRE2_SIZE at;
  p->general = pcre2_general_context_create(allocate, deallocate, &p->failed);
  pcre2_compile_context *context = p->general ? pcre2_compile_context_create(p->general) : NULL;
  if (!context) return no_memory();
  p->code = pcre2_compile((PCRE2_SPTR)p->text, strlen(p->text),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C, &error,
                          &at, context);
  pcre2_compile_context_free(context);
  if (p->failed) return no_memory();
  if (p->code) return TREADLE_OK;
  PCRE2_UCHAR words[160] = "";
  pcre2_get_error_message(error, words, sizeof words);
  REFUSE("reward regex:%s: %s, at offset %zu of the pattern", p->text, (const char *)words, (size_t)at);
}

static treadle_status make(pattern *p, const char *text) {
  treadle_status status;
  TRY(treadle_reward_keep(text, strlen(text), &p->text));
  TRY(compile(p));
  p->context = pcre2_match_context_create(p->general);
  p->data = pcre2_match_data_create_from_pattern(p->code, p->general);
  if (!p->context || !p->data) return no_memory();
  pcre2_set_match_limit(p->context, MOST_STEPS);
  pcre2_set_depth_limit(p->context, MOST_STEPS);
  pcre2_set_heap_limit(p->context, MOST_HEAP_KIB);
out:
  return status;
}

static treadle_status create(const treadle_reward_options *options, const char *argument, void **state_p) {
  (void)options;
  if (strlen(argument) > MOST_PATTERN)
    REFUSE("reward regex: a pattern of %zu bytes, at most %d are taken", strlen(argument), MOST_PATTERN);
  pattern *p = treadle_alloc(sizeof *p);
  if (!p) return no_memory();
  treadle_status status = make(p, argument);
  if (status) {
    release(p);
    return status;
  }
  *state_p = p;
  return TREADLE_OK;
}

static treadle_status judge(void *state, const treadle_reward_sample *sample, double *score_p,
                            char **pred_p) {
  pattern *p = state;
  const char *text = sample->completion;
  int got = pcre2_match(p->code, (PCRE2_SPTR)text, sample->completion_bytes, 0, 0, p->data, p->context);
  *score_p = got >= 0;
  if (got == PCRE2_ERROR_NOMATCH) return TREADLE_OK;
  if (got == PCRE2_ERROR_NOMEMORY) return no_memory();
  if (got < 0)
    REFUSE("pattern %s takes too many steps in its %zu bytes (more than %d), or too much memory", p->text,
           sample->completion_bytes, MOST_STEPS);
  const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(p->data);
  if (got > 1 && bounds[2] != PCRE2_UNSET) bounds += 2; /* the first group */
  if (bounds[0] > bounds[1]) return TREADLE_OK;         /* \K in a lookahead: nothing to show */
  return treadle_reward_keep(text + bounds[0], bounds[1] - bounds[0], pred_p);
}

const treadle_reward_rule treadle_reward_regex = {
    .name = "regex",
    .argument = "P",
    .help = "1 if the pattern P (PCRE2) matches anywhere in the completion, else 0",
    .judges_texts = true,
    .create = create,
    .release = release,
    .judge = judge};
