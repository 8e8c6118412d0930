/* The command as a process, without MPI: help, refusals, exit statuses, and the JSON that programs rely on.
 * ctest: timeout=600 */
#include "cli/command.h"

#include "layout/layout_types.h"
#include "test.h"

#include <math.h>

static const char *model; /* a small checkpoint; made at first */

static int make_model(void **state) {
  (void)state;
  model = command_model("--layers 3 --hidden 256 --vocab 1000 --dtype fp32");
  return 0;
}

static int64_t integer(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_integer(value)) fail_msg("%s is not an integer", key);
  return json_integer_value(value);
}

/* An object has these keys and no others. */
static void check_keys(const json_t *object, const char *const *keys) {
  size_t count = 0;
  for (; keys[count]; count++)
    if (!json_object_get(object, keys[count])) fail_msg("%s is missing", keys[count]);
  assert_int_equal(json_object_size(object), count);
}

/* ---- Help and refusals ------------------------------------------------------------------------ */

static void help_is_there(void **state) {
  (void)state;
  static const char *const lines[] = {"--help",      "help plan",       "plan --help",
                                      "help switch", "switch --help",   "family -h",
                                      "--version",   "help make-model", "help help"};
  for (size_t i = 0; i < TEST_COUNT(lines); i++) {
    command_result result = command_run("%s", lines[i]);
    command_expect(&result, 0, "", 0);
    assert_non_null(strstr(result.out, "treadle"));
    command_release(&result);
  }
}

static void what_is_wrong_is_refused(void **state) {
  (void)state;
  static const struct {
    const char *arguments, *words; /* %M is the model */
  } cases[] = {
      {"", "usage"},
      {"plann", "did you mean 'plan'"},
      {"help swich", "did you mean 'switch'"},
      {"xyzzy", "there is no command"},
      {"plan --modle x", "did you mean --model"},
      {"plan --model", "needs a value"},
      {"plan --model %M --from hf --to hf", "--ranks N is missing"},
      {"plan --model %M --model %M", "given twice"},
      {"plan --json=yes", "takes no value"},
      {"plan -j", "two dashes"},
      {"plan word", "one word too many"},
      {"convert --from hf --to megatron %M ''", "an argument is empty"},
      {"plan --model %M --from hf --to hf --ranks 0", "--ranks"},
      {"plan --model %M --from hf --to hf --ranks 1x", "--ranks"},
      {"plan --model %M --from hf --to hf --ranks 99999999999999999999", "--ranks"},
      {"plan --model %M --from hf --to hf --ranks 2 --rank 2", "rank 2 of 2"},
      {"plan --model %M --from hf --to hf --ranks 12 --nodes 5",
       "12 ranks cannot be divided evenly among 5 nodes"},
      {"plan --model %M --from megatron:tp=3 --to hf --ranks 2", "not divisible"},
      {"plan --model %M --from megatorn --to hf --ranks 2", "nearest: megatron"},
      {"plan --model %M --from megatron:pt=2 --to hf --ranks 2", "pt is not a key"},
      {"plan --model %M --from megatron:tp=2 --to hf --ranks 2 --cap 1", "below the smallest"},
      {"plan --model %M --from megatron:tp=2 --to hf --ranks 2 --rank 0 --cap 1", "below the smallest"},
      {"plan --model %M --from hf --to hf --ranks 1 --page-size 12KiB", "power of two"},
      {"plan --model %M --from hf --to hf --ranks 1 --page-size 2KiB", "power of two"},
      {"plan --model %M --from hf --to hf --ranks 1 --cap 1MB", "--cap"},
      {"plan --model %M --from hf --to hf --ranks 1 --rank-map strode", "did you mean strided"},
      {"plan --model %M --from hf --to hf --ranks 1 --alias yes", "--alias has no value 'yes'"},
      {"plan --model %M/none --from hf --to hf --ranks 1", "no such file"},
      {"plan --model %M/model.safetensors --from hf --to hf --ranks 1", "model.safetensors"},
      {"plan --model %M --families /nonexistent --from hf --to hf --ranks 1", "/nonexistent"},
      {"layout --model %M --layout hf --ranks 2 --rank 2", "rank 2 of 2"},
      {"layout --model %M --layout vllm:tp=2 --ranks 2 --rank 0 --rank-map strided", "--train"},
      {"layout --model %M --layout hf --ranks 2", "--rank R is missing"},
      {"family", "list | show NAME"},
      {"family show", "is none of"},
      {"family chek x", "the nearest is check"},
      {"family show lama", "did you mean 'llama'"},
      {"family check /nonexistent", "/nonexistent"},
      {"inspect", "config.json"},
      {"inspect /nonexistent", "/nonexistent"},
      {"make-model %M", "already"},
      {"make-model %M-2 --hidden 100", "multiple of 64"},
      {"make-model %M-2 --dtype int8", "--dtype"},
      {"make-model %M-2 --family lama", "llama"},
  };
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    char arguments[512] = "";
    for (const char *at = cases[i].arguments; *at; at++) {
      size_t length = strlen(arguments);
      if (strncmp(at, "%M", 2) == 0)
        snprintf(arguments + length, sizeof arguments - length, "%s", model), at++;
      else
        snprintf(arguments + length, sizeof arguments - length, "%c", *at);
    }
    command_result result = command_run("%s", arguments);
    command_expect(&result, 2, cases[i].words, 1);
    assert_string_equal(result.out, "");
    command_release(&result);
  }
}

/* ---- plan ------------------------------------------------------------------------------------- */

static const char *const plan_keys[] = {"ranks",
                                        "model_bytes",
                                        "moved_bytes",
                                        "lower_bound_bytes",
                                        "ratio",
                                        "resident_bytes",
                                        "infer_bytes",
                                        "copied_bytes",
                                        "aliased_bytes",
                                        "waves",
                                        "cap",
                                        "cap_min",
                                        "peak_bytes",
                                        "peak_bound_bytes",
                                        "inbound_max_over_model",
                                        "inbound_mean_over_model",
                                        "link_load_max_over_mean",
                                        "plan_seconds",
                                        "plan_cpu_seconds",
                                        "plan_peak_rss_bytes",
                                        "rank_map",
                                        "by_rank",
                                        NULL};
static const char *const row_keys[] = {"rank",          "train_bytes",       "infer_bytes",
                                       "moved_bytes",   "lower_bound_bytes", "copied_bytes",
                                       "aliased_bytes", "peak_bytes",        NULL};

static json_t *plan(int exit_status, const char *rest) {
  char arguments[512];
  snprintf(arguments, sizeof arguments, "plan --model %s %s", model, rest);
  return command_json(0, exit_status, arguments);
}

static void plan_adds_up(void **state) {
  (void)state;
  json_t *root = plan(0, "--from megatron:tp=2,pp=3 --to vllm:tp=2 --ranks 12 --page-size 64KiB"), *row;
  check_keys(root, plan_keys);
  assert_int_equal(integer(root, "ranks"), 12);
  assert_int_equal(integer(root, "moved_bytes"), integer(root, "lower_bound_bytes"));
  assert_true(command_number(root, "ratio") == 1);
  assert_int_equal(integer(root, "cap"), 256 << 20);
  assert_string_equal(json_string_value(json_object_get(root, "rank_map")), "contiguous");
  assert_true(command_number(root, "plan_seconds") > 0);
  assert_true(integer(root, "peak_bytes") <= integer(root, "peak_bound_bytes"));
  assert_true(command_number(root, "link_load_max_over_mean") >= 1);

  int64_t moved = 0, largest = 0;
  size_t i;
  json_array_foreach(json_object_get(root, "by_rank"), i, row) {
    check_keys(row, row_keys);
    assert_int_equal(integer(row, "rank"), i);
    assert_int_equal(integer(row, "train_bytes") % (64 << 10), 0);
    moved += integer(row, "moved_bytes");
    if (integer(row, "moved_bytes") > largest) largest = integer(row, "moved_bytes");
  }
  assert_int_equal(i, 12);
  assert_int_equal(moved, integer(root, "moved_bytes"));
  double model_bytes = (double)integer(root, "model_bytes");
  assert_true(fabs(command_number(root, "inbound_max_over_model") - (double)largest / model_bytes) < 1e-6);
  assert_true(fabs(command_number(root, "inbound_mean_over_model") - (double)moved / 12 / model_bytes) <
              1e-6);
  json_decref(root);
}

/* What is aliased is not copied, and the sums are those of the rows. */
static void plan_aliases(void **state) {
  (void)state;
  const char *pair = "--from megatron:tp=2,pp=3 --to vllm:tp=2 --ranks 12 --page-size 4KiB --alias";
  char arguments[256];
  int64_t copied[2], aliased[2], infer[2], moved[2];
  for (int off = 0; off < 2; off++) {
    snprintf(arguments, sizeof arguments, "%s %s", pair, off ? "off" : "on");
    json_t *root = plan(0, arguments), *row;
    size_t i;
    int64_t sum = 0;
    json_array_foreach(json_object_get(root, "by_rank"), i, row) sum += integer(row, "aliased_bytes");
    copied[off] = integer(root, "copied_bytes");
    aliased[off] = integer(root, "aliased_bytes");
    infer[off] = integer(root, "infer_bytes");
    moved[off] = integer(root, "moved_bytes");
    assert_int_equal(aliased[off], sum);
    assert_int_equal(aliased[off] % 4096, 0);
    json_decref(root);
  }
  assert_true(aliased[0] > 0 && aliased[1] == 0);
  assert_int_equal(copied[0] + aliased[0], copied[1]);
  assert_int_equal(infer[0], infer[1]);
  assert_int_equal(moved[0], moved[1]);
  assert_true(copied[1] <= infer[1]);
}

static void plan_of_one_rank(void **state) {
  (void)state;
  const char *pair = "--from megatron:tp=2,pp=3 --to vllm:tp=2 --ranks 12 --page-size 64KiB";
  char arguments[256];
  json_t *all = plan(0, pair);
  for (int rank = 0; rank < 12; rank += 5) {
    snprintf(arguments, sizeof arguments, "%s --rank %d", pair, rank);
    json_t *one = plan(0, arguments), *rows = json_object_get(one, "by_rank");
    check_keys(one, plan_keys);
    assert_true(json_is_null(json_object_get(one, "link_load_max_over_mean")));
    assert_true(json_is_null(json_object_get(one, "inbound_mean_over_model")));
    assert_int_equal(json_array_size(rows), 1);
    assert_true(
        json_equal(json_array_get(rows, 0), json_array_get(json_object_get(all, "by_rank"), (size_t)rank)));
    assert_int_equal(integer(one, "moved_bytes"), integer(json_array_get(rows, 0), "moved_bytes"));
    json_decref(one);
  }
  json_decref(all);
}

static const char *const node_keys[] = {"nodes",
                                        "node_moved_bytes",
                                        "node_lower_bound_bytes",
                                        "node_ratio",
                                        "node_inbound_max_bytes",
                                        "node_outbound_max_bytes",
                                        "node_link_load_max_over_mean",
                                        "relayed_bytes",
                                        "staging_bytes",
                                        "by_node",
                                        NULL};
static const char *const node_row_keys[] = {"node",       "ranks", "moved_bytes", "lower_bound_bytes",
                                            "sent_bytes", NULL};

/* Takes the keys of nodes out, and what differs from run to run. */
static void drop_nodes(json_t *root) {
  for (size_t i = 0; node_keys[i]; i++) {
    assert_non_null(json_object_get(root, node_keys[i]));
    json_object_del(root, node_keys[i]);
  }
}
static void drop_times(json_t *root) {
  static const char *const keys[] = {"plan_seconds", "plan_cpu_seconds", "plan_peak_rss_bytes"};
  for (size_t i = 0; i < TEST_COUNT(keys); i++) json_object_del(root, keys[i]);
}

static void plan_over_nodes(void **state) {
  (void)state;
  const char *pair = "--from megatron:tp=2,pp=3 --to vllm:tp=2 --ranks 12 --page-size 64KiB";
  char arguments[256];
  json_t *plain = plan(0, pair), *row;
  drop_times(plain);
  for (int nodes = 1; nodes <= 4; nodes++) {
    snprintf(arguments, sizeof arguments, "%s --nodes %d", pair, nodes);
    json_t *root = plan(0, arguments);
    int64_t moved = 0, bound = 0, sent = 0;
    size_t i;
    json_array_foreach(json_object_get(root, "by_node"), i, row) {
      check_keys(row, node_row_keys);
      assert_int_equal(integer(row, "node"), i);
      assert_int_equal(integer(row, "ranks"), 12 / nodes);
      moved += integer(row, "moved_bytes");
      bound += integer(row, "lower_bound_bytes");
      sent += integer(row, "sent_bytes");
    }
    assert_int_equal(i, nodes);
    assert_true((moved > 0) == (nodes > 1) && moved == bound && moved == sent);
    assert_int_equal(moved, integer(root, "node_moved_bytes"));
    assert_int_equal(bound, integer(root, "node_lower_bound_bytes"));
    assert_true(command_number(root, "node_ratio") == 1);
    assert_true(command_number(root, "node_link_load_max_over_mean") >= 1);
    assert_true((integer(root, "staging_bytes") > 0) == (nodes > 1));
    assert_true(nodes < 2 || integer(root, "relayed_bytes") > 0);
    drop_nodes(root);
    drop_times(root);
    if (nodes > 1) /* other ranks are asked, for the same bytes */
      json_object_set(root, "link_load_max_over_mean", json_object_get(plain, "link_load_max_over_mean"));
    assert_true(json_equal(root, plain));
    json_decref(root);
  }
  json_decref(plain);
  snprintf(arguments, sizeof arguments, "%s --nodes 3 --rank 5", pair);
  json_t *one = plan(0, arguments);
  row = json_array_get(json_object_get(one, "by_node"), 0);
  assert_int_equal(json_array_size(json_object_get(one, "by_node")), 1);
  assert_int_equal(integer(row, "node"), 1);
  assert_int_equal(integer(row, "moved_bytes"), integer(one, "node_moved_bytes"));
  assert_true(json_is_null(json_object_get(one, "node_ratio")));
  json_decref(one);
}

/* Types of coordinates stand for ranks: what is measured rank by rank must be the same. */
static void plan_of_many_ranks(void **state) {
  (void)state;
  const char *pair = "--from megatron:tp=2,pp=3 --to vllm:tp=2 --ranks";
  char arguments[256];
  snprintf(arguments, sizeof arguments, "%s 96", pair);
  json_t *many = plan(0, arguments), *row;
  size_t i;
  json_array_foreach(json_object_get(many, "by_rank"), i, row) {
    if (i % 19) continue;
    snprintf(arguments, sizeof arguments, "%s 96 --rank %zu", pair, i);
    json_t *one = plan(0, arguments);
    assert_true(json_equal(json_array_get(json_object_get(one, "by_rank"), 0), row));
    json_decref(one);
  }
  json_decref(many);
  snprintf(arguments, sizeof arguments, "%s 4104", pair);
  many = plan(0, arguments);
  assert_null(json_object_get(many, "by_rank"));
  assert_true(command_number(many, "link_load_max_over_mean") >= 1);
  json_decref(many);
  snprintf(arguments, sizeof arguments, "%s 4104 --by-rank", pair);
  many = plan(0, arguments);
  assert_int_equal(json_array_size(json_object_get(many, "by_rank")), 4104);
  json_decref(many);
}

static void plan_answers_a_budget(void **state) {
  (void)state;
  const char *pair = "--from megatron:tp=4 --to vllm:tp=2 --ranks 4 --page-size 64KiB --budget";
  char arguments[256];
  snprintf(arguments, sizeof arguments, "%s 1", pair);
  json_t *tight = plan(1, arguments);
  int64_t least = integer(tight, "budget_min");
  assert_true(json_is_false(json_object_get(tight, "fits")));
  json_decref(tight);

  snprintf(arguments, sizeof arguments, "%s %lld", pair, (long long)least - 1);
  tight = plan(1, arguments);
  assert_int_equal(integer(tight, "budget_min"), least);
  json_decref(tight);
  snprintf(arguments, sizeof arguments, "%s %lld", pair, (long long)least);
  json_t *fits = plan(0, arguments);
  assert_true(json_is_true(json_object_get(fits, "fits")));
  assert_int_equal(integer(fits, "cap"), integer(fits, "cap_min"));
  assert_true(integer(fits, "peak_bytes") <= least);
  json_decref(fits);

  snprintf(arguments, sizeof arguments, "plan --model %s %s 1", model, pair);
  command_result text = command_run("%s", arguments);
  assert_int_equal(text.exit_status, 1);
  assert_non_null(strstr(text.out, "does not fit"));
  command_release(&text);
}

/* HybridFlow's figure 8: train (pp 1, tp 4, dp 2), generate tp 2, on 8 ranks. Norms, which nobody cuts, are
 * in no figure: they are on every rank already. */
static void plan_maps_ranks(void **state) {
  (void)state;
  static const struct {
    const char *map, *name;
    double most, mean;
  } cases[] = {{"contiguous", "contiguous", 0.5, 0.375},
               {"strided", "strided", 0.25, 0.25},
               {"best", "strided:2", 0.25, 0.25}};
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    char arguments[256];
    snprintf(arguments, sizeof arguments,
             "--from megatron:tp=4,vocab_divisible_by=1 --to vllm:tp=2 --ranks 8 --rank-map %s",
             cases[i].map);
    json_t *root = plan(0, arguments);
    assert_string_equal(json_string_value(json_object_get(root, "rank_map")), cases[i].name);
    assert_true(fabs(command_number(root, "inbound_max_over_model") - cases[i].most) < 0.01);
    assert_true(fabs(command_number(root, "inbound_mean_over_model") - cases[i].mean) < 0.01);
    json_decref(root);
  }
}

/* Without nodes all maps of this pair cost a rank the same. Of 3 nodes each has a third of the layers, and with
 * contiguous all four places of tp, with strides of 3 two of them, so that it lacks half as much. `treadle layout` shows the same map. */
static void best_looks_at_nodes(void **state) {
  (void)state;
  static const char pair[] = "--from megatron:pp=3 --to vllm:tp=4 --ranks 12 --rank-map best";
  static const struct {
    const char *nodes, *map, *place; /* of rank 1 */
  } cases[] = {{"", "contiguous", "1"}, {"--nodes 3", "strided:3", "0"}};
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    char arguments[256];
    snprintf(arguments, sizeof arguments, "%s %s", pair, cases[i].nodes);
    json_t *root = plan(0, arguments);
    assert_string_equal(json_string_value(json_object_get(root, "rank_map")), cases[i].map);
    json_decref(root);
    command_result maps[2];
    for (int by = 0; by < 2; by++) {
      maps[by] =
          command_run(by == 0 ? "layout --model %s --train megatron:pp=3 --layout vllm:tp=4 --ranks 12 "
                                "--rank 1 --runs --rank-map best %s"
                              : "layout --model %s --layout vllm:tp=4 --ranks 12 --runs --rank %s",
                      model, by == 0 ? cases[i].nodes : cases[i].place);
      assert_int_equal(maps[by].exit_status, 0);
    }
    assert_non_null(strstr(maps[0].out, "embed_tokens"));
    const char *listed[] = {strstr(maps[0].out, "model."), strstr(maps[1].out, "model.")};
    assert_string_equal(listed[0], listed[1]); /* the same place of tp */
    for (int by = 0; by < 2; by++) command_release(&maps[by]);
  }
  command_result refused =
      command_run("layout --model %s --train megatron:pp=3 --layout vllm:tp=4 --ranks 12 --rank 1 "
                  "--rank-map best --nodes 5",
                  model);
  assert_int_equal(refused.exit_status, 2);
  assert_non_null(strstr(refused.err, "12 ranks cannot be divided evenly among 5 nodes"));
  command_release(&refused);
}

static void plan_prints_text(void **state) {
  (void)state;
  command_result result =
      command_run("plan --model %s --from megatron:tp=4,pp=3 --to vllm:tp=2 --ranks 12", model);
  command_expect(&result, 0, "", 0);
  static const char *const words[] = {"lower bound", "bytes by pair", "largest tensor", "smallest cap",
                                      "to be written"};
  for (size_t i = 0; i < TEST_COUNT(words); i++) assert_non_null(strstr(result.out, words[i]));
  command_release(&result);
}

/* ---- layout ----------------------------------------------------------------------------------- */

/* Runs are in order, cover each element once, and all ranks together have each element of a tensor. */
static void layout_runs_cover(void **state) {
  (void)state;
  char seen[1000 * 256] = {0}; /* elements of the embedding */
  for (int rank = 0; rank < 4; rank++) {
    char arguments[256];
    snprintf(arguments, sizeof arguments,
             "layout --model %s --layout megatron:tp=4 --ranks 4 --rank %d --runs", model, rank);
    json_t *root = command_json(0, 0, arguments), *tensor, *run;
    static const char *const keys[] = {"chunk", "name", "shape", "dtype", "derived", "runs", NULL};
    size_t t, r, d;
    assert_int_equal(integer(root, "rank"), rank);
    json_array_foreach(json_object_get(root, "tensors"), t, tensor) {
      check_keys(tensor, keys);
      assert_string_equal(json_string_value(json_object_get(tensor, "dtype")), "fp32");
      assert_true(json_is_false(json_object_get(tensor, "derived")));
      int64_t elems = 1, at = 0;
      json_t *size;
      json_array_foreach(json_object_get(tensor, "shape"), d, size) elems *= json_integer_value(size);
      json_array_foreach(json_object_get(tensor, "runs"), r, run) {
        const char *name = json_string_value(json_array_get(run, 1));
        int64_t start = json_integer_value(json_array_get(run, 2)),
                stride = json_integer_value(json_array_get(run, 3));
        int64_t count = json_integer_value(json_array_get(run, 4));
        assert_int_equal(json_integer_value(json_array_get(run, 0)), at);
        at += count;
        if (!name) assert_true(start == 0 && stride == 0);
        for (int64_t i = 0; name && strcmp(name, "model.embed_tokens.weight") == 0 && i < count; i++)
          seen[start + i * stride]++;
      }
      assert_int_equal(at, elems);
    }
    json_decref(root);
  }
  for (size_t i = 0; i < sizeof seen; i++) assert_int_equal(seen[i], 1);
}

static void layout_maps_ranks(void **state) {
  (void)state;
  char arguments[256];
  for (int rank = 0; rank < 8; rank++) {
    snprintf(arguments, sizeof arguments,
             "layout --model %s --layout vllm:tp=2 --train megatron:tp=4 --rank-map strided --ranks 8 "
             "--rank %d --runs",
             model, rank);
    json_t *root = command_json(0, 0, arguments);
    json_t *first = json_array_get(json_object_get(root, "tensors"), 0);
    json_t *run = json_array_get(json_object_get(first, "runs"), 0);
    bool second_half = json_integer_value(json_array_get(run, 2)) > 0;
    assert_int_equal(second_half, rank % 4 / 2); /* tp groups 0,2 and 1,3 in each block of four */
    json_decref(root);
  }
}

/* ---- family, inspect, doctor ------------------------------------------------------------------ */

static void family_checks(void **state) {
  (void)state;
  command_result result = command_run("family check %s", model);
  command_expect(&result, 0, "", 0);
  command_release(&result);
  result = command_run("family check %s/config.json", model);
  command_expect(&result, 0, "", 0);
  command_release(&result);

  /* An index that misses one name and has another. */
  char text[4096];
  snprintf(text, sizeof text,
           "mkdir -p %s/part && cp %s/config.json %s/part && '%s' inspect %s --json | "
           "sed -n 's/^    {\"name\": \\(\"[^\"]*\"\\).*/\\1: \"a.safetensors\",/p' | "
           "sed 's/model.norm.weight/model.norm.bias/; 1s/^/{\"weight_map\": {/; $s/,$/}}/' "
           "> %s/part/model.safetensors.index.json",
           command_folder(), model, command_folder(),
           getenv("TREADLE") ? getenv("TREADLE") : "build/treadle", model, command_folder());
  assert_int_equal(system(text), 0);
  static const char *const paths[] = {"part", "part/model.safetensors.index.json"};
  for (size_t i = 0; i < TEST_COUNT(paths); i++) {
    result = command_run("family check %s/%s", command_folder(), paths[i]);
    command_expect(&result, 1, "missing or of another shape: model.norm.weight\n", 1);
    command_expect(&result, 1, "left over: model.norm.bias\n", 1);
    command_expect(&result, 1, "\n", 2);
    command_release(&result);
  }
}

static void family_lists_and_shows(void **state) {
  (void)state;
  static const char *const names[] = {"llama", "qwen2", "qwen3"};
  command_result list = command_run("family list");
  assert_int_equal(list.exit_status, 0);
  for (size_t i = 0; i < TEST_COUNT(names); i++) {
    char line[64];
    assert_non_null(strstr(list.out, names[i]));
    command_result show = command_run("family show %s", names[i]);
    snprintf(line, sizeof line, "family: %s\n", names[i]);
    assert_int_equal(show.exit_status, 0);
    assert_non_null(strstr(show.out, line));
    command_release(&show);
  }
  assert_non_null(strstr(list.out, "tensors; generates, trains; model_type llama;"));
  assert_non_null(strstr(list.out, "tensors; generates, trains; model_type deepseek_v2;"));
  assert_non_null(strstr(list.out, "tensors; layouts only;      model_type phi3;"));
  command_release(&list);
  json_t *root = command_json(0, 0, "family list"), *family, *rows = json_object_get(root, "families");
  size_t i, seen = 0;
  json_array_foreach(rows, i, family) {
    const json_t *generates = json_object_get(family, "generates"),
                 *trains = json_object_get(family, "trains");
    assert_int_equal(json_object_size(family), 7 + json_is_false(generates) + json_is_false(trains));
    assert_int_equal(json_is_false(generates), json_is_string(json_object_get(family, "not_generated")));
    assert_int_equal(json_is_false(trains), json_is_string(json_object_get(family, "not_trained")));
    assert_int_equal(json_integer_value(json_object_get(family, "to_say")), 0);
    assert_true(json_integer_value(json_object_get(family, "tensors")) > 0);
    assert_true(json_array_size(json_object_get(family, "engines")) > 0);
    if (strcmp(json_string_value(json_object_get(family, "family")), "qwen3") != 0) continue;
    seen++;
    assert_string_equal(json_string_value(json_array_get(json_object_get(family, "model_types"), 0)),
                        "qwen3");
  }
  assert_int_equal(seen, 1);
  json_decref(root);
  command_result refused = command_run("family show llama --json");
  command_expect(&refused, 2, "--json is for family list", 1);
  command_release(&refused);
}

static void inspect_totals(void **state) {
  (void)state;
  char arguments[256];
  snprintf(arguments, sizeof arguments, "inspect %s", model);
  json_t *root = command_json(0, 0, arguments), *tensor, *size;
  int64_t elems = 0;
  size_t t, d;
  json_array_foreach(json_object_get(root, "tensors"), t, tensor) {
    int64_t product = 1;
    json_array_foreach(json_object_get(tensor, "shape"), d, size) product *= json_integer_value(size);
    elems += product;
  }
  assert_int_equal(elems, integer(root, "elems"));
  assert_int_equal(4 * elems, integer(root, "bytes"));
  assert_int_equal(json_array_size(json_object_get(root, "files")), 1);
  json_decref(root);
  command_result text = command_run("%s", arguments);
  command_expect(&text, 0, "", 0);
  command_release(&text);
}

static void made_models_load(void **state) {
  (void)state;
  static const char *const families[] = {"llama", "qwen2", "qwen3"};
  for (size_t i = 0; i < TEST_COUNT(families); i++) {
    command_result made =
        command_run("make-model %s/%s --family %s --layers 1 --hidden 64 --vocab 99 --dtype fp16",
                    command_folder(), families[i], families[i]);
    command_expect(&made, 0, "", 0);
    command_release(&made);
    command_result check = command_run("family check %s/%s", command_folder(), families[i]);
    command_expect(&check, 0, "", 0);
    assert_non_null(strstr(check.out, "with shapes"));
    command_release(&check);
  }
}

static void doctor_looks(void **state) {
  (void)state;
  json_t *root = command_json(0, 0, "doctor");
  assert_true(json_array_size(json_object_get(root, "checks")) >= 8);
  json_t *plain = json_array_get(json_object_get(root, "kernels"), 0);
  assert_string_equal(json_string_value(json_object_get(plain, "name")), "plain");
  assert_true(json_is_true(json_object_get(plain, "usable")));
  assert_true(json_is_null(json_object_get(plain, "lacks")));
  assert_true(json_is_array(json_object_get(root, "devices")));
  json_decref(root);
  command_result text = command_run("doctor");
  assert_int_equal(text.exit_status, 0);
  assert_non_null(strstr(text.out, "mappings"));
  assert_non_null(strstr(text.out, "plain"));
  command_release(&text);
}

/* ---- The documents ---------------------------------------------------------------------------- */

static const char *read_document(const char *path) {
  static char text[1 << 17];
  FILE *file = fopen(path, "r");
  if (!file) fail_msg("%s is missing", path);
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  return text;
}

/* From a heading to the next of its rank; ended by treadle_free(). */
static char *copy_section(const char *text, const char *heading) {
  const char *begin = strstr(text, heading);
  if (!begin) {
    fail_msg("there is no '%s'", heading);
    return NULL;
  }
  const char *end = strstr(begin + strlen(heading), "\n## ");
  size_t length = end ? (size_t)(end - begin) : strlen(begin);
  char *section = treadle_alloc(length + 1);
  memcpy(section, begin, length);
  return section;
}

/* docs/cli.md names every option that a command's help has. */
static void options_are_documented(void **state) {
  (void)state;
  static const char *const names[] = {"plan", "layout", "switch", "make-model"};
  const char *text = read_document(TREADLE_SOURCE_DIR "/docs/cli.md");
  for (size_t i = 0; i < TEST_COUNT(names); i++) {
    char heading[64], option[40];
    snprintf(heading, sizeof heading, "## treadle %s\n", names[i]);
    char *section = copy_section(text, heading);
    command_result help = command_run("help %s", names[i]);
    for (const char *at = help.out; (at = strstr(at, "\n  --")); at++) {
      assert_int_equal(sscanf(at, " %39[a-z-]", option), 1);
      if (strcmp(option, "--help") == 0 || strcmp(option, "--families") == 0) continue;
      if (!strstr(section, option)) fail_msg("docs/cli.md, %s: %s is missing", names[i], option);
    }
    command_release(&help);
    treadle_free(section);
  }
}

/* docs/layouts.md names every key of every type. */
static void keys_are_documented(void **state) {
  (void)state;
  static const treadle_layout_type *const types[] = {&treadle_layout_type_hf, &treadle_layout_type_megatron,
                                                     &treadle_layout_type_vllm, &treadle_layout_type_sglang,
                                                     &treadle_layout_type_pieces};
  const char *text = read_document(TREADLE_SOURCE_DIR "/docs/layouts.md");
  for (size_t i = 0; i < TEST_COUNT(types); i++) {
    char words[64];
    snprintf(words, sizeof words, "## %s\n", types[i]->name);
    char *section = copy_section(text, words);
    for (const char *const *key = types[i]->keys; *key; key++) {
      snprintf(words, sizeof words, "`%s`", *key);
      if (strcmp(*key, "dtype") != 0 && strcmp(*key, "on") != 0 && !strstr(section, words))
        fail_msg("docs/layouts.md, %s: %s is missing", types[i]->name, *key);
    }
    treadle_free(section);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(help_is_there),          cmocka_unit_test(what_is_wrong_is_refused),
      cmocka_unit_test(plan_adds_up),           cmocka_unit_test(plan_aliases),
      cmocka_unit_test(plan_over_nodes),        cmocka_unit_test(plan_of_one_rank),
      cmocka_unit_test(plan_of_many_ranks),     cmocka_unit_test(plan_answers_a_budget),
      cmocka_unit_test(plan_maps_ranks),        cmocka_unit_test(best_looks_at_nodes),
      cmocka_unit_test(plan_prints_text),       cmocka_unit_test(layout_runs_cover),
      cmocka_unit_test(layout_maps_ranks),      cmocka_unit_test(family_checks),
      cmocka_unit_test(family_lists_and_shows), cmocka_unit_test(inspect_totals),
      cmocka_unit_test(made_models_load),       cmocka_unit_test(doctor_looks),
      cmocka_unit_test(options_are_documented), cmocka_unit_test(keys_are_documented),
  };
  return cmocka_run_group_tests(tests, make_model, command_teardown);
}
