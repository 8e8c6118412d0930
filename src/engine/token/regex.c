/* Patterns by PCRE2. They are compiled to machine code where the system allows that. A search has limits on its steps and on its
 * memory, so that no pattern runs for ever. Memory comes through base/alloc.h. */
#include "token/regex.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "token/oniguruma.h"
#include "token/unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

enum {
  MOST_STEPS = 20 * 1000 * 1000, /* of one search */
  MOST_SECONDS = 30,    /* of all searches in one room: many of nearly as many steps would take days */
  SEARCHES_A_LOOK = 16, /* at the clock */
  MOST_HEAP_KIB = 64 << 10,
  STACK_BYTES = 32 << 10,
  MOST_STACK_BYTES = 4 << 20,
  MOST_PATTERN = 1 << 16
};

struct treadle_regex {
  pcre2_code *code; /* NULL: `literal` */
  char *literal;
  size_t bytes;
};

struct treadle_regex_room {
  pcre2_general_context *general;
  pcre2_match_context *context;
  pcre2_match_data *data;
  pcre2_jit_stack *stack; /* NULL: patterns are no machine code here */
  bool failed;            /* an allocation */
  unsigned searches;
  double begun; /* the task */
};

static void *allocate(size_t bytes, void *failed) {
  void *memory = treadle_alloc(bytes);
  if (!memory) *(bool *)failed = true;
  return memory;
}
static void release(void *memory, void *failed) {
  (void)failed;
  treadle_free(memory);
}

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "no memory for a pattern"); }

/* Compiles what Oniguruma's pattern became. `failed` is where an allocation says that it failed: PCRE2 says it in many ways. */
static treadle_status compile(treadle_regex *regex, const treadle_text_bytes *pattern, const bool *failed,
                              pcre2_general_context *general) {
  enum { OPTIONS = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C };
  treadle_status status = TREADLE_OK;
  int error;
  PCRE2_SIZE at;
  pcre2_compile_context *context = pcre2_compile_context_create(general);
  if (!context) return no_memory();
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_set_max_pattern_length(context, MOST_PATTERN);
  regex->code = pcre2_compile((PCRE2_SPTR)pattern->items, pattern->count, OPTIONS, &error, &at, context);
  if (!regex->code && *failed) {
    status = no_memory();
  } else if (!regex->code) {
    PCRE2_UCHAR words[160] = "";
    pcre2_get_error_message(error, words, sizeof words);
    status = treadle_fail(TREADLE_REFUSED, "%s", (const char *)words);
  } else {
    pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE); /* without it searches are slower */
    if (*failed) status = no_memory();
  }
  pcre2_compile_context_free(context);
  return status;
}

static treadle_status compile_pattern(treadle_regex *regex, const char *pattern, size_t bytes) {
  treadle_status status;
  treadle_text_bytes translated = {0};
  bool *failed = treadle_alloc(sizeof *failed);
  pcre2_general_context *general = failed ? pcre2_general_context_create(allocate, release, failed) : NULL;
  if (!general) {
    status = no_memory();
    goto out;
  }
  TRY(treadle_oniguruma_translate(pattern, bytes, &translated));
  TRY(compile(regex, &translated, failed, general));
out:
  if (general) pcre2_general_context_free(general);
  treadle_array_release(&translated);
  treadle_free(failed);
  return status;
}

treadle_status treadle_regex_create(const char *pattern, size_t bytes, bool literal,
                                    treadle_regex **regex_p) {
  treadle_status status = TREADLE_OK;
  if (bytes == 0) REFUSE("a pattern is empty");
  if (bytes > MOST_PATTERN) REFUSE("a pattern has %zu bytes, at most %d are taken", bytes, MOST_PATTERN);
  treadle_regex *regex = treadle_alloc(sizeof *regex);
  if (!regex) return no_memory();
  if (literal) {
    regex->bytes = bytes;
    regex->literal = treadle_alloc(bytes);
    if (!regex->literal) status = no_memory();
    if (!status) memcpy(regex->literal, pattern, bytes);
  } else {
    status = compile_pattern(regex, pattern, bytes);
    if (status) treadle_fail_in(status, "pattern '%.*s': ", bytes < 200 ? (int)bytes : 200, pattern);
  }
  if (status) {
    treadle_regex_destroy(regex);
    return status;
  }
  *regex_p = regex;
  return TREADLE_OK;
}

void treadle_regex_destroy(treadle_regex *regex) {
  if (!regex) return;
  pcre2_code_free(regex->code);
  treadle_free(regex->literal);
  treadle_free(regex);
}

treadle_status treadle_regex_room_create(treadle_regex_room **room_p) {
  treadle_regex_room *room = treadle_alloc(sizeof *room);
  if (!room) return no_memory();
  room->general = pcre2_general_context_create(allocate, release, &room->failed);
  if (room->general) {
    room->context = pcre2_match_context_create(room->general);
    room->data = pcre2_match_data_create(1, room->general);
    room->stack = pcre2_jit_stack_create(STACK_BYTES, MOST_STACK_BYTES, room->general);
  }
  if (!room->context || !room->data || room->failed) {
    treadle_regex_room_destroy(room);
    return no_memory();
  }
  pcre2_set_match_limit(room->context, MOST_STEPS);
  pcre2_set_depth_limit(room->context, MOST_STEPS);
  pcre2_set_heap_limit(room->context, MOST_HEAP_KIB);
  if (room->stack) pcre2_jit_stack_assign(room->context, NULL, room->stack);
  treadle_regex_room_begin(room);
  *room_p = room;
  return TREADLE_OK;
}

void treadle_regex_room_begin(treadle_regex_room *room) { room->begun = treadle_clock_seconds(); }

void treadle_regex_room_destroy(treadle_regex_room *room) {
  if (!room) return;
  if (room->stack) pcre2_jit_stack_free(room->stack);
  if (room->data) pcre2_match_data_free(room->data);
  if (room->context) pcre2_match_context_free(room->context);
  if (room->general) pcre2_general_context_free(room->general);
  treadle_free(room);
}

/* The next match from `search->from` on, an empty one too. */
static treadle_status find(treadle_regex_search *search, bool *found_p) {
  const treadle_regex *regex = search->regex;
  if (!regex->code) {
    const char *at =
        memmem(search->text + search->from, search->bytes - search->from, regex->literal, regex->bytes);
    *found_p = at != NULL;
    if (at) search->start = (size_t)(at - search->text);
    if (at) search->end = search->start + regex->bytes;
    return TREADLE_OK;
  }
  treadle_regex_room *room = search->room;
  if (++room->searches % SEARCHES_A_LOOK == 0 && treadle_clock_seconds() - room->begun > MOST_SECONDS)
    REFUSE("the patterns of the tokenizer take more than %d seconds", MOST_SECONDS);
  PCRE2_SPTR text = (PCRE2_SPTR)search->text;
  int got = pcre2_match(regex->code, text, search->bytes, search->from, PCRE2_NO_UTF_CHECK, room->data,
                        room->context);
  if (got == PCRE2_ERROR_JIT_STACKLIMIT)
    got = pcre2_match(regex->code, text, search->bytes, search->from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                      room->data, room->context);
  *found_p = got >= 0;
  if (got == PCRE2_ERROR_NOMATCH) return TREADLE_OK;
  if (got == PCRE2_ERROR_NOMEMORY) return no_memory();
  if (got < 0)
    REFUSE("a pattern of the tokenizer takes too many steps in a text of %zu bytes, at byte %zu",
           search->bytes, search->from);
  const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(room->data);
  search->start = bounds[0];
  search->end = bounds[1];
  if (search->start > search->end) REFUSE("a pattern of the tokenizer matches backwards (\\K)");
  return TREADLE_OK;
}

treadle_status treadle_regex_next(treadle_regex_search *search, bool *found_p) {
  treadle_status status = TREADLE_OK;
  size_t last = search->end;
  for (;;) {
    *found_p = false;
    if (search->from > search->bytes) return TREADLE_OK;
    TRY(find(search, found_p));
    if (!*found_p) return TREADLE_OK;
    if (search->start < search->end || !search->any || search->end != last) break;
    uint32_t code;
    search->from +=
        search->from < search->bytes ? treadle_utf8_decode(search->text + search->from, &code) : 1;
  }
  search->from = search->end;
  search->any = true;
out:
  return status;
}
