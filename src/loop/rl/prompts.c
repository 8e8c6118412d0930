#include "rl/prompts.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/array.h"
#include "base/hash.h"
#include "base/real.h"
#include "base/text.h"
#include "base/utf8.h"
#include "generate/json_values.h"
#include "generate/request_lines.h"
#include "generate/request_text.h"
#include "io/file.h"
#include "io/file_look.h"
#include "io/json.h"
#include "reward/reward.h"

#include <stdio.h>
#include <string.h>

enum { NAME = 600 };
static const size_t FILE_MOST = (size_t)1 << 30;

struct treadle_rl_prompts {
  TREADLE_ARRAY(treadle_rl_prompt) items;
  int64_t too_long, unanswered; /* left out */
  uint64_t digest;
  treadle_arena arena;
};

/* An object of a file. */
typedef struct prompt_reader {
  const treadle_rl_prompts_spec *spec;
  treadle_rl_prompts *prompts;
  const char *path, *source; /* source: what the file is called */
  const char *name;          /* "FILE: line 7" */
  int64_t line;
  const json_t *object;
} prompt_reader;

static treadle_status no_memory(const prompt_reader *r) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for prompts", r->path);
}

/* ---- Values ------------------------------------------------------------------------------------------------ */

static bool has_zero(json_t *value) {
  size_t i;
  json_t *item;
  if (json_is_string(value)) return strlen(json_string_value(value)) != json_string_length(value);
  json_array_foreach(value, i, item) {
    if (has_zero(item)) return true;
  }
  for (void *at = json_object_iter(value); at; at = json_object_iter_next(value, at))
    if (has_zero(json_object_iter_value(at))) return true;
  return false;
}

/* Texts go to rewards, whose interface ends them with 0. */
static treadle_status check_zeros(const prompt_reader *r, const char *key, json_t *value) {
  if (has_zero(value))
    REFUSE("%s: '%s' has a zero character (\\u0000), which rewards cannot be given", r->name, key);
  return TREADLE_OK;
}

/* The text of what was asked: of messages, the last one's. */
static treadle_status show_prompt(const prompt_reader *r, const json_t *value, const char **text_p) {
  const json_t *last = json_is_array(value) ? json_array_get(value, json_array_size(value) - 1) : NULL;
  const char *text = json_string_value(json_is_string(value) ? value : json_object_get(last, "content"));
  *text_p = treadle_arena_copy_text(&r->prompts->arena, text ? text : "");
  return *text_p ? TREADLE_OK : no_memory(r);
}

static treadle_status take_input(const prompt_reader *r, treadle_rl_prompt *p) {
  const treadle_rl_prompts_spec *s = r->spec;
  json_t *value = json_object_get(r->object, s->prompt_key),
         *ids = json_object_get(r->object, "prompt_token_ids");
  const treadle_request_text_spec text = {.what = r->path,
                                          .tokenizer = s->tokenizer,
                                          .chat = s->chat,
                                          .answers = true,
                                          .talks = s->chat != NULL,
                                          .variables = s->chat_variables};
  treadle_request_input input = {0};
  treadle_status status;
  if (!value && !ids) REFUSE("%s: has no '%s' (%s)", r->name, s->prompt_key, s->words->prompt_key);
  if (!ids && !s->tokenizer)
    REFUSE("%s: '%s' needs a tokenizer, and there is none; %s", r->name, s->prompt_key,
           s->words->no_tokenizer);
  TRY(check_zeros(r, s->prompt_key, value));
  TRY(show_prompt(r, value, &p->text));
  if (ids) {
    int32_t *tokens;
    TRY(treadle_json_tokens(r->name, "prompt_token_ids", ids, &r->prompts->arena, &tokens,
                            &input.token_count));
    input.tokens = tokens;
    input.type = TREADLE_REQUEST_TOKENS;
  } else if (json_is_array(value)) {
    input.type = TREADLE_REQUEST_MESSAGES;
    input.messages = value;
  } else if (json_is_string(value)) {
    input.text = (treadle_text){json_string_value(value), json_string_length(value)};
  } else {
    REFUSE("%s: '%s' must be a text, or a list of messages%s", r->name, s->prompt_key,
           treadle_json_note(value));
  }
  TRY(treadle_request_tokenize(&text, r->line, &r->prompts->arena, &input));
  p->ids = input.tokens;
  p->count = input.token_count;
  if (!p->count) REFUSE("%s: '%s' has no tokens", r->name, s->prompt_key);
  TRY(treadle_request_check_ids(r->name, s->prompt_key, p->ids, p->count, s->vocabulary));
out:
  return status;
}

/* Numbers are texts as short as they can be: what is compared with them is what a person writes. null is not an answer. answer NULL: there is
 * none, and the line goes. */
static treadle_status take_answer(const prompt_reader *r, treadle_rl_prompt *p) {
  json_t *value = json_object_get(r->object, r->spec->answer_key);
  char real[TREADLE_REAL_BYTES];
  if (!value || json_is_null(value))
    value = json_object_get(json_object_get(r->object, "reward_model"), "ground_truth");
  if (json_is_null(value)) value = NULL;
  p->answer = "";
  if (!value && !r->spec->need_answer) return TREADLE_OK;
  if (!value && r->spec->leave_unanswered_out) {
    p->answer = NULL;
    return TREADLE_OK;
  }
  if (!value)
    REFUSE("%s: has no '%s' (%s); %s", r->name, r->spec->answer_key, r->spec->words->answer_key,
           r->spec->words->no_answer);
  treadle_status status = check_zeros(r, r->spec->answer_key, value);
  if (status) return status;
  const char *odd = treadle_json_odd(value);
  if (json_is_string(value)) {
    p->answer = treadle_arena_copy_text(&r->prompts->arena, json_string_value(value));
  } else if (json_is_integer(value)) {
    p->answer = treadle_arena_format(&r->prompts->arena, "%lld", (long long)json_integer_value(value));
  } else if (json_is_real(value)) {
    treadle_text_of_real(real, json_real_value(value));
    p->answer = treadle_arena_copy_text(&r->prompts->arena, real);
  } else if (odd && strspn(odd, "-0123456789") == strlen(odd)) {
    p->answer = treadle_arena_copy_text(&r->prompts->arena, odd); /* beyond 64 bits */
  } else if (odd && *odd != '"' && !r->spec->need_answer) {
    return TREADLE_OK; /* NaN, which nobody needs: none */
  } else {
    REFUSE("%s: '%s' must be a text or a number%s", r->name, r->spec->answer_key, treadle_json_note(value));
  }
  return p->answer ? TREADLE_OK : no_memory(r);
}

static treadle_status take_source(const prompt_reader *r, treadle_rl_prompt *p) {
  json_t *value = json_object_get(r->object, r->spec->data_source_key);
  treadle_status status = check_zeros(r, r->spec->data_source_key, value);
  if (status) return status;
  if (value && !json_is_null(value) && !json_is_string(value))
    REFUSE("%s: '%s' must be a text%s", r->name, r->spec->data_source_key, treadle_json_note(value));
  p->data_source = treadle_arena_copy_text(&r->prompts->arena,
                                           json_is_string(value) ? json_string_value(value) : r->source);
  return p->data_source ? TREADLE_OK : no_memory(r);
}

static void digest(treadle_rl_prompts *prompts, const treadle_rl_prompt *p) {
  uint64_t d = treadle_hash_more(prompts->digest, (uint64_t)p->count);
  for (int64_t i = 0; i < p->count; i++) d = treadle_hash_more(d, (uint64_t)p->ids[i]);
  d = treadle_hash_more(d, treadle_hash_text(p->answer, 1));
  prompts->digest = treadle_hash_more(d, treadle_hash_text(p->data_source, 2));
}

static treadle_status take_object(const prompt_reader *r) {
  treadle_rl_prompt p = {.line = r->line};
  treadle_status status;
  TRY(take_input(r, &p));
  TRY(take_answer(r, &p));
  TRY(take_source(r, &p));
  if (!p.answer) {
    r->prompts->unanswered++;
    return TREADLE_OK;
  }
  if (p.count > r->spec->most_tokens && r->spec->leave_long_out) {
    r->prompts->too_long++;
    return TREADLE_OK;
  }
  if (p.count > r->spec->most_tokens)
    REFUSE("%s: the prompt has %lld tokens; at most %lld (%s)", r->name, (long long)p.count,
           (long long)r->spec->most_tokens, r->spec->words->too_long);
  digest(r->prompts, &p);
  TRY(treadle_array_push(&r->prompts->items, p));
out:
  return status;
}

/* ---- Files -------------------------------------------------------------------------------------------------- */

static treadle_status read_lines(prompt_reader *r, const char *text, size_t bytes) {
  treadle_request_reader lines = {.what = r->path, .text = text, .count = bytes};
  bool more = false;
  treadle_status status;
  for (;;) {
    TRY(treadle_request_reader_next(&lines, &more));
    if (!more) break;
    r->name = lines.name;
    r->line = lines.line;
    r->object = lines.object;
    TRY(take_object(r));
  }
out:
  treadle_request_reader_release(&lines);
  return status;
}

static treadle_status read_list(prompt_reader *r, const char *text, size_t bytes) {
  char name[NAME];
  json_t *root = NULL;
  treadle_status status;
  const treadle_json_source source = {.what = r->path, .text = text, .count = bytes, .zeros = true};
  TRY(treadle_json_read(&source, &root));
  for (size_t i = 0; i < json_array_size(root); i++) {
    snprintf(name, sizeof name, "%.500s: item %zu", r->path, i);
    r->name = name;
    r->line = (int64_t)i + 1;
    r->object = json_array_get(root, i);
    if (!treadle_json_is_object(r->object)) TRY(treadle_fail(TREADLE_REFUSED, "%s: not an object", name));
    TRY(take_object(r));
  }
out:
  json_decref(root);
  return status;
}

/* "data/gsm8k/train.jsonl": train */
static const char *source_of(treadle_arena *arena, const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strchr(name, '.');
  return treadle_arena_format(arena, "%.*s", dot && dot > name ? (int)(dot - name) : (int)strlen(name),
                              name);
}

static treadle_status read_file(const treadle_rl_prompts_spec *spec, const char *path,
                                treadle_rl_prompts *prompts) {
  prompt_reader r = {.spec = spec, .prompts = prompts, .path = path};
  char *text = NULL;
  size_t bytes, at = 0;
  treadle_status status;
  r.source = source_of(&prompts->arena, path);
  if (!r.source) return no_memory(&r);
  TRY(treadle_file_check_lines(path));
  TRY(treadle_file_read(path, FILE_MOST, &text, &bytes));
  at = treadle_json_mark(text, bytes);
  while (at < bytes && memchr(" \t\r\n", text[at], 4)) at++;
  TRY(at < bytes && text[at] == '[' ? read_list(&r, text, bytes) : read_lines(&r, text, bytes));
out:
  treadle_free(text);
  return status;
}

/* "a,b" and "[a, b]" are two files, and so is "['a', 'b']". */
static treadle_status read_files(const treadle_rl_prompts_spec *spec, treadle_rl_prompts *prompts) {
  char *paths = treadle_arena_copy_text(&prompts->arena, spec->path), *rest = NULL;
  treadle_status status = TREADLE_OK;
  if (!paths) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for prompts", spec->path);
  if (treadle_file_exists(spec->path)) return read_file(spec, spec->path, prompts);
  for (char *path = strtok_r(paths, ",[]", &rest); path; path = strtok_r(NULL, ",[]", &rest)) {
    path += strspn(path, " ");
    for (size_t end = strlen(path); end > 0 && path[end - 1] == ' ';) path[--end] = 0;
    const size_t end = strlen(path);
    if (end > 1 && (*path == '\'' || *path == '"') && path[end - 1] == *path) {
      path[end - 1] = 0;
      path++;
    }
    if (*path) TRY(read_file(spec, path, prompts));
  }
out:
  return status;
}

treadle_status treadle_rl_prompts_read(const treadle_rl_prompts_spec *spec,
                                       treadle_rl_prompts **prompts_p) {
  treadle_rl_prompts *prompts = treadle_alloc(sizeof *prompts);
  treadle_status status;
  *prompts_p = NULL;
  if (!prompts) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for prompts", spec->path);
  TRY(read_files(spec, prompts));
  if (!prompts->items.count && (prompts->too_long || prompts->unanswered))
    TRY(treadle_fail(TREADLE_REFUSED,
                     "%s: all prompts are left out: %lld of more than %s, %lld without an answer",
                     spec->path, (long long)prompts->too_long,
                     treadle_text_of_count(spec->most_tokens, "token"), (long long)prompts->unanswered));
  if (!prompts->items.count) TRY(treadle_fail(TREADLE_REFUSED, "%s: has no prompts", spec->path));
  *prompts_p = prompts;
  prompts = NULL;
out:
  treadle_rl_prompts_destroy(prompts);
  return status;
}

void treadle_rl_prompts_destroy(treadle_rl_prompts *prompts) {
  if (!prompts) return;
  treadle_array_release(&prompts->items);
  treadle_arena_release(&prompts->arena);
  treadle_free(prompts);
}

const treadle_rl_prompt *treadle_rl_prompts_items(const treadle_rl_prompts *prompts, size_t *count_p) {
  *count_p = prompts->items.count;
  return prompts->items.items;
}

int64_t treadle_rl_prompts_too_long(const treadle_rl_prompts *prompts) { return prompts->too_long; }

int64_t treadle_rl_prompts_unanswered(const treadle_rl_prompts *prompts) { return prompts->unanswered; }

uint64_t treadle_rl_prompts_digest(const treadle_rl_prompts *prompts) { return prompts->digest; }

size_t treadle_rl_prompts_unmatched(const treadle_rl_prompts *prompts, const treadle_reward *reward,
                                    const treadle_rl_prompt **first_p) {
  size_t unmatched = 0;
  for (size_t i = 0; i < prompts->items.count; i++) {
    if (treadle_reward_can_match(reward, prompts->items.items[i].answer)) continue;
    if (!unmatched) *first_p = &prompts->items.items[i];
    unmatched++;
  }
  return unmatched;
}
