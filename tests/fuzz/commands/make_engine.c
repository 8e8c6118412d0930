/* Runs of generate, score and tokenize: small models with a tokenizer and a chat template, lines of requests, all of them spoiled at
 * times. What is valid is short: few samples of short sequences. */
#include "commands/making.h"

#include <stdio.h>
#include <string.h>

enum { MOST_SAMPLES = 8 }; /* of a request that is good */

/* ---- The model ---------------------------------------------------------------------------------------- */

/* Folder "in": a model that generates, or of any family. */
static void add_engine(fuzz_making *m) {
  fuzz_add(m, "--model");
  if (fuzz_draw(m, 8)) {
    fuzz_take_folder(m, "in", "in", 3);
  } else {
    fuzz_folder_link(m->base->engines[treadle_random_below(&m->random, FUZZ_ENGINES)], "in");
    while (fuzz_draw(m, 4)) fuzz_folder_spoil(&m->random, "in");
  }
  fuzz_add(m, fuzz_draw(m, 20) ? "in/config.json" : "in");
}

static void add_tokenizer(fuzz_making *m) {
  static const char *const paths[] = {"in", "in/tokenizer.json", "in/tokenizer_config.json", "in/none",
                                      "in/config.json"};
  if (fuzz_draw(m, 12)) fuzz_add(m, "--tokenizer=%s", FUZZ_PICK(&m->random, paths));
}

/* ---- Lines ---------------------------------------------------------------------------------------------- */

/* A good request may not ask for a number of samples that takes long. */
static json_t *with_few_samples(json_t *object) {
  json_t *n = json_object_get(object, "n");
  if (json_is_integer(n) && json_integer_value(n) > MOST_SAMPLES && json_integer_value(n) < 1 << 24)
    json_object_set_new(object, "n", json_integer(MOST_SAMPLES));
  return object;
}

/* One of the lines, spoiled at times. */
static void add_line(fuzz_making *m, const char *line, int64_t spoiled_one_in, fuzz_bytes *lines) {
  fuzz_bytes one = {0};
  fuzz_bytes_add(&one, "%s", line);
  bool spoiled = fuzz_draw(m, spoiled_one_in);
  if (spoiled && fuzz_draw(m, 3))
    fuzz_spoil_text(&m->random, &one);
  else if (spoiled)
    fuzz_spoil_json(&m->random, &one);
  json_t *object = json_loadb(one.at ? one.at : "", one.count, JSON_ALLOW_NUL, NULL);
  char *text = object ? json_dumps(with_few_samples(object), JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
  fuzz_bytes_add(lines, "%s\n", text ? text : one.at ? one.at : "");
  json_decref(object);
  free(text);
  fuzz_bytes_release(&one);
}

#define ADD_LINES(m, path, lines) add_lines(m, path, lines, (int64_t)(sizeof(lines) / sizeof *(lines)))

static void add_lines(fuzz_making *m, const char *path, const char *const *lines, int64_t count) {
  fuzz_bytes text = {0};
  int64_t spoiled_one_in = fuzz_draw(m, 2) ? 1000 : 4;
  for (int64_t many = treadle_random_between(&m->random, 1, 5); many > 0; many--) {
    add_line(m, lines[treadle_random_below(&m->random, count)], spoiled_one_in, &text);
    if (fuzz_draw(m, 20)) fuzz_bytes_add(&text, " \n");
  }
  if (fuzz_draw(m, 30)) fuzz_spoil_bytes(&m->random, &text);
  fuzz_file_replace(path, text.at, text.count);
  fuzz_bytes_release(&text);
}

/* ---- Options -------------------------------------------------------------------------------------------- */

static const char *const texts[] = {"a",
                                    "Hello, you",
                                    "h\xc3\xa9 \xe2\x82\xac",
                                    "<s>user:</s>",
                                    "{\"n\": 3}",
                                    "</s>",
                                    " ",
                                    "0123456789012345678901234567890123456789"};
static const char *const bad_texts[] = {"\xff", "\xf0\x9f\x98", "a\nb\t", ""};
static const char *const ids[] = {"1,2,3", "5", "0", "202", "4,4,4,4,4,4,4,4"};
static const char *const bad_ids[] = {"203", "-1", "1,,2", "", "1,2147483648", "1, 2", "1,2,"};

/* --NAME=VALUE, one time in `often`; one in 30 of these is bad. */
static void add_option(fuzz_making *m, const char *name, int64_t often, const char *bad, const char *good) {
  char values[200], *at = values;
  if (!fuzz_draw(m, often)) return;
  if (fuzz_draw(m, 30)) {
    fuzz_add(m, "%s=%s", name, fuzz_draw(m, 2) ? fuzz_edge(&m->random) : bad);
    return;
  }
  snprintf(values, sizeof values, "%s", good);
  int64_t count = 1;
  for (const char *c = values; *c; c++) count += *c == ' ';
  for (int64_t skip = treadle_random_below(&m->random, count); skip > 0; skip--) at = strchr(at, ' ') + 1;
  fuzz_add(m, "%s=%.*s", name, (int)strcspn(at, " "), at);
}

typedef struct option {
  const char *name;
  int64_t often;
  const char *bad, *good; /* good ones between spaces */
} option;

static void add_options(fuzz_making *m, const option *options, size_t count) {
  for (size_t i = 0; i < count; i++)
    add_option(m, options[i].name, options[i].often, options[i].bad, options[i].good);
}

#define ADD_OPTIONS(m, options) add_options(m, options, sizeof(options) / sizeof *(options))

/* Those that say how it is computed. --max-len keeps good runs short. */
static void add_engine_options(fuzz_making *m, const char *layouts) {
  const option options[] = {{"--max-len", 1, "16777217", "48 48 48 24 64 8"},
                            {"--exact", 6, "yes", "on off"},
                            {"--kernels", 4, "none", "plain auto plain avx2 avx512 amx"},
                            {"--threads", 4, "257", "1 2 3"},
                            {"--max-batch", 4, "65537", "1 2 7 64 65536"},
                            {"--prefill-chunk", 4, "65537", "1 3 16 512 4096"},
                            {"--block-tokens", 4, "4097", "1 3 16 64"},
                            {"--prefix-cache", 6, "maybe", "on off"},
                            {"--kv-memory", 3, "1B", "1MiB 64MiB 1MiB 300KiB 100KiB"}};
  ADD_OPTIONS(m, options);
  if (fuzz_draw(m, 20)) {
    fuzz_add(m, "--layout");
    fuzz_layout_make(&m->random, m->base, m->model, m->oracle, 1, m->run->words[m->run->count++]);
  } else {
    add_option(m, "--layout", 3, "vllm:tp=2", layouts);
  }
  add_tokenizer(m);
  if (fuzz_draw(m, 30)) {
    fuzz_add(m, "--families=families");
    fuzz_folder_link(TREADLE_SOURCE_DIR "/families", "families");
    for (int i = 0; i < 4; i++) fuzz_folder_spoil(&m->random, "families");
  }
}

static void add_sampling_options(fuzz_making *m) {
  static const option options[] = {{"--max-new-tokens", 2, "0", "1 5 20 9223372036854775807"},
                                   {"--min-new-tokens", 6, "30", "0 1"},
                                   {"--temperature", 3, "nan", "0 0.7 1 1e-3 100"},
                                   {"--top-k", 5, "-2", "0 1 5 203 9223372036854775807"},
                                   {"--top-p", 5, "0", "0.5 1 1e-9 .5"},
                                   {"--min-p", 6, "-0.1", "0 0.1 1"},
                                   {"--repetition-penalty", 6, "0", "1 1.5 0.5 1e300"},
                                   {"--presence-penalty", 6, "3", "0 2 -2"},
                                   {"--frequency-penalty", 6, "1e9", "0 2 -2"},
                                   {"--stop", 5, "", "e Hello # \xe2\x82\xac"},
                                   {"--stop", 8, "\xff", "a b <s>"},
                                   {"--stop-ids", 5, "203", "5 2,3 202"},
                                   {"--seed", 4, "-1", "0 1 9223372036854775807"},
                                   {"--logprobs", 4, "21", "0 1 20"},
                                   {"--logprobs-of", 5, "both", "raw scaled"}};
  static const char *const counts[] = {"1", "2", "3", "3", "0", "65537", "x", "9223372036854775808"};
  ADD_OPTIONS(m, options);
  if (fuzz_draw(m, 3)) fuzz_add(m, "--ignore-eos");
  if (fuzz_draw(m, 4)) fuzz_add(m, "--n=%s", fuzz_draw(m, 10) ? FUZZ_PICK(&m->random, counts) : "2");
}

static void add_outputs(fuzz_making *m) {
  add_option(m, "--out", 2, "in", "out.jsonl out.jsonl out.jsonl out.jsonl out.jsonl none/out.jsonl");
  if (fuzz_draw(m, 2)) fuzz_add(m, "--json");
  if (fuzz_draw(m, 40)) m->run->limit = treadle_random_between(&m->random, 1, 3000);
}

/* ---- Commands ------------------------------------------------------------------------------------------- */

void fuzz_make_generate(fuzz_making *m) {
  static const char *const lines[] = {
      "{\"prompt\": \"Hello\", \"max_tokens\": 4, \"id\": \"x\"}",
      "{\"prompt_token_ids\": [1, 5, 9], \"n\": 3, \"temperature\": 0.7, \"top_p\": 0.9, \"seed\": 7}",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"u\", \"content\": \"b\"}]}",
      "{\"prompt\": \"Hello\", \"stop\": [\"a\", \"bc\"], \"stop_token_ids\": [7], \"min_tokens\": 2, "
      "\"top_k\": 3}",
      "{\"prompt\": \"a\", \"presence_penalty\": 1, \"frequency_penalty\": 0.5, \"repetition_penalty\": "
      "1.2, "
      "\"min_p\": 0.1, \"ignore_eos\": true, \"logprobs\": 2, \"id\": 4}",
      "{\"prompt_token_ids\": [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8], "
      "\"max_tokens\": 30}"};
  fuzz_add(m, "generate");
  add_engine(m);
  if (fuzz_draw(m, 3)) {
    fuzz_add(m, "--prompt=%s",
             fuzz_draw(m, 12) ? FUZZ_PICK(&m->random, bad_texts) : FUZZ_PICK(&m->random, texts));
  } else if (fuzz_draw(m, 4)) {
    fuzz_add(m, "--prompt-ids=%s",
             fuzz_draw(m, 8) ? FUZZ_PICK(&m->random, bad_ids) : FUZZ_PICK(&m->random, ids));
  } else {
    fuzz_add(m, "--file=lines.jsonl");
    ADD_LINES(m, "lines.jsonl", lines);
  }
  if (fuzz_draw(m, 8)) fuzz_add(m, "--chat");
  add_engine_options(m, "vllm vllm:tp=1 sglang vllm:dtype=fp32 sglang:attn_dp=1 vllm:ep=on hf:dtype=fp16");
  add_sampling_options(m);
  add_outputs(m);
}

void fuzz_make_score(fuzz_making *m) {
  static const char *const lines[] = {
      "{\"text\": \"Hello\", \"id\": \"x\"}",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}",
      "{\"token_ids\": [1, 5, 9, 7, 8, 9, 10, 11]}",
      "{\"token_ids\": [4]}",
      "{\"token_ids\": [1, 2, 3], \"logprobs\": [null, -1.5, -2], \"sum\": -3.5, \"top_logprobs\": [null, "
      "[[1, -0.5]], "
      "[[2, -0.5]]]}",
      "{\"id\": 0, \"index\": 1, \"prompt_token_ids\": [4, 5], \"token_ids\": [6, 7, 8], \"text\": \"z\", "
      "\"logprobs\": [-0.1, -2, 0], \"top_logprobs\": null, \"finish_reason\": \"stop\", \"stop_reason\": "
      "8, "
      "\"version\": 1}"};
  fuzz_add(m, "score");
  add_engine(m);
  fuzz_add(m, "--file=lines.jsonl");
  ADD_LINES(m, "lines.jsonl", lines);
  add_engine_options(m, "hf megatron megatron:tp=1,pp=1 vllm sglang:tp=1 hf:dtype=fp32 hf:dtype=fp16 fsdp");
  add_option(m, "--temperature", 4, "1e39", "1 0.5 1e-30");
  add_option(m, "--top", 3, "21", "0 1 5 20");
  add_option(m, "--logits", 3, "in", "logits.safetensors logits.safetensors logits.safetensors none/x");
  if (fuzz_draw(m, 6)) fuzz_add(m, fuzz_draw(m, 8) ? "--check=off" : "--check");
  add_outputs(m);
}

void fuzz_make_tokenize(fuzz_making *m) {
  static const char *const lines[] = {
      "{\"text\": \"Hello\"}", "{\"token_ids\": [1, 5, 9, 200, 201]}",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"add_generation_prompt\": false}",
      "{\"text\": \"<s>\\u0000\\u00e9\"}"};
  fuzz_add(m, "tokenize");
  if (fuzz_draw(m, 10))
    add_tokenizer(m);
  else
    add_engine(m);
  if (fuzz_draw(m, 10)) add_tokenizer(m);
  if (fuzz_draw(m, 3)) {
    fuzz_add(m, "--text=%s",
             fuzz_draw(m, 12) ? FUZZ_PICK(&m->random, bad_texts) : FUZZ_PICK(&m->random, texts));
  } else if (fuzz_draw(m, 3)) {
    fuzz_add(m, "--ids=%s", fuzz_draw(m, 8) ? FUZZ_PICK(&m->random, bad_ids) : FUZZ_PICK(&m->random, ids));
  } else {
    fuzz_add(m, "--file=lines.jsonl");
    ADD_LINES(m, "lines.jsonl", lines);
  }
  if (fuzz_draw(m, 3)) fuzz_add(m, "--chat");
  add_option(m, "--special", 4, "some", "on off");
  if (fuzz_draw(m, 2)) fuzz_add(m, "--json");
}
