/* treadle switch under a launcher: what leaves the device and comes back, what is shared, faults, the picture.
 * ctest: label=mpi timeout=900 */
#include "cli/command.h"
#include "cli/xml.h"

#include "base/dtype.h"
#include "test.h"

enum { RANKS = 2, PAGE = 64 << 10, GRADS_EACH = 4, OPTIMIZER_EACH = 12, ROWS = 4 };

#define TRAIN "megatron:tp=2"
#define INFER "vllm"
#define PAIR  "--train " TRAIN " --infer " INFER " --page-size 64KiB"

static const char *model;

static int make_model(void **state) {
  (void)state;
  model = command_model("--layers 4 --hidden 256 --vocab 1000");
  return 0;
}

static json_t *switch_json(int exit_status, const char *rest) {
  char arguments[1024];
  snprintf(arguments, sizeof arguments, "switch --model %s %s", model, rest);
  return command_json(RANKS, exit_status, arguments);
}

static const char *text(const json_t *object, const char *key) {
  const char *value = json_string_value(json_object_get(object, key));
  if (!value) fail_msg("%s is not a text", key);
  return value;
}

static char *read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) return NULL;
  char *all = calloc(1, 1 << 20);
  size_t length = fread(all, 1, (1 << 20) - 1, file);
  assert_true(length < (1 << 20) - 1);
  fclose(file);
  return all;
}

/* ---- Residency ---- */

enum { PARAMS, GRADS, OPTIMIZER, INFER_PARAMS, CLASSES };

static size_t in_pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

/* From the layouts alone: whole pages of each class, of the rank that has most of it. */
static void measure_classes(size_t *bytes) {
  treadle_model *opened;
  assert_ok(treadle_model_open(model, NULL, &opened));
  memset(bytes, 0, CLASSES * sizeof *bytes);
  for (int side = 0; side < 2; side++) {
    treadle_layout *layout;
    assert_ok(treadle_layout_create(opened, side ? INFER : TRAIN, RANKS, NULL, &layout));
    for (int rank = 0; rank < RANKS; rank++) {
      size_t elems = 0, window = in_pages(treadle_layout_window_bytes(layout, rank));
      for (int32_t i = 0; i < treadle_layout_storage_count(layout, rank); i++) {
        treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
        assert_ok(treadle_layout_storage(layout, rank, i, &info));
        elems += info.bytes / treadle_dtype_bytes(info.dtype);
      }
      const size_t own[CLASSES] = {side ? 0 : window, side ? 0 : in_pages(elems * GRADS_EACH),
                                   side ? 0 : in_pages(elems * OPTIMIZER_EACH), side ? window : 0};
      for (int c = 0; c < CLASSES; c++)
        if (own[c] > bytes[c]) bytes[c] = own[c];
    }
    treadle_layout_destroy(layout);
  }
  treadle_model_close(opened);
}

/* HOST nothing; INFER infer params, cache and what is kept; FORWARD params and what is kept; TRAIN all of training. */
static void check_row(const json_t *row, const size_t *bytes, int leaves) {
  static const char *const keys[CLASSES] = {"params", "grads", "optimizer", "infer"};
  const char *after = text(row, "after");
  assert_int_equal(json_object_size(row), 6); /* no work: no engine computes */
  for (int c = 0; c < CLASSES; c++) {
    bool kept = c < INFER_PARAMS && !(leaves >> c & 1);
    bool here = strcmp(after, "train") == 0     ? c != INFER_PARAMS
                : strcmp(after, "forward") == 0 ? c == PARAMS || kept
                : strcmp(after, "infer") == 0   ? c == INFER_PARAMS || kept
                                                : false;
    if (command_number(row, keys[c]) != (here ? (double)bytes[c] : 0))
      fail_msg("combination %d, after %s: %.0f bytes of %s, of %zu", leaves, after,
               command_number(row, keys[c]), keys[c], bytes[c]);
  }
  if (strcmp(after, "infer") != 0) assert_true(command_number(row, "kv") == 0);
  if (strcmp(after, "infer") == 0 && leaves >> OPTIMIZER & 1) assert_true(command_number(row, "kv") > 0);
}

static void residency_is_the_table(void **state) {
  (void)state;
  static const char *const after[ROWS] = {"host", "infer", "forward", "train"};
  size_t bytes[CLASSES];
  measure_classes(bytes);
  assert_true(bytes[PARAMS] > 0 && bytes[GRADS] > bytes[PARAMS] && bytes[OPTIMIZER] > bytes[GRADS]);
  for (int leaves = 0; leaves < 8; leaves++) {
    char rest[256], list[64] = "";
    snprintf(list, sizeof list, "%s%s%s", leaves >> PARAMS & 1 ? ",params" : "",
             leaves >> GRADS & 1 ? ",grads=keep" : "", leaves >> OPTIMIZER & 1 ? ",optimizer" : "");
    snprintf(rest, sizeof rest, PAIR " --alias off --cycles 1 --forward --check --cap 1MiB --offload %s",
             leaves ? list + 1 : "none");
    json_t *root = switch_json(0, rest), *rows = json_object_get(root, "residency");
    assert_string_equal(text(root, "check"), "pass");
    assert_int_equal(json_array_size(rows), ROWS);
    for (size_t i = 0; i < ROWS; i++) {
      assert_string_equal(text(json_array_get(rows, i), "after"), after[i]);
      check_row(json_array_get(rows, i), bytes, leaves);
    }
    double kept = (leaves >> GRADS & 1 ? 0 : (double)bytes[GRADS]) +
                  (leaves >> OPTIMIZER & 1 ? 0 : (double)bytes[OPTIMIZER]);
    double larger = (double)(bytes[PARAMS] > bytes[INFER_PARAMS] ? bytes[PARAMS] : bytes[INFER_PARAMS]);
    double both = (double)(bytes[PARAMS] + bytes[INFER_PARAMS]);
    assert_true(command_number(root, "peak_bound_bytes") ==
                kept + (leaves & 1 ? larger : both) + (1 << 20));
    assert_true(command_number(root, "peak_bytes") <= command_number(root, "peak_bound_bytes"));
    if (leaves >> OPTIMIZER & 1)
      assert_true(command_number(root, "offload_seconds") > 0 && command_number(root, "load_seconds") > 0);
    json_decref(root);
  }
}

/* ---- What is kept, and what is shared ---- */

/* Rounding loses bits, and a copy in host memory has them. */
static void lossy_pair_goes_there_and_back(void **state) {
  (void)state;
  const char *pair =
      "--train hf:dtype=fp32 --infer vllm:tp=2,dtype=bf16 --page-size 64KiB --check --cycles 2";
  char rest[256];
  snprintf(rest, sizeof rest, "%s --keep host --forward", pair);
  json_t *root = switch_json(0, rest);
  assert_string_equal(text(root, "check"), "pass");
  assert_true(command_number(root, "load_seconds") > 0);
  json_decref(root);
  command_result result = command_launch(RANKS, "switch --model %s %s", model, pair);
  command_expect(&result, 2, "(keep=host)", 1);
  command_release(&result);
}

static void alias_changes_no_bit(void **state) {
  (void)state;
  json_t *on =
      switch_json(0, "--train megatron:tp=2 --infer vllm:tp=2 --page-size 4KiB --check --cycles 2");
  json_t *off = switch_json(
      0, "--train megatron:tp=2 --infer vllm:tp=2 --page-size 4KiB --check --cycles 2 --alias off");
  assert_string_equal(text(on, "digest"), text(off, "digest"));
  assert_string_equal(text(on, "check"), "pass");
  assert_string_equal(text(off, "check"), "pass");
  assert_true(command_number(on, "infer_bytes") == command_number(off, "infer_bytes"));
  assert_true(command_number(off, "aliased_bytes") == 0);
  assert_true(command_number(on, "aliased_bytes") > command_number(on, "copied_bytes"));
  assert_true(command_number(off, "copied_bytes") >=
              command_number(on, "aliased_bytes") + command_number(on, "copied_bytes"));
  json_decref(on);
  json_decref(off);
}

/* ---- Planted mistakes, and faults ---- */

static void planted_mistakes_are_named(void **state) {
  (void)state;
  static const char *const words[] = {"was dropped; caught: ",
                                      "was doubled; caught: ",
                                      "was misplaced; caught: ",
                                      "was reclaimed early; caught: ",
                                      "was copied late; caught: ",
                                      "was skipped; caught: ",
                                      "was put on a wrong one; caught: ",
                                      "reclaimed early: rank",
                                      "twin copied late",
                                      "does not say committed",
                                      "\nPASS\n"};
  command_result result =
      command_launch(RANKS,
                     "switch --model %s --train " TRAIN " --infer vllm:tp=2 --page-size 4KiB "
                     "--check=prove --cycles 1",
                     model);
  command_expect(&result, 0, "", 0);
  for (size_t i = 0; i < TEST_COUNT(words); i++)
    if (!strstr(result.out, words[i])) fail_msg("no '%s' in\n%s", words[i], result.out);
  command_release(&result);
}

/* A fault that the ranks live through, so that the launcher's own exit status is theirs. */
static void fault_is_reported(void **state) {
  (void)state;
  static const char *const keys[] = {"injected",    "survivors",        "returned",
                                     "max_seconds", "digest_unchanged", "leaked"};
  json_t *root = switch_json(1, PAIR " --fault enomem:rank=1,wave=0");
  const json_t *fault = json_object_get(root, "fault");
  assert_int_equal(json_object_size(fault), TEST_COUNT(keys));
  for (size_t i = 0; i < TEST_COUNT(keys); i++) assert_non_null(json_object_get(fault, keys[i]));
  assert_string_equal(text(fault, "injected"), "enomem:rank=1,wave=0");
  assert_true(command_number(fault, "survivors") == RANKS && command_number(fault, "returned") == RANKS);
  assert_true(json_is_true(json_object_get(fault, "digest_unchanged")));
  assert_true(command_number(fault, "leaked") == 0);
  json_decref(root);
  command_result result =
      command_launch(RANKS, "switch --model %s " PAIR " --fault corrupt:rank=0,wave=0 --keep host", model);
  command_expect(&result, 1, "the digest of tensor '", RANKS);
  assert_non_null(strstr(result.out, "their training state is unchanged"));
  command_release(&result);
}

/* ---- The picture ---- */

static void timeline_is_a_picture(void **state) {
  (void)state;
  static const char *const words[] = {"<title>params</title>",
                                      "<title>gradients</title>",
                                      "<title>optimizer state</title>",
                                      "<title>infer params</title>",
                                      "<title>KV cache</title>",
                                      "bound of the pool",
                                      "bound of the switch",
                                      ">train<",
                                      ">host<",
                                      ">infer<",
                                      ">forward<",
                                      ">to infer, ",
                                      TRAIN " to " INFER};
  char path[160], rest[512];
  snprintf(path, sizeof path, "%s/a.svg", command_folder());
  snprintf(rest, sizeof rest,
           PAIR " --cycles 1 --forward --cap 512KiB --offload params,grads,optimizer --timeline %s", path);
  json_decref(switch_json(0, rest));
  char *picture = read_file(path);
  assert_non_null(picture);
  xml_check(picture);
  for (size_t i = 0; i < TEST_COUNT(words); i++)
    if (!strstr(picture, words[i])) fail_msg("no '%s' in\n%s", words[i], picture);
  assert_null(strstr(picture, "nan"));
  free(picture);
}

/* ---- Refusals ---- */

static void refused_before_any_work(void **state) {
  (void)state;
  static const struct {
    const char *rest, *words;
  } cases[] = {
      {"--offload weights", "must be none or a list of params, grads (or grads=keep) and optimizer"},
      {"--offload params,", "must be none or a list"},
      {"--offload none,params", "must be none or a list"},
      {"--offload grads,grads=keep", "names one of them twice"},
      {"--offload=", "--offload is empty; it needs a value: LIST"},
      {"--keep disk", "it is one of: infer, host"},
      {"--keep hots", "did you mean host?"},
      {"--keep host --offload grads", "leave out one of them"},
      {"--alias maybe", "it is one of: on, off"},
      {"--forward=yes", "takes no value"},
      {"--forward --cycles 0", "leave out one of them"},
      {"--fault boom:rank=0", "write kill|stall|slow|enomem|corrupt|cancel|flip:rank=R,wave=W"},
      {"--fault kill", "write kill|stall|"},
      {"--fault flip:rank=0,wave=0", "all ranks are on one node: give --nodes"},
      {"--fault killnode:rank=0,wave=0", "names no node"},
      {"--fault cut:node=0,rank=0,wave=0", "names two ranks"},
      {"--fault kill:node=0,wave=0", "names no rank"},
      {"--fault kill:wave=1", "names no rank"},
      {"--fault kill:rank=2,wave=0", "rank '2' is none of the 2"},
      {"--fault kill:rank=0,wave=x", "the wave is not a number from 0"},
      {"--fault kill:rank=0,", "and that is not known"},
      {"--fault kill:rank=0,phase=lunch", "or phase=entry|offload|commit|committed|bind|kv"},
      {"--fault corrupt:rank=0,phase=bind", "bytes are copied in waves only"},
      {"--fault cancel:rank=0,phase=kv", "it is too late to cancel there"},
      {"--fault enomem:rank=0,phase=kv", "nothing can fail there"},
      {"--fault kill:rank=0,wave=0 --timeline a.svg", "leave out one of them"},
      {"--timeline %F/none/a.svg", "/none does not exist"},
      {"--timeline %F", "is a folder, and only a plain file is replaced"},
      {"--timeout never", "must be a number of seconds above 0"},
  };
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    char rest[256], *at;
    const char *folder = strstr(cases[i].rest, "%F");
    snprintf(rest, sizeof rest, "%s", cases[i].rest);
    if (folder && (at = strstr(rest, "%F")))
      snprintf(at, sizeof rest - (size_t)(at - rest), "%s%s", command_folder(), folder + 2);
    /* What is wrong for one rank alone is asked of one: a launcher whose ranks end badly takes seconds to end. */
    bool of_ranks = strstr(rest, "rank=") || strstr(rest, "--timeline");
    command_result result =
        of_ranks ? command_launch(RANKS, "switch --model %s " PAIR " %s", model, rest)
                 : command_run("switch --model %s --train megatron --infer vllm %s", model, rest);
    command_expect(&result, 2, cases[i].words, 1);
    command_expect(&result, 2, "treadle switch: ", 1);
    assert_string_equal(result.out, "");
    command_release(&result);
  }
}

/* The message of a budget that is too small names what makes it fit, and that does. */
static void budget_message_helps(void **state) {
  (void)state;
  size_t bytes[CLASSES];
  measure_classes(bytes);
  size_t training = bytes[PARAMS] + bytes[GRADS] + bytes[OPTIMIZER];
  static const struct {
    const char *with, *words, *instead;
  } cases[] = {{"--offload params", "offload_train_grad (--offload grads)", "--offload params,grads"},
               {"--offload none", "offload_train_grad (--offload grads)", "--offload grads"},
               {"--offload params --cap 64MiB", "; a cap of ", "--offload params,optimizer"}};
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    command_result result =
        command_launch(RANKS, "switch --model %s " PAIR " --alias off --cycles 1 --check %s --budget %zu",
                       model, cases[i].with, training + (i == 2 ? bytes[INFER_PARAMS] : 0));
    command_expect(&result, 2, cases[i].words, 1);
    command_release(&result);
    result =
        command_launch(RANKS, "switch --model %s " PAIR " --alias off --cycles 1 --check %s --budget %zu",
                       model, cases[i].instead, training + (i == 2 ? bytes[INFER_PARAMS] : 0));
    command_expect(&result, 0, "", 0);
    command_release(&result);
  }
  command_result result = command_launch(
      RANKS, "switch --model %s " PAIR " --cycles 1 --offload params --budget %zu", model, training - 1);
  command_expect(&result, 2, "whatever is offloaded; give at least ", 1);
  command_release(&result);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(residency_is_the_table),  cmocka_unit_test(lossy_pair_goes_there_and_back),
      cmocka_unit_test(alias_changes_no_bit),    cmocka_unit_test(planted_mistakes_are_named),
      cmocka_unit_test(fault_is_reported),       cmocka_unit_test(timeline_is_a_picture),
      cmocka_unit_test(refused_before_any_work), cmocka_unit_test(budget_message_helps),
  };
  return cmocka_run_group_tests(tests, make_model, command_teardown);
}
