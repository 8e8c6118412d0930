/* Layout texts: those of tests/core/plan/draw.h, which mostly fit; with numbers that do not; from a grammar that knows keys and
 * nothing else; and spoiled ones. */
#include "commands/run.h"

#include <stdlib.h>
#include <string.h>

/* Keys of a type with their words, n for a number, ? for on and off. */
typedef struct kind_keys {
  const char *type;
  const char *keys[24];
} kind_keys;

#define MEGATRON                                                                                           \
  "tp=n", "pp=n", "vpp=n", "cp=n", "dp=n", "ep=n", "etp=n", "first=n", "last=n", "embedding_split=?",      \
      "loss_split=?", "vocab_divisible_by=n", "padded_vocab_size=n", "mla_down_proj_fusion=?",             \
      "order=tp-cp-ep-pp-dp|dp-tp-cp-ep-pp|tp-tp|", "spec=te|local",                                       \
      "experts=grouped|sequential|stacked|legacy",                                                         \
      "layout=EttL|\"Et*2|tL\"|E(t|)*1000000000tL|\"Et*4294967296L\"|Et*0L|\"E((t*99999)*99999)*99999|"    \
      "L\"",                                                                                               \
      "dtype=fp32|bf16|fp16|fp8"
#define ENGINE                                                                                             \
  "tp=n", "pp=n", "redundant=n", "names=old|new",                                                          \
      "partition=\"1,1\"|\"2,0\"|\"9223372036854775807,1\"|\"-1,3\"", "dtype=fp32|bf16|fp8"

static const kind_keys types[] = {
    {"hf", {"root=n", "dtype=fp32|bf16|fp16|fp8"}},
    {"megatron", {MEGATRON}},
    {"distopt", {MEGATRON, "bucket_size=n", "pad=?"}},
    {"fsdp", {"dp=n", "tp=n", "replicate=n", "orig_params=?", "wrap=layer|none", "dtype=fp32|bf16"}},
    {"fsdp2", {"dp=n", "tp=n", "replicate=n", "dtype=fp32|bf16"}},
    {"zero1", {"dp=n", "tp=n", "dtype=bf16|fp32"}},
    {"zero2", {"dp=n", "tp=n"}},
    {"zero3", {"dp=n", "tp=n", "dtype=bf16"}},
    {"vllm", {ENGINE, "dp=n", "pcp=n", "dcp=n", "ep=?", "placement=linear|round_robin"}},
    {"sglang",
     {ENGINE, "attn_dp=n", "attn_cp=n", "ep=n", "moe_dp=n", "a2a=none|deepep", "shared_fusion=?",
      "moe_dense_tp=n", "dp_lm_head=?", "moe=triton|triton_kernels"}},
    {"torch_dist", {"dtype=fp32"}},
    {"unknown", {"tp=n"}},
};

static void add_number(treadle_random *random, int64_t ranks, fuzz_bytes *text) {
  static const int small[] = {1, 2, 2, 2, 3, 4, 4, 8};
  if (fuzz_one_in(random, 5))
    fuzz_bytes_add(text, "%s", fuzz_edge(random));
  else if (fuzz_one_in(random, 3))
    fuzz_bytes_add(text, "%lld", (long long)ranks);
  else
    fuzz_bytes_add(text, "%d", FUZZ_PICK(random, small));
}

/* One of the words between | of `words`; those in quotes may have | themselves. */
static void add_word(treadle_random *random, const char *words, fuzz_bytes *text) {
  for (const char *at = words;;) {
    bool quoted = *at == '"';
    size_t length = quoted ? (size_t)(strchr(at + 1, '"') + 1 - at) : strcspn(at, "|");
    if (!at[length] || fuzz_one_in(random, 3)) {
      fuzz_bytes_add(text, "%.*s", (int)length, at);
      return;
    }
    at += length + 1;
  }
}

static void from_grammar(treadle_random *random, int64_t ranks, fuzz_bytes *text) {
  const kind_keys *type = &FUZZ_PICK(random, types);
  int count = 0;
  while (count < 24 && type->keys[count]) count++;
  fuzz_bytes_add(text, "%s", type->type);
  for (int64_t i = 0, many = treadle_random_below(random, 5); i < many; i++) {
    const char *key = type->keys[treadle_random_below(random, count)], *value = strchr(key, '=') + 1;
    fuzz_bytes_add(text, "%c%.*s", i ? ',' : ':', (int)(value - key), key);
    if (strcmp(value, "n") == 0)
      add_number(random, ranks, text);
    else if (strcmp(value, "?") == 0)
      fuzz_bytes_add(text, "%s", fuzz_one_in(random, 3) ? "off" : "on");
    else
      add_word(random, value, text);
  }
}

/* A file that a text names moves into the folder of the run, and is spoiled there at times. */
static void take_file(treadle_random *random, fuzz_bytes *text) {
  char *at = memchr(text->at, '@', text->count);
  if (!at || at[1] != '/') return;
  char path[FUZZ_PATH], *end = strchr(at, ',');
  fuzz_bytes bytes = {0};
  size_t from = (size_t)(at + 1 - text->at), length = end ? (size_t)(end - at - 1) : strlen(at + 1);
  snprintf(path, sizeof path, "%.*s", (int)length, at + 1);
  const char *name = fuzz_exists("map.json") ? "map2.json" : "map.json";
  if (fuzz_file_read(path, &bytes)) fuzz_file_replace(name, bytes.at, bytes.count);
  if (fuzz_one_in(random, 2)) fuzz_folder_spoil(random, name);
  fuzz_bytes_replace(text, from, length, name, strlen(name));
  fuzz_bytes_release(&bytes);
}

/* type: "pieces" or "placements". */
static void from_file(treadle_random *random, const fuzz_base *base, const fuzz_model *model, int64_t ranks,
                      const char *type, fuzz_bytes *text) {
  char path[FUZZ_PATH], file[40];
  snprintf(path, sizeof path, "%s/%s/%s%d.json", base->path, model->folder, type, ranks > 1 ? 2 : 1);
  snprintf(file, sizeof file, "%s.json", type);
  if (!fuzz_exists(file)) fuzz_file_link(path, file);
  if (!fuzz_one_in(random, 4)) fuzz_folder_spoil(random, file);
  fuzz_bytes_add(text, "%s:@%s", type, file);
}

void fuzz_layout_make(treadle_random *random, const fuzz_base *base, const fuzz_model *model,
                      const oracle_model *oracle, int64_t ranks, char text[FUZZ_WORD]) {
  fuzz_bytes made = {0};
  char drawn[DRAW_TEXT];
  int64_t way = treadle_random_below(random, 20);
  if (way == 0) {
    from_grammar(random, ranks, &made);
  } else if (way <= 2) {
    from_file(random, base, model, ranks, way == 1 ? "pieces" : "placements", &made);
  } else {
    const char *type = draw_kinds[treadle_random_below(random, 10)];
    draw_layout(random, oracle, type, ranks, drawn);
    fuzz_bytes_add(&made, "%s", drawn);
    take_file(random, &made);
    if (way <= 4) fuzz_spoil_text(random, &made);
  }
  if (fuzz_one_in(random, 40)) fuzz_spoil_bytes(random, &made);
  for (size_t i = 0; i < made.count; i++) /* a word is one line of `command` */
    if (!made.at[i] || made.at[i] == '\n') made.at[i] = ' ';
  snprintf(text, FUZZ_WORD, "%s", made.count ? made.at : "hf");
  fuzz_bytes_release(&made);
}
