#include "cli/engine_folder.h"

#include "cli/command.h"

#include "base/text.h"

#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

static const char config[] =
    "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"unk_token\": \"<unk>\", \"chat_template\": "
    "\"{% for m in messages %}{% if m.role == 'bad' %}{{ raise_exception('no such role') }}{% endif %}"
    "<s>{{ m.role }}:{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<s>assistant:{% endif "
    "%}\"}";

static const char ends[] =
    "}, \"merges\": []}, \"added_tokens\": [{\"id\": 0, \"content\": \"<unk>\", \"special\": true}, "
    "{\"id\": 1, \"content\": \"<s>\", \"special\": true}, {\"id\": 2, \"content\": \"</s>\", \"special\": "
    "true}], \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": "
    "false}, \"decoder\": {\"type\": \"ByteLevel\"}, \"post_processor\": {\"type\": "
    "\"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}, {\"Sequence\": {\"id\": "
    "\"A\"}}], \"special_tokens\": {\"<s>\": {\"ids\": [1]}}}}";

/* The character that stands for a byte: itself, or for what is not a visible Latin-1 character one from 256 on, in their order. */
static int character_of(int byte) {
  int others = 0;
  for (int b = 0; b <= byte; b++) {
    bool shown = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    if (b == byte && shown) return byte;
    if (b < byte) others += !shown;
  }
  return 256 + others;
}

static void add_token(treadle_builder *json, int byte, int id) {
  treadle_builder_add(json, ", \"\\u%04x\": %d", (unsigned)character_of(byte), id);
}

static void copy_file(const char *from, const char *to) {
  static char bytes[1 << 16];
  FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
  if (!in || !out) err(3, "%s, %s", from, to);
  for (size_t got; (got = fread(bytes, 1, sizeof bytes, in)) > 0;)
    if (fwrite(bytes, 1, got, out) != got) err(3, "%s", to);
  fclose(in);
  if (fclose(out)) err(3, "%s", to);
}

static void write_file(const char *folder, const char *name, const char *text) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "wb");
  if (!file || fputs(text, file) < 0 || fclose(file)) err(3, "%s", path);
}

void engine_folder_make(const char *path, const char *golden) {
  static const char *const names[] = {"config.json", "model.safetensors"};
  treadle_builder json = {0};
  if (mkdir(path, 0700) && errno != EEXIST) err(3, "%s", path);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char from[512], to[512];
    snprintf(from, sizeof from, "%s/tests/golden/models/%s/%s", TREADLE_SOURCE_DIR, golden, names[i]);
    snprintf(to, sizeof to, "%s/%s", path, names[i]);
    copy_file(from, to);
  }
  treadle_builder_add(&json,
                      "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"</s>\": 2");
  int id = ENGINE_FIRST;
  for (int byte = ' '; byte < 127; byte++) add_token(&json, byte, id++);
  for (int byte = 128; id < ENGINE_VOCABULARY; byte++) add_token(&json, byte, id++);
  treadle_builder_add(&json, "%s", ends);
  write_file(path, "tokenizer.json", json.text);
  write_file(path, "tokenizer_config.json", config);
  treadle_builder_release(&json);
}

const char *engine_folder(const char *golden) {
  static char path[64];
  snprintf(path, sizeof path, "%s/engine", command_folder());
  engine_folder_make(path, golden);
  return path;
}
