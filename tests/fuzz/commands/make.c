/* Making a run from a seed. */
#include "commands/making.h"

#include "cli/made.h"

#include <err.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fuzz_add(fuzz_making *m, const char *format, ...) {
  va_list values;
  if (m->run->count == FUZZ_WORDS) return;
  va_start(values, format);
  vsnprintf(m->run->words[m->run->count++], FUZZ_WORD, format, values);
  va_end(values);
}

static void base_path(const fuzz_making *m, const char *name, char path[FUZZ_PATH]) {
  snprintf(path, FUZZ_PATH, "%s/%s/%s", m->base->path, m->model->folder, name);
}

/* ---- Files ------------------------------------------------------------------------------------- */

void fuzz_take_folder(fuzz_making *m, const char *name, const char *as, int64_t spoiled_one_in) {
  char path[FUZZ_PATH];
  base_path(m, name, path);
  fuzz_folder_link(path, as);
  while (spoiled_one_in && fuzz_draw(m, spoiled_one_in)) fuzz_folder_spoil(&m->random, as);
}

void fuzz_take_file(fuzz_making *m, const char *name, int64_t kept_one_in) {
  char path[FUZZ_PATH];
  base_path(m, name, path);
  fuzz_file_link(path, name);
  if (!fuzz_draw(m, kept_one_in))
    for (int64_t times = fuzz_draw(m, 3) ? 3 : 1; times > 0; times--) fuzz_folder_spoil(&m->random, name);
}

/* A real model's config, which is large: scaled down most of the time. */
static const char *real_config(fuzz_making *m) {
  const char *from = m->base->configs[treadle_random_below(&m->random, m->base->config_count)];
  fuzz_file_link(from, "real.json");
  if (fuzz_draw(m, 2)) fuzz_folder_spoil(&m->random, "real.json");
  return "real.json";
}

/* The model for commands that plan: a checkpoint or a config, spoiled at times. */
static void add_model(fuzz_making *m, const char *option) {
  const char *path = "config.json";
  bool real = m->base->config_count && fuzz_draw(m, 40);
  if (real)
    path = real_config(m);
  else if (!fuzz_exists("in") && fuzz_draw(m, 4))
    fuzz_take_folder(m, "in", path = "in", 2);
  else
    fuzz_take_file(m, "config.json", 3);
  if (*option) fuzz_add(m, "%s", option);
  fuzz_add(m, "%s", path);
  if (real || fuzz_draw(m, 40)) {
    fuzz_add(m, "--scale-down");
    if (fuzz_draw(m, 8))
      fuzz_add(m, "%s", fuzz_edge(&m->random));
    else
      fuzz_add(m, "%d", fuzz_draw(m, 2) ? 1 : 5);
  }
  if (!fuzz_draw(m, 30)) return;
  fuzz_add(m, "--families");
  fuzz_add(m, "families");
  char families[FUZZ_PATH];
  snprintf(families, sizeof families, "%s/families", m->base->path);
  fuzz_folder_link(families, "families");
  for (int i = 0; i < 6; i++) fuzz_folder_spoil(&m->random, "families");
}

static void add_layout(fuzz_making *m, const char *option, int64_t ranks) {
  fuzz_add(m, "%s", option);
  fuzz_layout_make(&m->random, m->base, m->model, m->oracle, ranks, m->run->words[m->run->count++]);
}

/* ---- Numbers ----------------------------------------------------------------------------------- */

static int64_t draw_ranks(fuzz_making *m) {
  static const int64_t few[] = {1, 2, 3, 4, 4, 6, 8, 8, 12, 16};
  static const int64_t many[] = {32, 64, 96, 128};
  return fuzz_draw(m, 20) ? FUZZ_PICK(&m->random, many) : FUZZ_PICK(&m->random, few);
}

static void add_number(fuzz_making *m, const char *option, int64_t number, int64_t edge_one_in) {
  fuzz_add(m, "%s", option);
  if (fuzz_draw(m, edge_one_in))
    fuzz_add(m, "%s", fuzz_edge(&m->random));
  else
    fuzz_add(m, "%lld", (long long)number);
}

static void add_size(fuzz_making *m, const char *option, int64_t often) {
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
  if (!fuzz_draw(m, often)) return;
  fuzz_add(m, "%s", option);
  fuzz_add(m, "%s", fuzz_draw(m, 3) ? fuzz_edge(&m->random) : FUZZ_PICK(&m->random, sizes));
}

static void add_switch_options(fuzz_making *m) {
  if (fuzz_draw(m, 2)) {
    fuzz_add(m, "--page-size");
    fuzz_add(m, "4KiB");
  } else {
    add_size(m, "--page-size", 3);
  }
  add_size(m, "--cap", 5);
  add_size(m, "--budget", 6);
  if (fuzz_draw(m, 3))
    fuzz_add(m, "--alias=%s", fuzz_draw(m, 6) ? "perhaps" : fuzz_draw(m, 3) ? "on" : "off");
}

static void add_rank_map(fuzz_making *m) {
  static const char *const maps[] = {"contiguous", "strided", "strided", "best", "best", "77"};
  if (fuzz_draw(m, 4)) fuzz_add(m, "--rank-map=%s", FUZZ_PICK(&m->random, maps));
}

/* ---- Commands ---------------------------------------------------------------------------------- */

static void make_plan(fuzz_making *m) {
  int64_t ranks = draw_ranks(m);
  fuzz_add(m, "plan");
  add_model(m, "--model");
  add_layout(m, "--from", ranks);
  add_layout(m, "--to", ranks);
  add_number(m, "--ranks", ranks, 40);
  if (fuzz_draw(m, 3)) add_number(m, "--rank", treadle_random_below(&m->random, ranks), 20);
  add_rank_map(m);
  add_switch_options(m);
  if (fuzz_draw(m, 10)) fuzz_add(m, "--by-rank");
  if (fuzz_draw(m, 2)) fuzz_add(m, "--json");
  if (fuzz_draw(m, 4)) add_number(m, "--nodes", treadle_random_between(&m->random, 1, ranks), 20);
}

static void make_layout(fuzz_making *m) {
  int64_t ranks = draw_ranks(m);
  fuzz_add(m, "layout");
  add_model(m, "--model");
  add_layout(m, "--layout", ranks);
  add_number(m, "--ranks", ranks, 30);
  add_number(m, "--rank", treadle_random_below(&m->random, ranks), 20);
  if (fuzz_draw(m, 6)) add_layout(m, "--train", ranks);
  add_rank_map(m);
  if (fuzz_draw(m, 2)) fuzz_add(m, "--runs");
  if (fuzz_draw(m, 2)) fuzz_add(m, "--json");
}

/* Layouts over many ranks, of which one is looked at: figures may be of no rank that could be. */
static void make_many_ranks(fuzz_making *m) {
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
  bool plan = fuzz_draw(m, 2);
  fuzz_add(m, "%s", plan ? "plan" : "layout");
  add_model(m, "--model");
  for (int i = 0; i <= plan; i++) {
    const char *text = FUZZ_PICK(&m->random, texts);
    fuzz_add(m, "%s", plan ? (i ? "--to" : "--from") : "--layout");
    if (fuzz_draw(m, 2) || strncmp(text, "hf", 2) == 0)
      fuzz_add(m, "%s", text);
    else
      fuzz_add(m, "%s%sdp=%s", text, strchr(text, ':') ? "," : ":", count);
  }
  fuzz_add(m, "--ranks");
  fuzz_add(m, "%s", count);
  fuzz_add(m, "--rank");
  fuzz_add(m, "%s", fuzz_draw(m, 3) ? fuzz_edge(&m->random) : "7");
  if (fuzz_draw(m, 2)) fuzz_add(m, "--json");
  if (fuzz_draw(m, 3)) fuzz_add(m, "--page-size=4KiB");
}

static void make_switch(fuzz_making *m) {
  static const char *const offloads[] = {"params",        "params,grads", "grads=keep",
                                         "optimizer",     "none",         "params,optimizer,grads=keep",
                                         "params,params", "grad,"};
  static const char *const faults[] = {
      "enomem:rank=0,wave=1",     "enomem:rank=0,phase=commit", "corrupt:rank=0,wave=1",
      "enomem:rank=0,phase=bind", "corrupt:rank=1,wave=0",      "enomem:rank=0,wave=9223372036854775807",
      "kill:rank=-1,wave=1",      "slow:rank=0,phase=",         "cancel:rank=0,wave=1"};
  fuzz_add(m, "switch");
  add_model(m, "--model");
  add_layout(m, "--train", 1);
  add_layout(m, "--infer", 1);
  add_switch_options(m);
  add_rank_map(m);
  add_number(m, "--cycles", treadle_random_below(&m->random, 3), 1000000);
  if (fuzz_draw(m, 2)) fuzz_add(m, fuzz_draw(m, 12) ? "--check=prove" : "--check");
  if (fuzz_draw(m, 3)) fuzz_add(m, "--offload=%s", FUZZ_PICK(&m->random, offloads));
  if (fuzz_draw(m, 3)) fuzz_add(m, "--keep=%s", fuzz_draw(m, 3) ? "infer" : "host");
  if (fuzz_draw(m, 4)) fuzz_add(m, "--forward");
  if (fuzz_draw(m, 10)) fuzz_add(m, "--timeline=%s", fuzz_draw(m, 6) ? "in" : "picture.svg");
  if (fuzz_draw(m, 60) && symlink("elsewhere", "picture.svg")) warn("picture.svg");
  if (fuzz_draw(m, 10)) fuzz_add(m, "--fault=%s", FUZZ_PICK(&m->random, faults));
  if (fuzz_draw(m, 2)) fuzz_add(m, "--json");
}

static void add_out(fuzz_making *m) {
  fuzz_add(m, "in");
  fuzz_add(m, "out");
  if (fuzz_draw(m, 30) && !fuzz_exists("out")) fuzz_folder_make("out");
  if (fuzz_draw(m, 3)) fuzz_add(m, "--json");
  if (fuzz_draw(m, 8)) fuzz_add(m, "--trust");
  if (fuzz_draw(m, 30)) m->run->limit = treadle_random_between(&m->random, 1, 20000);
}

static void make_convert(fuzz_making *m) {
  char to[FUZZ_WORD];
  fuzz_add(m, "convert");
  fuzz_add(m, "--from");
  if (*m->model->stopped_to && fuzz_draw(m, 3)) { /* go on where one stopped */
    fuzz_add(m, "hf");
    fuzz_add(m, "--to");
    fuzz_add(m, "%s", m->model->stopped_to);
    fuzz_take_folder(m, "in", "in", 6);
    fuzz_take_folder(m, "stopped", "out", 2);
  } else if (*m->model->megatron && fuzz_draw(m, 2)) { /* out of Megatron's files */
    fuzz_bytes from = {0};
    fuzz_bytes_add(&from, "%s", m->model->megatron);
    if (fuzz_draw(m, 10)) fuzz_spoil_text(&m->random, &from);
    fuzz_add(m, "%s", from.at);
    fuzz_bytes_release(&from);
    fuzz_add(m, "--to");
    fuzz_add(m, "%s", fuzz_draw(m, 4) ? "hf:dtype=fp32" : "hf");
    fuzz_take_folder(m, "megatron", "in", 2);
    if (fuzz_draw(m, 4)) {
      fuzz_folder_remove("in/hf");
      add_model(m, "--model");
    }
  } else {
    fuzz_add(m, "%s", fuzz_draw(m, 8) ? "hf:dtype=bf16" : "hf");
    fuzz_add(m, "--to");
    fuzz_layout_make(&m->random, m->base, m->model, m->oracle, fuzz_draw(m, 2) ? 2 : 4, to);
    fuzz_add(m, "%s", fuzz_draw(m, 3) ? "hf" : fuzz_draw(m, 2) ? "megatron:tp=1" : to);
    fuzz_take_folder(m, "in", "in", 2);
  }
  add_out(m);
}

static void make_recorded(fuzz_making *m) {
  const char *name = FUZZ_PICK(&m->random, fuzz_recorded);
  char path[FUZZ_PATH];
  fuzz_add(m, "convert");
  fuzz_add(m, "--from");
  fuzz_add(m, fuzz_draw(m, 6) ? "torch_dist:dtype=fp32" : "torch_dist");
  fuzz_add(m, "--to");
  fuzz_add(m, fuzz_draw(m, 3) ? "megatron:tp=2" : "hf");
  snprintf(path, sizeof path, "%s/recorded/%s.json", m->base->path, name);
  fuzz_file_link(path, "config.json");
  if (fuzz_draw(m, 6)) fuzz_folder_spoil(&m->random, "config.json");
  snprintf(path, sizeof path, "%s/recorded/%s", m->base->path, name);
  fuzz_folder_link(path, "in");
  if (!fuzz_draw(m, 20)) fuzz_folder_spoil(&m->random, fuzz_draw(m, 2) ? "in/.metadata" : "in");
  fuzz_add(m, "--model=config.json");
  add_out(m);
}

static void make_inspect(fuzz_making *m) {
  fuzz_add(m, "inspect");
  if (fuzz_draw(m, 2))
    add_model(m, "");
  else {
    fuzz_take_folder(m, "in", "in", 1000000);
    fuzz_folder_spoil(&m->random, "in");
    fuzz_add(m, "in");
  }
  if (fuzz_draw(m, 2)) fuzz_add(m, "--json");
}

static void make_family(fuzz_making *m) {
  fuzz_add(m, "family");
  switch (treadle_random_below(&m->random, 8)) {
  case 0: fuzz_add(m, "list"); return;
  case 1:
    fuzz_add(m, "show");
    fuzz_add(m, "%s",
             fuzz_draw(m, 4) ? fuzz_edge(&m->random) : draw_families[treadle_random_below(&m->random, 18)]);
    return;
  case 2:
  case 3:
  case 4: {
    const char *list = fuzz_draw(m, 2) ? "list.tsv" : "list.tsv.gz";
    fuzz_add(m, "check");
    fuzz_add(m, "%s", list);
    fuzz_take_file(m, list, 6);
    fuzz_add(m, "--model");
    fuzz_take_file(m, "config.json", 2);
    fuzz_add(m, "config.json");
    return;
  }
  default: fuzz_add(m, "check"); add_model(m, "");
  }
}

/* Sizes stay small, or are far too large: what a machine could just make would take its time. */
static void make_make_model(fuzz_making *m) {
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
  fuzz_add(m, "make-model");
  fuzz_add(m, "out");
  if (fuzz_draw(m, 2)) {
    fuzz_take_file(m, "config.json", 3);
    fuzz_add(m, "--model=config.json");
    if (fuzz_draw(m, 5)) fuzz_add(m, "--scale-down=1");
  } else {
    fuzz_add(m, "--family=%s", draw_families[treadle_random_below(&m->random, 18)]);
    for (int i = 0; i < 3; i++)
      fuzz_add(m, "%s=%s", options[i],
               fuzz_draw(m, 4) ? FUZZ_PICK(&m->random, sizes)
               : i == 1        ? "64"
                               : "2");
    if (fuzz_draw(m, 3)) fuzz_add(m, "--dtype=%s", FUZZ_PICK(&m->random, dtypes));
  }
  if (fuzz_draw(m, 3)) fuzz_add(m, "--experts=packed");
}

/* Words alone. */
static void make_words(fuzz_making *m) {
  static const char *const words[] = {"plan",   "layout",  "switch",     "convert", "family",    "inspect",
                                      "help",   "doctor",  "make-model", "plam",    "--version", "-h",
                                      "",       "--",      "--json",     "--model", "--ranks",   "1",
                                      "x=y",    "--=",     "\xff\xfe",   "--rank",  "list",      "a\tb",
                                      "--help", "\x1b[2J", "--cap=",     "show"};
  for (int64_t i = 0, many = treadle_random_between(&m->random, 1, 5); i < many; i++)
    fuzz_add(m, "%s", FUZZ_PICK(&m->random, words));
}

static const struct {
  int weight;
  void (*make)(fuzz_making *m);
} commands[] = {
    {15, make_plan},         {9, make_layout},    {3, make_many_ranks},    {8, make_switch},
    {9, make_convert},       {4, make_recorded},  {6, make_inspect},       {5, make_family},
    {3, make_make_model},    {2, make_words},     {8, fuzz_make_generate}, {6, fuzz_make_score},
    {5, fuzz_make_tokenize}, {5, fuzz_make_grad}, {4, fuzz_make_sft},      {1, fuzz_make_data},
    {3, fuzz_make_train},    {2, fuzz_make_eval}, {1, fuzz_make_report},   {1, fuzz_make_grad_grpo}};

void fuzz_run_make(const fuzz_base *base, uint64_t seed, fuzz_run *run) {
  fuzz_making m = {.random = {treadle_hash_more(11, seed)}, .base = base, .run = run};
  char why[200];
  *run = (fuzz_run){.exit_status = -1};
  m.model = &base->models[treadle_random_below(&m.random, FUZZ_MODELS)];
  json_t *config = json_loads(m.model->config, 0, NULL);
  m.oracle = oracle_model_new(config, why);
  if (!m.oracle) errx(3, "%s", why);
  int64_t which = treadle_random_below(&m.random, 100);
  for (size_t i = 0; i < sizeof commands / sizeof *commands && which >= 0; which -= commands[i++].weight)
    if (which < commands[i].weight) commands[i].make(&m);
  if (fuzz_draw(&m, 30)) run->fail_at = treadle_random_between(&m.random, 1, fuzz_draw(&m, 2) ? 60 : 3000);
  if (fuzz_draw(&m, 60)) { /* a word spoiled, too */
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
