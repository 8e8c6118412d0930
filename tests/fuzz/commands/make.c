/* Making a run from a seed. */
#include "commands/run.h"

#include "cli/made.h"

#include <err.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct making {
  treadle_random random;
  const fuzz_base *base;
  const fuzz_model *model;
  oracle_model *oracle; /* of the model before it was spoiled */
  fuzz_run *run;
} making;

__attribute__((format(printf, 2, 3))) static void add(making *m, const char *format, ...) {
  va_list values;
  if (m->run->count == FUZZ_WORDS) return;
  va_start(values, format);
  vsnprintf(m->run->words[m->run->count++], FUZZ_WORD, format, values);
  va_end(values);
}

static bool one_in(making *m, int64_t many) { return fuzz_one_in(&m->random, many); }

static void base_path(const making *m, const char *name, char path[FUZZ_PATH]) {
  snprintf(path, FUZZ_PATH, "%s/%s/%s", m->base->path, m->model->folder, name);
}

/* ---- Files ------------------------------------------------------------------------------------- */

static void take_folder(making *m, const char *name, const char *as, int64_t spoiled_one_in) {
  char path[FUZZ_PATH];
  base_path(m, name, path);
  fuzz_folder_link(path, as);
  while (spoiled_one_in && one_in(m, spoiled_one_in)) fuzz_folder_spoil(&m->random, as);
}

static void take_file(making *m, const char *name, int64_t kept_one_in) {
  char path[FUZZ_PATH];
  base_path(m, name, path);
  fuzz_file_link(path, name);
  if (!one_in(m, kept_one_in))
    for (int64_t times = one_in(m, 3) ? 3 : 1; times > 0; times--) fuzz_folder_spoil(&m->random, name);
}

/* A real model's config, which is large: scaled down most of the time. */
static const char *real_config(making *m) {
  const char *from = m->base->configs[treadle_random_below(&m->random, m->base->config_count)];
  fuzz_file_link(from, "real.json");
  if (one_in(m, 2)) fuzz_folder_spoil(&m->random, "real.json");
  return "real.json";
}

/* The model for commands that plan: a checkpoint or a config, spoiled at times. */
static void add_model(making *m, const char *option) {
  const char *path = "config.json";
  bool real = m->base->config_count && one_in(m, 40);
  if (real)
    path = real_config(m);
  else if (!fuzz_exists("in") && one_in(m, 4))
    take_folder(m, "in", path = "in", 2);
  else
    take_file(m, "config.json", 3);
  if (*option) add(m, "%s", option);
  add(m, "%s", path);
  if (real || one_in(m, 40)) {
    add(m, "--scale-down");
    if (one_in(m, 8))
      add(m, "%s", fuzz_edge(&m->random));
    else
      add(m, "%d", one_in(m, 2) ? 1 : 5);
  }
  if (!one_in(m, 30)) return;
  add(m, "--families");
  add(m, "families");
  char families[FUZZ_PATH];
  snprintf(families, sizeof families, "%s/families", m->base->path);
  fuzz_folder_link(families, "families");
  for (int i = 0; i < 6; i++) fuzz_folder_spoil(&m->random, "families");
}

static void add_layout(making *m, const char *option, int64_t ranks) {
  add(m, "%s", option);
  fuzz_layout_make(&m->random, m->base, m->model, m->oracle, ranks, m->run->words[m->run->count++]);
}

/* ---- Numbers ----------------------------------------------------------------------------------- */

static int64_t draw_ranks(making *m) {
  static const int64_t few[] = {1, 2, 3, 4, 4, 6, 8, 8, 12, 16};
  static const int64_t many[] = {32, 64, 96, 128};
  return one_in(m, 20) ? FUZZ_PICK(&m->random, many) : FUZZ_PICK(&m->random, few);
}

static void add_number(making *m, const char *option, int64_t number, int64_t edge_one_in) {
  add(m, "%s", option);
  if (one_in(m, edge_one_in))
    add(m, "%s", fuzz_edge(&m->random));
  else
    add(m, "%lld", (long long)number);
}

static void add_size(making *m, const char *option, int64_t often) {
  static const char *const sizes[] = {"4KiB",
                                      "4KiB",
                                      "8KiB",
                                      "64KiB",
                                      "1MiB",
                                      "2MiB",
                                      "16MiB",
                                      "1GiB",
                                      "4096",
                                      "3",
                                      "12345",
                                      "0",
                                      "1TiB",
                                      "8EiB",
                                      "16GiB",
                                      "-1",
                                      "9223372036854775807",
                                      "4KiBs",
                                      "1.5MiB",
                                      "16777215TiB",
                                      "4294967296"};
  if (!one_in(m, often)) return;
  add(m, "%s", option);
  add(m, "%s", one_in(m, 3) ? fuzz_edge(&m->random) : FUZZ_PICK(&m->random, sizes));
}

static void add_switch_options(making *m) {
  if (one_in(m, 2)) {
    add(m, "--page-size");
    add(m, "4KiB");
  } else {
    add_size(m, "--page-size", 3);
  }
  add_size(m, "--cap", 5);
  add_size(m, "--budget", 6);
  if (one_in(m, 3)) add(m, "--alias=%s", one_in(m, 6) ? "perhaps" : one_in(m, 3) ? "on" : "off");
}

static void add_rank_map(making *m) {
  static const char *const maps[] = {"contiguous", "strided", "strided", "best", "best", "77"};
  if (one_in(m, 4)) add(m, "--rank-map=%s", FUZZ_PICK(&m->random, maps));
}

/* ---- Commands ---------------------------------------------------------------------------------- */

static void make_plan(making *m) {
  int64_t ranks = draw_ranks(m);
  add(m, "plan");
  add_model(m, "--model");
  add_layout(m, "--from", ranks);
  add_layout(m, "--to", ranks);
  add_number(m, "--ranks", ranks, 40);
  if (one_in(m, 3)) add_number(m, "--rank", treadle_random_below(&m->random, ranks), 20);
  add_rank_map(m);
  add_switch_options(m);
  if (one_in(m, 10)) add(m, "--by-rank");
  if (one_in(m, 2)) add(m, "--json");
}

static void make_layout(making *m) {
  int64_t ranks = draw_ranks(m);
  add(m, "layout");
  add_model(m, "--model");
  add_layout(m, "--layout", ranks);
  add_number(m, "--ranks", ranks, 30);
  add_number(m, "--rank", treadle_random_below(&m->random, ranks), 20);
  if (one_in(m, 6)) add_layout(m, "--train", ranks);
  add_rank_map(m);
  if (one_in(m, 2)) add(m, "--runs");
  if (one_in(m, 2)) add(m, "--json");
}

/* Layouts over many ranks, of which one is looked at: figures may be of no rank that could be. */
static void make_many_ranks(making *m) {
  static const char *const texts[] = {"fsdp",    "fsdp2",          "zero1",       "zero3",
                                      "distopt", "distopt:pad=on", "megatron",    "megatron:tp=2",
                                      "vllm",    "vllm:tp=2",      "sglang:tp=2", "fsdp:replicate=2",
                                      "hf",      "megatron:pp=2",  "vllm:ep=on"};
  static const char *const ranks[] = {"1024",
                                      "4096",
                                      "16384",
                                      "1048576",
                                      "2147483647",
                                      "2147483648",
                                      "4294967296",
                                      "1099511627776",
                                      "4611686018427387904",
                                      "9223372036854775807"};
  const char *count = FUZZ_PICK(&m->random, ranks);
  bool plan = one_in(m, 2);
  add(m, "%s", plan ? "plan" : "layout");
  add_model(m, "--model");
  for (int i = 0; i <= plan; i++) {
    const char *text = FUZZ_PICK(&m->random, texts);
    add(m, "%s", plan ? (i ? "--to" : "--from") : "--layout");
    if (one_in(m, 2) || strncmp(text, "hf", 2) == 0)
      add(m, "%s", text);
    else
      add(m, "%s%sdp=%s", text, strchr(text, ':') ? "," : ":", count);
  }
  add(m, "--ranks");
  add(m, "%s", count);
  add(m, "--rank");
  add(m, "%s", one_in(m, 3) ? fuzz_edge(&m->random) : "7");
  if (one_in(m, 2)) add(m, "--json");
  if (one_in(m, 3)) add(m, "--page-size=4KiB");
}

static void make_switch(making *m) {
  static const char *const offloads[] = {"params",        "params,grads", "grads=keep",
                                         "optimizer",     "none",         "params,optimizer,grads=keep",
                                         "params,params", "grad,"};
  static const char *const faults[] = {
      "enomem:rank=0,wave=1",     "enomem:rank=0,phase=commit", "corrupt:rank=0,wave=1",
      "enomem:rank=0,phase=bind", "corrupt:rank=1,wave=0",      "enomem:rank=0,wave=9223372036854775807",
      "kill:rank=-1,wave=1",      "slow:rank=0,phase=",         "cancel:rank=0,wave=1"};
  add(m, "switch");
  add_model(m, "--model");
  add_layout(m, "--train", 1);
  add_layout(m, "--infer", 1);
  add_switch_options(m);
  add_rank_map(m);
  add_number(m, "--cycles", treadle_random_below(&m->random, 3), 1000000);
  if (one_in(m, 2)) add(m, one_in(m, 12) ? "--check=prove" : "--check");
  if (one_in(m, 3)) add(m, "--offload=%s", FUZZ_PICK(&m->random, offloads));
  if (one_in(m, 3)) add(m, "--keep=%s", one_in(m, 3) ? "infer" : "host");
  if (one_in(m, 4)) add(m, "--forward");
  if (one_in(m, 10)) add(m, "--timeline=%s", one_in(m, 6) ? "in" : "picture.svg");
  if (one_in(m, 60) && symlink("elsewhere", "picture.svg")) warn("picture.svg");
  if (one_in(m, 10)) add(m, "--fault=%s", FUZZ_PICK(&m->random, faults));
  if (one_in(m, 2)) add(m, "--json");
}

static void add_out(making *m) {
  add(m, "in");
  add(m, "out");
  if (one_in(m, 30) && !fuzz_exists("out")) fuzz_folder_make("out");
  if (one_in(m, 3)) add(m, "--json");
  if (one_in(m, 8)) add(m, "--trust");
  if (one_in(m, 30)) m->run->limit = treadle_random_between(&m->random, 1, 20000);
}

static void make_convert(making *m) {
  char to[FUZZ_WORD];
  add(m, "convert");
  add(m, "--from");
  if (*m->model->stopped_to && one_in(m, 3)) { /* go on where one stopped */
    add(m, "hf");
    add(m, "--to");
    add(m, "%s", m->model->stopped_to);
    take_folder(m, "in", "in", 6);
    take_folder(m, "stopped", "out", 2);
  } else if (*m->model->megatron && one_in(m, 2)) { /* out of Megatron's files */
    fuzz_bytes from = {0};
    fuzz_bytes_add(&from, "%s", m->model->megatron);
    if (one_in(m, 10)) fuzz_spoil_text(&m->random, &from);
    add(m, "%s", from.at);
    fuzz_bytes_release(&from);
    add(m, "--to");
    add(m, "%s", one_in(m, 4) ? "hf:dtype=fp32" : "hf");
    take_folder(m, "megatron", "in", 2);
    if (one_in(m, 4)) {
      fuzz_folder_remove("in/hf");
      add_model(m, "--model");
    }
  } else {
    add(m, "%s", one_in(m, 8) ? "hf:dtype=bf16" : "hf");
    add(m, "--to");
    fuzz_layout_make(&m->random, m->base, m->model, m->oracle, one_in(m, 2) ? 2 : 4, to);
    add(m, "%s", one_in(m, 3) ? "hf" : one_in(m, 2) ? "megatron:tp=1" : to);
    take_folder(m, "in", "in", 2);
  }
  add_out(m);
}

static void make_recorded(making *m) {
  const char *name = FUZZ_PICK(&m->random, fuzz_recorded);
  char path[FUZZ_PATH];
  add(m, "convert");
  add(m, "--from");
  add(m, one_in(m, 6) ? "torch_dist:dtype=fp32" : "torch_dist");
  add(m, "--to");
  add(m, one_in(m, 3) ? "megatron:tp=2" : "hf");
  snprintf(path, sizeof path, "%s/recorded/%s.json", m->base->path, name);
  fuzz_file_link(path, "config.json");
  if (one_in(m, 6)) fuzz_folder_spoil(&m->random, "config.json");
  snprintf(path, sizeof path, "%s/recorded/%s", m->base->path, name);
  fuzz_folder_link(path, "in");
  if (!one_in(m, 20)) fuzz_folder_spoil(&m->random, one_in(m, 2) ? "in/.metadata" : "in");
  add(m, "--model=config.json");
  add_out(m);
}

static void make_inspect(making *m) {
  add(m, "inspect");
  if (one_in(m, 2))
    add_model(m, "");
  else {
    take_folder(m, "in", "in", 1000000);
    fuzz_folder_spoil(&m->random, "in");
    add(m, "in");
  }
  if (one_in(m, 2)) add(m, "--json");
}

static void make_family(making *m) {
  add(m, "family");
  switch (treadle_random_below(&m->random, 8)) {
  case 0: add(m, "list"); return;
  case 1:
    add(m, "show");
    add(m, "%s",
        one_in(m, 4) ? fuzz_edge(&m->random) : draw_families[treadle_random_below(&m->random, 18)]);
    return;
  case 2:
  case 3:
  case 4: {
    const char *list = one_in(m, 2) ? "list.tsv" : "list.tsv.gz";
    add(m, "check");
    add(m, "%s", list);
    take_file(m, list, 6);
    add(m, "--model");
    take_file(m, "config.json", 2);
    add(m, "config.json");
    return;
  }
  default: add(m, "check"); add_model(m, "");
  }
}

/* Sizes stay small, or are far too large: what a machine could just make would take its time. */
static void make_make_model(making *m) {
  static const char *const sizes[] = {"1",
                                      "2",
                                      "3",
                                      "64",
                                      "128",
                                      "192",
                                      "65",
                                      "0",
                                      "-1",
                                      "1099511627776",
                                      "9223372036854775807",
                                      "4611686018427387904",
                                      "",
                                      "1e3"};
  static const char *const options[] = {"--layers", "--hidden", "--vocab"};
  static const char *const dtypes[] = {"bf16", "fp16", "fp32", "fp8", "F32"};
  add(m, "make-model");
  add(m, "out");
  if (one_in(m, 2)) {
    take_file(m, "config.json", 3);
    add(m, "--model=config.json");
    if (one_in(m, 5)) add(m, "--scale-down=1");
  } else {
    add(m, "--family=%s", draw_families[treadle_random_below(&m->random, 18)]);
    for (int i = 0; i < 3; i++)
      add(m, "%s=%s", options[i], one_in(m, 4) ? FUZZ_PICK(&m->random, sizes) : i == 1 ? "64" : "2");
    if (one_in(m, 3)) add(m, "--dtype=%s", FUZZ_PICK(&m->random, dtypes));
  }
  if (one_in(m, 3)) add(m, "--experts=packed");
}

/* Words alone. */
static void make_words(making *m) {
  static const char *const words[] = {"plan",   "layout",  "switch",     "convert", "family",    "inspect",
                                      "help",   "doctor",  "make-model", "plam",    "--version", "-h",
                                      "",       "--",      "--json",     "--model", "--ranks",   "1",
                                      "x=y",    "--=",     "\xff\xfe",   "--rank",  "list",      "a\tb",
                                      "--help", "\x1b[2J", "--cap=",     "show"};
  for (int64_t i = 0, many = treadle_random_between(&m->random, 1, 5); i < many; i++)
    add(m, "%s", FUZZ_PICK(&m->random, words));
}

static const struct {
  int weight;
  void (*make)(making *m);
} commands[] = {{30, make_plan},      {18, make_layout},  {4, make_many_ranks}, {10, make_switch},
                {14, make_convert},   {5, make_recorded}, {8, make_inspect},    {6, make_family},
                {3, make_make_model}, {2, make_words}};

void fuzz_run_make(const fuzz_base *base, uint64_t seed, fuzz_run *run) {
  making m = {.random = {treadle_hash_more(11, seed)}, .base = base, .run = run};
  char why[200];
  *run = (fuzz_run){.exit_status = -1};
  m.model = &base->models[treadle_random_below(&m.random, FUZZ_MODELS)];
  json_t *config = json_loads(m.model->config, 0, NULL);
  m.oracle = oracle_model_new(config, why);
  if (!m.oracle) errx(3, "%s", why);
  int64_t which = treadle_random_below(&m.random, 100);
  for (size_t i = 0; i < sizeof commands / sizeof *commands && which >= 0; which -= commands[i++].weight)
    if (which < commands[i].weight) commands[i].make(&m);
  if (one_in(&m, 30)) run->fail_at = treadle_random_between(&m.random, 1, one_in(&m, 2) ? 60 : 3000);
  if (one_in(&m, 60)) { /* a word spoiled, too */
    fuzz_bytes word = {0};
    char *which_word = run->words[treadle_random_below(&m.random, run->count)];
    fuzz_bytes_add(&word, "%s", which_word);
    bool writes = strcmp(which_word, "out") == 0 || strstr(which_word, "timeline"); /* not just anywhere */
    if (!writes) fuzz_spoil_text(&m.random, &word);
    snprintf(which_word, FUZZ_WORD, "%s", word.count ? word.at : "");
    fuzz_bytes_release(&word);
    for (char *at = which_word; *at; at++)
      if (*at == '\n') *at = ' ';
  }
  oracle_model_free(m.oracle);
  json_decref(config);
}
