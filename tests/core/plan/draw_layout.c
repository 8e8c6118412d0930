/* Random layout texts of every set. */
#include "plan/draw.h"

#include "test.h"

#include <inttypes.h>

const char *const draw_kinds[] = {"hf",    "megatron", "vllm",    "sglang",     "fsdp",   "fsdp2", "zero1",
                                  "zero2", "zero3",    "distopt", "placements", "pieces", NULL};

static void add_text(char *text, const char *key, const char *value) {
  size_t used = strlen(text);
  assert_true(used + strlen(key) + strlen(value) + 3 < DRAW_TEXT);
  snprintf(text + used, DRAW_TEXT - used, "%s%s=%s", strchr(text, ':') ? "," : ":", key, value);
}

static void add_number(char *text, const char *key, int64_t value) {
  char digits[24];
  snprintf(digits, sizeof digits, "%" PRId64, value);
  add_text(text, key, digits);
}

static void add_size(char *text, const char *key, int64_t value) {
  if (value != 1) add_number(text, key, value);
}

static void maybe(treadle_random *random, int percent, char *text, const char *key, const char *value) {
  if (draw_chance(random, percent)) add_text(text, key, value);
}

static int64_t draw_pp(treadle_random *random, int64_t ranks, int64_t layers) {
  for (int i = 0; i < 20; i++) {
    int64_t pp = draw_divisor(random, ranks);
    if (pp <= layers && (pp == 1 || draw_chance(random, 60))) return pp;
  }
  return 1;
}

/* Counts of layers, some 0. */
static void add_partition(treadle_random *random, char *text, int64_t layers, int64_t pp) {
  char partition[64] = "\"", one[24];
  int64_t left = layers;
  for (int64_t p = 0; p < pp; p++) {
    int64_t count = p == pp - 1 ? left : treadle_random_between(random, 0, left);
    left -= count;
    snprintf(one, sizeof one, "%s%" PRId64, p ? "," : "", count);
    strcat(partition, one);
  }
  strcat(partition, "\"");
  add_text(text, "partition", partition);
}

/* ---- Megatron ---- */

/* A layout string: E first, L last, MTP layers before it or in a stage of their own. */
static void add_layout_string(treadle_random *random, char *text, const oracle_model *model,
                              int64_t stages) {
  char string[256] = "E", one[8];
  int64_t left = model->L;
  int64_t mtp_stage = stages > 1 && draw_chance(random, 30) ? stages - 2 : stages - 1;
  for (int64_t s = 0; s < stages; s++) {
    bool last = s == (model->mtp ? mtp_stage : stages - 1);
    int64_t count = last ? left : treadle_random_between(random, 0, left);
    left -= count;
    if (count > 0) {
      snprintf(one, sizeof one, count > 1 ? "t*%d" : "t", (int)count);
      strcat(string, one);
    }
    for (int64_t m = 0; m < model->mtp && s == mtp_stage; m++) strcat(string, "m");
    strcat(string, s == stages - 1 ? "L" : "|");
  }
  add_text(text, "layout", string);
}

static void add_stages(treadle_random *random, char *text, const oracle_model *model, int64_t pp) {
  int64_t way = treadle_random_below(random, 6);
  if (pp == 1) return;
  if (way == 0) {
    add_layout_string(random, text, model, pp * treadle_random_between(random, 1, 2));
  } else if (way == 1) {
    add_text(text, "embedding_split", "on");
    maybe(random, 50, text, "loss_split", "on");
  } else if (way == 2) {
    add_number(text, draw_chance(random, 50) ? "first" : "last",
               treadle_random_between(random, 1, model->L));
  } else if (way == 3 && model->L % (pp * 2) == 0) {
    add_number(text, "vpp", 2);
  }
}

static void draw_megatron(treadle_random *random, const oracle_model *model, int64_t ranks, char *text) {
  static const char *const orders[] = {"tp-cp-ep-pp-dp", "cp-tp-ep-dp-pp", "tp-ep-dp-pp-cp",
                                       "ep-dp-cp-tp-pp"};
  static const char *const forms[] = {"grouped", "sequential", "stacked"};
  int64_t pp = draw_pp(random, ranks, model->L + 2), tp = draw_divisor(random, ranks / pp);
  int64_t cp = draw_chance(random, 20) ? draw_divisor(random, ranks / pp / tp) : 1, etp = tp;
  add_size(text, "tp", tp);
  add_size(text, "pp", pp);
  add_size(text, "cp", cp);
  if (draw_chance(random, 10)) add_number(text, "dp", ranks / pp / tp / cp);
  if (model->E) {
    if (draw_chance(random, 60) || model->packed) {
      etp = model->packed || draw_chance(random, 50) ? 1 : draw_divisor(random, ranks / pp);
      add_number(text, "etp", etp);
    }
    add_size(text, "ep", draw_divisor(random, ranks / pp / etp));
    if (draw_chance(random, 50)) add_text(text, "experts", forms[treadle_random_below(random, 3)]);
  }
  add_stages(random, text, model, pp);
  if (draw_chance(random, 25)) add_text(text, "order", orders[treadle_random_below(random, 4)]);
  if (draw_chance(random, 40))
    add_number(text, "vocab_divisible_by", treadle_random_between(random, 1, 40));
  else if (draw_chance(random, 20))
    add_number(text, "padded_vocab_size",
               (model->V + tp - 1) / tp * tp + tp * treadle_random_below(random, 3));
  bool optimizer =
      strncmp(text, "distopt", 7) == 0; /* norms of the local spec have a buffer of their own there */
  maybe(random, optimizer ? 0 : 25, text, "spec", "local");
  maybe(random, model->q_lora ? 30 : 0, text, "mla_down_proj_fusion", "on");
}

/* ---- Engines ---- */

static char map_folder[32]; /* removed when the program ends */

static void remove_map(void) { test_remove(map_folder); }

static const char *map_path(void) {
  static char path[80];
  if (!map_folder[0]) {
    snprintf(map_folder, sizeof map_folder, "%.31s", test_folder());
    atexit(remove_map);
    snprintf(path, sizeof path, "%s/map.json", map_folder);
  }
  return path;
}

/* A map of experts: every expert somewhere, the rest anywhere; of each layer or of all. */
static void add_map(treadle_random *random, char *text, const oracle_model *model, int64_t slots) {
  const char *path = map_path();
  int64_t layers = draw_chance(random, 30) ? 1 : model->L + (draw_chance(random, 30) ? 0 : model->mtp);
  json_t *lists = json_array();
  for (int64_t l = 0; l < layers; l++) {
    json_t *list = json_array();
    for (int64_t s = 0; s < slots; s++)
      json_array_append_new(list, json_integer(s < model->E ? s : treadle_random_below(random, model->E)));
    for (int64_t s = slots - 1; s > 0; s--) {
      size_t other = (size_t)treadle_random_below(random, s + 1);
      json_int_t a = json_integer_value(json_array_get(list, (size_t)s)),
                 b = json_integer_value(json_array_get(list, other));
      json_array_set_new(list, (size_t)s, json_integer(b));
      json_array_set_new(list, other, json_integer(a));
    }
    json_array_append_new(lists, list);
  }
  json_t *root =
      draw_chance(random, 50) ? json_pack("{s:O}", "physical_to_logical_map", lists) : json_incref(lists);
  assert_int_equal(json_dump_file(root, path, 0), 0);
  json_decref(root);
  json_decref(lists);
  char value[128];
  snprintf(value, sizeof value, "@%s", path);
  add_text(text, "map", value);
}

/* Redundant experts up to a number that ep divides, and a map of all. */
static void add_redundant(treadle_random *random, char *text, const oracle_model *model, int64_t ep) {
  int64_t slots = (model->E + ep - 1) / ep * ep + ep * treadle_random_below(random, 3);
  if (slots > model->E || draw_chance(random, 20)) add_number(text, "redundant", slots - model->E);
  if (draw_chance(random, 50)) add_map(random, text, model, slots);
}

static void draw_vllm(treadle_random *random, const oracle_model *model, int64_t ranks, char *text) {
  int64_t pp = draw_pp(random, ranks, model->L + 2), tp = draw_divisor(random, ranks / pp);
  int64_t pcp = draw_chance(random, 20) ? draw_divisor(random, ranks / pp / tp) : 1;
  int64_t dp = draw_chance(random, 40) ? draw_divisor(random, ranks / pp / tp / pcp) : 1;
  add_size(text, "tp", tp);
  add_size(text, "pp", pp);
  add_size(text, "pcp", pcp);
  add_size(text, "dp", dp);
  if (model->E && draw_chance(random, 60)) {
    add_text(text, "ep", "on");
    if (draw_chance(random, 40)) add_redundant(random, text, model, tp * pcp * dp);
    maybe(random, 30, text, "placement", "round_robin");
  }
  maybe(random, 20, text, "names", "old");
  if (draw_chance(random, 25) && pp > 1 && pp <= 4) add_partition(random, text, model->L, pp);
}

static void draw_sglang(treadle_random *random, const oracle_model *model, int64_t ranks, char *text) {
  int64_t pp = draw_chance(random, model->gated ? 90 : 40) ? 1 : draw_pp(random, ranks, model->L);
  int64_t tp = draw_divisor(random, ranks / pp),
          attn_dp = draw_chance(random, 40) ? draw_divisor(random, tp) : 1;
  int64_t attn_cp = draw_chance(random, 25) ? draw_divisor(random, tp / attn_dp) : 1, ep = 1;
  add_size(text, "tp", tp);
  add_size(text, "pp", pp);
  add_size(text, "attn_dp", attn_dp);
  add_size(text, "attn_cp", attn_cp);
  maybe(random, 20, text, "dp_lm_head", "on");
  maybe(random, 15, text, "names", "old");
  if (model->E) {
    bool deepep = draw_chance(random, 15);
    if (deepep) add_text(text, "a2a", "deepep");
    if (deepep) ep = tp;
    if (!deepep && !model->packed && draw_chance(random, 50))
      add_size(text, "ep", ep = draw_divisor(random, tp));
    if (ep * attn_cp == tp && draw_chance(random, 60)) add_size(text, "moe_dp", attn_cp);
    maybe(random, model->shared == 1 && !deepep ? 30 : 0, text, "shared_fusion", "on");
    maybe(random, 20, text, "moe_dense_tp", "1");
    if (draw_chance(random, model->packed ? 60 : model->block[0] ? 0 : 25))
      add_text(text, "moe", draw_chance(random, 50) ? "triton" : "triton_kernels");
    if (draw_chance(random, 30)) add_redundant(random, text, model, ep);
  }
  if (draw_chance(random, 25) && pp > 1 && pp <= 4) add_partition(random, text, model->L, pp);
}

/* ---- Flat ---- */

static void draw_flat(treadle_random *random, const oracle_model *model, int64_t ranks, char *text) {
  bool may_cut = !model->E && !model->mla && !model->gated; /* the oracle has no plan for others */
  int64_t tp = may_cut && draw_chance(random, 25) ? draw_divisor(random, ranks) : 1;
  bool is_fsdp = strcmp(text, "fsdp") == 0, may_replicate = strncmp(text, "fsdp", 4) == 0;
  add_size(text, "tp", tp);
  if (may_replicate && draw_chance(random, 25))
    add_size(text, "replicate", draw_divisor(random, ranks / tp));
  if (is_fsdp) {
    maybe(random, 40, text, "orig_params", "on");
    maybe(random, 30, text, "wrap", "none");
  }
}

bool draw_fits(const oracle_model *model, const char *set) {
  return model->mtp == 0 || (strncmp(set, "fsdp", 4) != 0 && strncmp(set, "zero", 4) != 0);
}

/* ---- Some ranks alone ---- */

enum { MOST_RANKS = 64 };

/* Draws which of the ranks hold the layout, as on= says it: runs in any order, some of them in pieces. */
static int64_t draw_owners(treadle_random *random, int64_t ranks, char *on, size_t room) {
  char runs[MOST_RANKS][48];
  bool in[MOST_RANKS + 1] = {false};
  int count = 0;
  int64_t held = 0;
  size_t used = 0;
  int percent = (int)treadle_random_between(random, 20, 90);
  assert_true(ranks <= MOST_RANKS);
  for (int64_t r = 0; r < ranks; r++) held += in[r] = draw_chance(random, percent);
  if (held == 0) held = in[treadle_random_below(random, ranks)] = true;
  for (int64_t r = 0; r < ranks; r++) {
    if (!in[r]) continue;
    int64_t last = r;
    while (in[last + 1] && draw_chance(random, 85)) last++;
    if (last > r)
      snprintf(runs[count++], sizeof runs[0], "%" PRId64 "-%" PRId64, r, last);
    else
      snprintf(runs[count++], sizeof runs[0], "%" PRId64, r);
    r = last;
  }
  int first = (int)treadle_random_below(random, count);
  on[0] = 0;
  for (int i = 0; i < count; i++)
    used += (size_t)snprintf(on + used, room - used, "%s%s", i ? "," : "", runs[(first + i) % count]);
  assert_true(used < room);
  return held;
}

/* ---- The door ---- */

/* Of a layout on all of `ranks` ranks. */
static void draw_whole(treadle_random *random, const oracle_model *model, const char *set, int64_t ranks,
                       bool may_root, char text[DRAW_TEXT]) {
  static const char *const dtypes[] = {"fp32", "bf16", "fp16", "fp8"};
  snprintf(text, DRAW_TEXT, "%s", set);
  if (strcmp(set, "hf") == 0) {
    if (may_root && draw_chance(random, 50)) add_number(text, "root", treadle_random_below(random, ranks));
  } else if (strcmp(set, "megatron") == 0) {
    draw_megatron(random, model, ranks, text);
  } else if (strcmp(set, "distopt") == 0) {
    draw_megatron(random, model, ranks, text);
    if (draw_chance(random, 50)) add_number(text, "bucket_size", treadle_random_between(random, 1, 4000));
    maybe(random, 30, text, "pad", "on");
  } else if (strcmp(set, "vllm") == 0) {
    draw_vllm(random, model, ranks, text);
  } else if (strcmp(set, "sglang") == 0) {
    draw_sglang(random, model, ranks, text);
  } else {
    draw_flat(random, model, ranks, text);
  }
  if (draw_chance(random, 20))
    add_text(text, "dtype", dtypes[treadle_random_below(random, model->block[0] ? 4 : 3)]);
}

void draw_layout(treadle_random *random, const oracle_model *model, const char *set, int64_t ranks,
                 char text[DRAW_TEXT]) {
  char on[3 * MOST_RANKS], quoted[3 * MOST_RANKS + 2];
  bool some = ranks > 1 && ranks <= MOST_RANKS && draw_chance(random, 25);
  int64_t held = some ? draw_owners(random, ranks, on, sizeof on) : ranks;
  draw_whole(random, model, set, held, held == ranks, text);
  if (!some) return;
  snprintf(quoted, sizeof quoted, strchr(on, ',') ? "\"%s\"" : "%s", on);
  add_text(text, "on", quoted);
}
