/* What must hold after a run. */
#include "commands/run.h"

#include <string.h>

static const char JOURNAL[] = "out/treadle-convert.json";

static bool ends(const char *text, const char *end) {
  size_t length = strlen(text), more = strlen(end);
  return length >= more && strcmp(text + length - more, end) == 0;
}

/* Temporary files have an end of their own, and stay only where a process was killed. */
static const char *check_folder(const fuzz_run *run, int exit_status) {
  static fuzz_files files;
  bool found = false, journal = fuzz_exists(JOURNAL);
  fuzz_folder_list(".", false, &files);
  for (int i = 0; i < files.count; i++) {
    found = found || strncmp(files.names[i], "out/", 4) == 0;
    if (ends(files.names[i], ".tmp")) return "a temporary file is left";
  }
  if (strcmp(run->words[0], "convert") != 0) return NULL;
  if (exit_status == 0 && journal) return "a conversion is done, and its journal is still there";
  if (exit_status != 0 && found && !journal && !run->continues)
    return "a conversion failed, and left files without a journal";
  return NULL;
}

enum { LARGEST_JSON = 64 << 20 /* to be read here, with all of its values in memory */, LEAST_SAID = 64 };

static const char *check_json(const fuzz_bytes *output) {
  json_t *root = json_loadb(output->at, output->count, JSON_REJECT_DUPLICATES, NULL);
  const char *wrong = !root                   ? "no JSON on standard output"
                      : !json_is_object(root) ? "no JSON object"
                                              : NULL;
  json_decref(root);
  return wrong;
}

static const char *check_json_lines(const char *text, size_t count) {
  for (const char *at = text, *end = text + count; at < end;) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    if (!stop) return "a line of JSON without an end";
    json_t *root = json_loadb(at, (size_t)(stop - at), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    bool good = json_is_object(root);
    json_decref(root);
    if (!good) return "a line that is not a JSON object";
    at = stop + 1;
  }
  return NULL;
}

/* What generate and score write: whole, or not at all. */
static const char *check_answers(const fuzz_run *run, int exit_status) {
  fuzz_bytes text = {0};
  const char *wrong = NULL;
  bool asked = fuzz_run_has(run, "--out=out.jsonl");
  if (strcmp(run->words[0], "generate") != 0 && strcmp(run->words[0], "score") != 0) return NULL;
  if (exit_status == 2 && (fuzz_exists("out.jsonl") || fuzz_exists("logits.safetensors")))
    return "input was refused, and a file was written";
  if (exit_status == 0 && asked && !fuzz_exists("out.jsonl")) return "there is no file of answers";
  if (asked && fuzz_file_read("out.jsonl", &text) && text.count && text.at[0] == '{')
    wrong = check_json_lines(text.at, text.count);
  fuzz_bytes_release(&text);
  return wrong;
}

/* A prompt's text is printed as the model makes it. */
static bool prints_text(const fuzz_run *run) {
  if (strcmp(run->words[0], "generate") != 0) return false;
  for (int i = 1; i < run->count; i++)
    if (strncmp(run->words[i], "--prompt=", 9) == 0) return true;
  return false;
}

static bool plain(const fuzz_bytes *text) {
  for (size_t i = 0; i < text->count; i++)
    if (((unsigned char)text->at[i] < ' ' && !strchr("\n\t", text->at[i])) || text->at[i] == 127 ||
        !text->at[i])
      return false;
  return true;
}

const char *fuzz_run_check(const fuzz_run *run, int exit_status, const fuzz_bytes *output,
                           const fuzz_bytes *messages) {
  bool json = fuzz_run_has(run, "--json") && !fuzz_run_has(run, "--help") && !fuzz_run_has(run, "-h") &&
              run->words[0][0] != '-' && strcmp(run->words[0], "help") != 0;
  if (exit_status < 0 || exit_status > 2) return "an exit status that is none of 0, 1, 2";
  if (run->exit_status >= 0 && run->exit_status != exit_status)
    return "another exit status than it must have";
  bool cut = run->limit > 0 && run->limit < LEAST_SAID; /* standard error is a file, too */
  if (exit_status == 2 && messages->count < 12 && !cut) return "refused without a message";
  if (exit_status == 1 && messages->count < 12 && output->count < 12 && !cut)
    return "failed without a message";
  json = json && output->count <= LARGEST_JSON;
  if (json && strcmp(run->words[0], "tokenize") == 0) {
    if (check_json_lines(output->at, output->count)) return check_json_lines(output->at, output->count);
    json = false;
  }
  if (exit_status == 0 && json && check_json(output)) return check_json(output);
  if (json && output->count && !run->limit && check_json(output)) /* output may be cut: it is a file, too */
    return "what is on standard output after a failure is not JSON";
  if (messages->count && (strstr(messages->at, "runtime error:") || strstr(messages->at, "Sanitizer: ")))
    return "what a sanitizer says";
  if ((!plain(output) && !prints_text(run)) || !plain(messages)) return "control characters in the output";
  const char *wrong = check_answers(run, exit_status);
  return wrong ? wrong : check_folder(run, exit_status);
}
