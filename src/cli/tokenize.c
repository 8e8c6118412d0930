/* treadle tokenize: texts and chats to tokens, and tokens to texts. What is printed is kept until all input was good. */
#include "base/json.h"
#include "cli/cli.h"
#include "cli/json_lines.h"
#include "cli/json_out.h"
#include "cli/open_text.h"
#include "cli/request_options.h"

#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

typedef struct tokenizing {
  const treadle_arguments *arguments;
  const treadle_tokenizer *tokenizer;
  treadle_chat *chat; /* NULL: not yet opened */
  FILE *out;
  bool json, special;
  bool begun; /* something was printed */
} tokenizing;

/* ---- Printing ---- */

static void print_json(const tokenizing *t, const char *text, size_t bytes, const int32_t *ids,
                       size_t count) {
  treadle_json_out out = {.file = t->out, .line = true};
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_bytes(&out, "text", text, bytes);
  treadle_json_out_open(&out, "token_ids", '[');
  for (size_t i = 0; i < count; i++) treadle_json_out_int(&out, NULL, ids[i]);
  treadle_json_out_close(&out, ']');
  treadle_json_out_close(&out, '}');
}

/* What a token is besides its text: " (eos, special)". */
static void print_notes(const tokenizing *t, int32_t id, const treadle_token_info *info) {
  static const char *const names[] = {"bos", "eos", "pad", "unk"};
  const char *before = "  (";
  for (int which = TREADLE_BOS; which <= TREADLE_UNKNOWN; which++) {
    if (treadle_tokenizer_special(t->tokenizer, (treadle_special_token)which) != id) continue;
    fprintf(t->out, "%s%s", before, names[which]);
    before = ", ";
  }
  if (info->special || info->added) {
    fprintf(t->out, "%s%s", before, info->special ? "special" : "added");
    before = ", ";
  }
  fputs(*before == ',' ? ")\n" : "\n", t->out);
}

/* A text as tables show it, up to a 0 byte. */
static void print_shown(const tokenizing *t, const char *text, size_t bytes) {
  fprintf(t->out, "%s%s", treadle_text_shown(text), strlen(text) < bytes ? "\\x00..." : "");
}

static treadle_status print_table(tokenizing *t, const char *text, size_t bytes, const int32_t *ids,
                                  size_t count) {
  treadle_status status = TREADLE_OK;
  fputs(t->begun ? "\ntext    " : "text    ", t->out);
  print_shown(t, text, bytes);
  fprintf(t->out, "\ntokens  %zu\n\n%9s  token\n", count, "id");
  t->begun = true;
  for (size_t i = 0; i < count; i++) {
    treadle_token_info info = TREADLE_INIT(treadle_token_info);
    TRY(treadle_tokenizer_token(t->tokenizer, ids[i], &info));
    fprintf(t->out, "%9d  ", (int)ids[i]);
    print_shown(t, info.text, info.bytes);
    print_notes(t, ids[i], &info);
  }
out:
  return status;
}

static treadle_status print(tokenizing *t, const char *text, size_t bytes, const int32_t *ids,
                            size_t count) {
  if (!t->json) return print_table(t, text, bytes, ids, count);
  print_json(t, text, bytes, ids, count);
  return TREADLE_OK;
}

/* ---- One text, one list of ids ---- */

static treadle_status encode(tokenizing *t, const char *text, size_t bytes, bool special) {
  treadle_status status;
  int32_t *ids = NULL;
  size_t count;
  TRY(treadle_tokenizer_encode(t->tokenizer, text, bytes, special, &ids, &count));
  TRY(print(t, text, bytes, ids, count));
out:
  free(ids);
  return status;
}

/* What the template makes of messages has its special tokens in it. */
static treadle_status tokenize_chat(tokenizing *t, json_t *messages, bool answers) {
  const treadle_chat_options options = {.struct_size = sizeof options,
                                        .variables = answers ? "{\"add_generation_prompt\": true}" : NULL};
  char *json = treadle_json_dump(messages, JSON_COMPACT), *text = NULL;
  size_t bytes;
  treadle_status status;
  if (!json) return treadle_fail(TREADLE_NO_MEMORY, "no memory for messages");
  if (!t->chat) TRY(treadle_open_chat(t->arguments->model.path, t->arguments->text.tokenizer, &t->chat));
  TRY(treadle_chat_render(t->chat, json, &options, &text, &bytes));
  TRY(encode(t, text, bytes, false));
out:
  free(json);
  free(text);
  return status;
}

/* With --chat it is a message of the user. */
static treadle_status tokenize_text(tokenizing *t, const char *text, size_t bytes) {
  if (!t->arguments->text.chat) return encode(t, text, bytes, t->special);
  json_t *content = json_stringn(text, bytes);
  if (!content) return treadle_fail(TREADLE_REFUSED, "the text is not UTF-8, or there is no memory for it");
  json_t *messages = json_pack("[{s:s, s:o}]", "role", "user", "content", content);
  treadle_status status = messages ? tokenize_chat(t, messages, true)
                                   : treadle_fail(TREADLE_NO_MEMORY, "no memory for messages");
  json_decref(messages);
  return status;
}

static treadle_status show_ids(tokenizing *t, const int32_t *ids, size_t count) {
  treadle_status status;
  char *text = NULL;
  size_t bytes;
  TRY(treadle_tokenizer_decode(t->tokenizer, ids, count, t->special, &text, &bytes));
  TRY(print(t, text, bytes, ids, count));
out:
  free(text);
  return status;
}

static treadle_status show_listed(tokenizing *t, const char *list) {
  int32_t *ids = NULL;
  size_t count;
  treadle_status status;
  TRY(treadle_read_ids("--ids", list, &ids, &count));
  TRY(show_ids(t, ids, count));
out:
  free(ids);
  return status;
}

/* ---- Files ---- */

static treadle_status show_json_ids(tokenizing *t, const json_t *list) {
  treadle_status status = TREADLE_OK;
  int32_t *ids = NULL;
  if (!json_is_array(list)) return treadle_fail(TREADLE_REFUSED, "token_ids is not a list");
  ids = calloc(json_array_size(list) + 1, sizeof *ids);
  if (!ids) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu ids", json_array_size(list));
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *id = json_array_get(list, i);
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
      TRY(treadle_fail(TREADLE_REFUSED, "token_ids[%zu] is not an id: a whole number from 0 to %d", i,
                       INT32_MAX));
    ids[i] = (int32_t)json_integer_value(id);
  }
  TRY(show_ids(t, ids, json_array_size(list)));
out:
  free(ids);
  return status;
}

static treadle_status tokenize_messages(tokenizing *t, json_t *messages, const json_t *answers) {
  if (!json_is_array(messages) || json_array_size(messages) == 0)
    return treadle_fail(TREADLE_REFUSED, "messages must be a list with at least one message");
  if (answers && !json_is_boolean(answers))
    return treadle_fail(TREADLE_REFUSED, "add_generation_prompt must be true or false");
  return tokenize_chat(t, messages, !json_is_false(answers));
}

/* A line has `text`, `messages` or `token_ids`. */
static treadle_status tokenize_line(tokenizing *t, const json_t *object) {
  const json_t *text = json_object_get(object, "text"), *ids = json_object_get(object, "token_ids"),
               *answers = json_object_get(object, "add_generation_prompt");
  json_t *messages = json_object_get(object, "messages");
  if (!!text + !!ids + !!messages != 1)
    return treadle_fail(TREADLE_REFUSED, "needs either text, messages or token_ids");
  if (answers && !messages)
    return treadle_fail(TREADLE_REFUSED, "add_generation_prompt goes with messages");
  if (ids && t->arguments->text.chat)
    return treadle_fail(TREADLE_REFUSED, "--chat takes text and messages, not token_ids");
  if (ids) return show_json_ids(t, ids);
  if (messages) return tokenize_messages(t, messages, answers);
  if (!json_is_string(text))
    return treadle_fail(TREADLE_REFUSED, "text is not a text%s", treadle_json_note(text));
  return tokenize_text(t, json_string_value(text), json_string_length(text));
}

static treadle_status tokenize_file(tokenizing *t, const char *path) {
  static const char *const keys[] = {"text", "messages", "token_ids", "add_generation_prompt", NULL};
  treadle_json_lines lines = {0};
  json_t *object = NULL;
  treadle_status status;
  TRY(treadle_json_lines_open(&lines, path));
  for (;;) {
    TRY(treadle_json_lines_next(&lines, &object));
    if (!object) break;
    TRY(treadle_json_lines_check_keys(&lines, object, keys));
    status = tokenize_line(t, object);
    if (status) TRY(treadle_json_lines_fail(&lines, status));
    json_decref(object);
    object = NULL;
  }
out:
  json_decref(object);
  treadle_json_lines_close(&lines);
  return status;
}

/* ---- The command ---- */

static treadle_status check_arguments(const treadle_arguments *arguments) {
  int inputs = !!arguments->tokenize.text + !!arguments->tokenize.ids + !!arguments->files.in;
  if (!arguments->model.path && !arguments->text.tokenizer)
    return treadle_fail(TREADLE_REFUSED, "--model DIR or --tokenizer FILE is missing");
  if (inputs == 0) return treadle_fail(TREADLE_REFUSED, "--text, --ids or --file is missing");
  if (inputs > 1) return treadle_fail(TREADLE_REFUSED, "only one of --text, --ids and --file can be given");
  if (arguments->text.chat && arguments->tokenize.ids)
    return treadle_fail(TREADLE_REFUSED, "--chat goes with --text and --file, not with --ids");
  return TREADLE_OK;
}

static treadle_status run(const treadle_arguments *arguments, tokenizing *t) {
  if (arguments->tokenize.text)
    return tokenize_text(t, arguments->tokenize.text, strlen(arguments->tokenize.text));
  if (arguments->tokenize.ids) return show_listed(t, arguments->tokenize.ids);
  return tokenize_file(t, arguments->files.in);
}

int treadle_command_tokenize(const treadle_arguments *arguments) {
  treadle_status status;
  treadle_tokenizer *tokenizer = NULL;
  char *kept = NULL;
  size_t bytes = 0;
  tokenizing t = {
      .arguments = arguments, .json = arguments->json, .special = arguments->tokenize.special == 0};
  TRY(check_arguments(arguments));
  TRY(treadle_open_tokenizer(arguments->model.path, arguments->text.tokenizer, &tokenizer));
  t.tokenizer = tokenizer;
  t.out = open_memstream(&kept, &bytes);
  if (!t.out) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the output"));
  status = run(arguments, &t);
  if (fclose(t.out) != 0 && !status) status = treadle_fail(TREADLE_NO_MEMORY, "no memory for the output");
  if (!status) fwrite(kept, 1, bytes, stdout);
out:;
  int exit_status = status ? treadle_report_refusal("tokenize", status) : TREADLE_EXIT_OK;
  treadle_chat_close(t.chat);
  treadle_tokenizer_close(tokenizer);
  free(kept);
  return treadle_finish_output("tokenize", exit_status);
}
