/* Every function of the public headers with every argument that is none: a status says refused, a value is what the header documents,
 * and there is a message. At the end each function that the header declares has been called here. */
#include "api/objects.h"
#include "base/status.h"
#include "memory/device_far.h"
#include "test.h"
#include "train/rows.h"
#include "treadle_batch.h"
#include "treadle_control.h"
#include "treadle_device.h"

#include <math.h>
#include <unistd.h>

/* ---- Checks; each notes which function it was ---- */

static char called[400][64];
static size_t called_count;

static void note(const char *call) {
  size_t length = strcspn(call, "(");
  for (size_t i = 0; i < called_count; i++)
    if (strncmp(called[i], call, length) == 0 && !called[i][length]) return;
  assert_in_range(called_count, 0, TEST_COUNT(called) - 1);
  snprintf(called[called_count++], sizeof *called, "%.*s", (int)length, call);
}

static void check_said(bool good, const char *what, int line) {
  if (!good || !*treadle_error_message())
    fail_msg("line %d: %s: not what it should be, or no word why: '%s'", line, what,
             treadle_error_message());
}

#define FRESH(call) (note(call), treadle_fail(TREADLE_OK, "%s", ""))
/* A status of TREADLE_REFUSED; a value, with a message; no result, with a message. */
#define REFUSED(call)      (FRESH(#call), check_said((call) == TREADLE_REFUSED, #call, __LINE__))
#define GIVES(value, call) (FRESH(#call), check_said((call) == (value), #call, __LINE__))
#define NOTHING(call)      (FRESH(#call), (call), check_said(true, #call, __LINE__))
/* Fails or not, and is here to be called. */
#define WORKS(call) (FRESH(#call), (void)(call))

static const int64_t no_ranks[] = {-1, INT64_MIN, 1, 4, INT64_MAX};
static const double no_seconds[] = {NAN, INFINITY, -INFINITY, -1, -1e-300, 1e300, 1.1e9};
static const int no_enums[] = {-1, 77, 99, INT32_MIN, INT32_MAX};

/* Structs whose struct_size is none, or whose unknown fields say something. */
static const size_t no_sizes[] = {0, 1, sizeof(size_t) - 1, sizeof(size_t) + 4, 4097, SIZE_MAX};

#define REFUSED_SIZES(variable, call)                                                                      \
  do {                                                                                                     \
    for (size_t n = 0; n < TEST_COUNT(no_sizes); n++) {                                                    \
      (variable).struct_size = no_sizes[n];                                                                \
      REFUSED(call);                                                                                       \
    }                                                                                                      \
    (variable).struct_size = sizeof(variable);                                                             \
  } while (0)

#define REFUSED_NEWER(type, call)                                                                          \
  do {                                                                                                     \
    struct {                                                                                               \
      type known;                                                                                          \
      char unknown;                                                                                        \
    } newer = {.known = TREADLE_INIT(type), .unknown = 1};                                                 \
    type *newer_p = &newer.known;                                                                          \
    newer_p->struct_size = sizeof newer;                                                                   \
    REFUSED(call);                                                                                         \
  } while (0)

/* ---- By object ---- */

static void texts(objects *o) {
  (void)o;
  for (size_t i = 0; i < TEST_COUNT(no_enums); i++) {
    WORKS(assert_non_null(treadle_status_text((treadle_status)no_enums[i])));
    assert_string_equal(treadle_mode_text((treadle_mode)no_enums[i]), "(none)");
  }
  note("treadle_status_text(");
  assert_int_equal(treadle_version_number(), TREADLE_VERSION_NUMBER);
  assert_string_equal(treadle_version_text(), TREADLE_VERSION);
  note("treadle_version_number(");
  note("treadle_version_text(");
  note("treadle_mode_text(");
  note("treadle_error_message(");
}

static void models(objects *o) {
  treadle_model *model = o->model;
  treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
  REFUSED(treadle_model_open(NULL, NULL, &model));
  assert_null(model);
  REFUSED(treadle_model_open(o->config, NULL, NULL));
  model = o->model;
  REFUSED(treadle_model_open("", NULL, &model));
  assert_null(model);
  REFUSED(treadle_model_open("/nothing/nothing", NULL, &model));
  GIVES(-1, treadle_model_tensor_count(NULL));
  REFUSED(treadle_model_tensor(NULL, 0, &info));
  REFUSED(treadle_model_tensor(o->model, 0, NULL));
  REFUSED_SIZES(info, treadle_model_tensor(o->model, 0, &info));
  treadle_model_options given = TREADLE_INIT(treadle_model_options);
  REFUSED_SIZES(given, treadle_model_open(o->config, &given, &model));
  REFUSED_NEWER(treadle_model_options, treadle_model_open(o->config, newer_p, &model));
  REFUSED(treadle_model_tensor(o->model, -1, &info));
  REFUSED(treadle_model_tensor(o->model, treadle_model_tensor_count(o->model), &info));
  GIVES(NULL, treadle_model_family(NULL));
  GIVES(-1, treadle_model_elems(NULL));
  GIVES(-1, treadle_model_bytes(NULL));
  GIVES(false, treadle_model_has_weights(NULL));
  GIVES(TREADLE_WEIGHTS_NONE, treadle_model_weights(NULL));
  char line[64];
  REFUSED(treadle_model_unheard(NULL, line, sizeof line));
  REFUSED(treadle_model_unheard(o->model, NULL, 0));
  assert_ok(treadle_model_unheard(o->model, line, sizeof line));
  REFUSED(treadle_model_need_weights(NULL));
  for (size_t i = 0; i < TEST_COUNT(no_enums); i++) {
    const treadle_model_options wrong = {.struct_size = sizeof wrong,
                                         .weights = (treadle_weights)no_enums[i]};
    REFUSED(treadle_model_open(o->config, &wrong, &model));
    const treadle_model_options other = {.struct_size = sizeof other, .head = (treadle_head)no_enums[i]};
    REFUSED(treadle_model_open(o->config, &other, &model));
  }
  WORKS(treadle_model_close(NULL));
}

static void layouts(objects *o) {
  treadle_layout *layout = o->train;
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  treadle_run *runs;
  size_t count;
  REFUSED(treadle_layout_create(NULL, "hf", 1, NULL, &layout));
  assert_null(layout);
  REFUSED(treadle_layout_create(o->model, NULL, 1, NULL, &layout));
  REFUSED(treadle_layout_create(o->model, "", 1, NULL, &layout));
  REFUSED(treadle_layout_create(o->model, "hf", 1, NULL, NULL));
  REFUSED(treadle_layout_create(o->model, "hf", 0, NULL, &layout));
  REFUSED(treadle_layout_create(o->model, "hf", INT64_MIN, NULL, &layout));
  REFUSED(treadle_layout_create(o->model, "hf", INT64_MAX, NULL, &layout));
  treadle_layout_options options = {.struct_size = sizeof options, .rank_map = TREADLE_STRIDED};
  REFUSED(treadle_layout_create(o->model, "vllm:tp=1", 1, &options, &layout));
  options.train = o->wide;
  REFUSED(treadle_layout_create(o->model, "vllm:tp=1", 1, &options, &layout));
  options.train = o->foreign;
  REFUSED(treadle_layout_create(o->model, "vllm:tp=1", 1, &options, &layout));
  options.train = o->train;
  REFUSED_SIZES(options, treadle_layout_create(o->model, "vllm:tp=1", 1, &options, &layout));
  REFUSED_NEWER(treadle_layout_options, treadle_layout_create(o->model, "vllm:tp=1", 1, newer_p, &layout));
  for (size_t i = 0; i < TEST_COUNT(no_enums); i++) {
    options.rank_map = (treadle_rank_map)no_enums[i];
    REFUSED(treadle_layout_create(o->model, "vllm:tp=1", 1, &options, &layout));
    assert_null(layout);
  }
  GIVES(false, treadle_layout_is_train(NULL));
  GIVES(false, treadle_layout_holds(NULL, 0));
  GIVES(-1, treadle_layout_find(NULL, 0, "x"));
  GIVES(-1, treadle_layout_find(o->train, 0, NULL));
  GIVES(-1, treadle_layout_find(o->train, 0, "no such tensor"));
  GIVES(NULL, treadle_layout_rank_map(NULL));
  GIVES(NULL, treadle_layout_text(NULL));
  GIVES(-1, treadle_layout_ranks(NULL));
  GIVES(0, treadle_layout_window_bytes(NULL, 0));
  GIVES(-1, treadle_layout_storage_count(NULL, 0));
  REFUSED(treadle_layout_storage(NULL, 0, 0, &info));
  REFUSED(treadle_layout_storage(o->train, 0, 0, NULL));
  REFUSED_SIZES(info, treadle_layout_storage(o->train, 0, 0, &info));
  REFUSED(treadle_layout_runs(NULL, 0, 0, &runs, &count));
  REFUSED(treadle_layout_runs(o->train, 0, 0, NULL, &count));
  REFUSED(treadle_layout_runs(o->train, 0, 0, &runs, NULL));
  REFUSED(treadle_layout_load(NULL, 0, o->memory));
  REFUSED(treadle_layout_load(o->train, 0, NULL));
  REFUSED(treadle_layout_load_weights(NULL, 0, TREADLE_WEIGHTS_NONE, o->memory));
  REFUSED(treadle_layout_load_weights(o->train, 0, TREADLE_WEIGHTS_RANDOM, NULL));
  REFUSED(treadle_layout_load_weights(o->train, 0, TREADLE_WEIGHTS_FILES, o->memory)); /* there are none */
  for (size_t i = 0; i < TEST_COUNT(no_enums); i++)
    REFUSED(treadle_layout_load_weights(o->train, 0, (treadle_weights)no_enums[i], o->memory));
  treadle_save_options save = TREADLE_INIT(treadle_save_options);
  REFUSED(treadle_layout_save(NULL, NULL, o->memory, o->config, NULL));
  REFUSED(treadle_layout_save(NULL, o->train, NULL, "/nowhere/at/all", NULL));
  REFUSED(treadle_layout_save(NULL, o->train, o->memory, NULL, NULL));
  REFUSED(treadle_layout_save(NULL, o->train, o->memory, "", NULL));
  REFUSED(treadle_layout_save(NULL, o->train, o->memory, o->folder, NULL)); /* it is not empty */
  REFUSED(treadle_layout_save(NULL, o->wide, o->memory, "/nowhere/at/all", NULL));
  REFUSED_SIZES(save, treadle_layout_save(NULL, o->train, o->memory, "/nowhere/at/all", &save));
  REFUSED_NEWER(treadle_save_options,
                treadle_layout_save(NULL, o->train, o->memory, "/nowhere/at/all", newer_p));
  for (size_t i = 0; i < TEST_COUNT(no_enums); i++) {
    save.dtype = (treadle_dtype)no_enums[i];
    REFUSED(treadle_layout_save(NULL, o->train, o->memory, "/nowhere/at/all", &save));
  }
  for (size_t i = 0; i < TEST_COUNT(no_ranks); i++) {
    GIVES(0, treadle_layout_window_bytes(o->train, no_ranks[i]));
    GIVES(-1, treadle_layout_storage_count(o->train, no_ranks[i]));
    GIVES(-1, treadle_layout_find(o->train, no_ranks[i], "x"));
    REFUSED(treadle_layout_storage(o->train, no_ranks[i], 0, &info));
    REFUSED(treadle_layout_runs(o->train, no_ranks[i], 0, &runs, &count));
    REFUSED(treadle_layout_load(o->train, no_ranks[i], o->memory));
    REFUSED(treadle_layout_load_weights(o->train, no_ranks[i], TREADLE_WEIGHTS_RANDOM, o->memory));
  }
  const int32_t no_storages[] = {-1, INT32_MIN, treadle_layout_storage_count(o->train, 0), INT32_MAX};
  for (size_t i = 0; i < TEST_COUNT(no_storages); i++) {
    REFUSED(treadle_layout_storage(o->train, 0, no_storages[i], &info));
    REFUSED(treadle_layout_runs(o->train, 0, no_storages[i], &runs, &count));
    assert_null(runs);
  }
  WORKS(treadle_layout_destroy(NULL));
}

/* The first piece with one number changed. */
#define REFUSED_PIECE(change)                                                                              \
  do {                                                                                                     \
    treadle_explicit_piece *p = memcpy(wrong, o->pieces, sizeof o->pieces);                                \
    change;                                                                                                \
    REFUSED(treadle_layout_from_pieces(o->model, 1, wrong, o->piece_count, &layout));                      \
    assert_null(layout);                                                                                   \
  } while (0)

static void pieces(objects *o) {
  static treadle_explicit_piece wrong[OBJECTS_PIECES];
  treadle_layout *layout = NULL;
  assert_ok(treadle_layout_from_pieces(o->model, 1, o->pieces, o->piece_count, &layout));
  treadle_layout_destroy(layout);
  REFUSED(treadle_layout_from_pieces(NULL, 1, o->pieces, o->piece_count, &layout));
  assert_null(layout);
  REFUSED(treadle_layout_from_pieces(o->model, 1, NULL, o->piece_count, &layout));
  REFUSED(treadle_layout_from_pieces(o->model, 1, NULL, 0, &layout)); /* no tensor has a place */
  REFUSED(treadle_layout_from_pieces(o->model, 1, o->pieces, o->piece_count, NULL));
  REFUSED(treadle_layout_from_pieces(o->model, 0, o->pieces, o->piece_count, &layout));
  REFUSED(treadle_layout_from_pieces(o->model, -1, o->pieces, o->piece_count, &layout));
  REFUSED_PIECE(p->storage = NULL);
  REFUSED_PIECE(p->storage = "");
  REFUSED_PIECE(p->tensor = NULL);
  REFUSED_PIECE(p->tensor = "no such tensor");
  for (size_t i = 0; i < TEST_COUNT(no_enums); i++) {
    REFUSED_PIECE(p->dtype = (treadle_dtype)no_enums[i]);
    REFUSED_PIECE(p->storage_ndim = no_enums[i]);
  }
  REFUSED_PIECE(p->storage_ndim = 0);
  REFUSED_PIECE(p->storage_ndim = 5);
  static const int64_t numbers[] = {-1, INT64_MIN, INT64_MAX, INT64_MAX / 2};
  for (size_t i = 0; i < TEST_COUNT(numbers); i++) {
    REFUSED_PIECE(p->rank = numbers[i]);
    REFUSED_PIECE(p->storage_shape[0] = numbers[i]);
    REFUSED_PIECE(p->start[0] = numbers[i]);
    REFUSED_PIECE(p->size[0] = numbers[i]);
    REFUSED_PIECE(p->offset = numbers[i]);
    REFUSED_PIECE(p->stride[0] = numbers[i]);
  }
}

static void placements(objects *o) {
  const treadle_placed_mesh mesh = {.ndim = 1, .size = {1}};
  treadle_placed_tensor tensors[OBJECTS_PIECES];
  treadle_layout *layout = NULL;
  size_t count = o->piece_count;
  for (size_t i = 0; i < count; i++) tensors[i] = (treadle_placed_tensor){.tensor = o->pieces[i].tensor};
  assert_ok(treadle_layout_from_placements(o->model, 1, &mesh, 1, tensors, count, &layout));
  treadle_layout_destroy(layout);
  layout = NULL;
  REFUSED(treadle_layout_from_placements(NULL, 1, &mesh, 1, tensors, count, &layout));
  assert_null(layout);
  REFUSED(treadle_layout_from_placements(o->model, 1, NULL, 1, tensors, count, &layout));
  REFUSED(treadle_layout_from_placements(o->model, 1, NULL, 0, tensors, count,
                                         &layout)); /* there is no mesh 0 */
  REFUSED(treadle_layout_from_placements(o->model, 1, &mesh, 1, NULL, count, &layout));
  REFUSED(
      treadle_layout_from_placements(o->model, 1, &mesh, 1, NULL, 0, &layout)); /* no tensor has a place */
  REFUSED(treadle_layout_from_placements(o->model, 1, &mesh, 1, tensors, count, NULL));
  REFUSED(treadle_layout_from_placements(o->model, 0, &mesh, 1, tensors, count, &layout));
  REFUSED(treadle_layout_from_placements(o->model, -1, &mesh, 1, tensors, count, &layout));
  assert_null(layout);
  for (size_t i = 0; i < count; i++) tensors[i].mesh = -1;
  assert_ok(treadle_layout_from_placements(o->model, 1, NULL, 0, tensors, count, &layout));
  treadle_layout_destroy(layout);
}

static void plans(objects *o) {
  treadle_plan *plan = o->plan;
  treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
  treadle_storage_info storage = TREADLE_INIT(treadle_storage_info);
  size_t bytes = 7;
  REFUSED(treadle_plan_create(NULL, o->infer, 0, NULL, &plan));
  assert_null(plan);
  REFUSED(treadle_plan_create(o->train, NULL, 0, NULL, &plan));
  REFUSED(treadle_plan_create(o->train, o->infer, 0, NULL, NULL));
  REFUSED(treadle_plan_create(o->train, o->foreign, 0, NULL, &plan));
  REFUSED(treadle_plan_create(o->train, o->wide, 0, NULL, &plan));
  for (size_t i = 0; i < TEST_COUNT(no_ranks); i++)
    REFUSED(treadle_plan_create(o->train, o->infer, no_ranks[i], NULL, &plan));
  const treadle_plan_options wrong[] = {
      {.struct_size = sizeof(treadle_plan_options), .page_bytes = 1},
      {.struct_size = sizeof(treadle_plan_options), .page_bytes = 5000},
      {.struct_size = sizeof(treadle_plan_options), .page_bytes = SIZE_MAX},
      {.struct_size = sizeof(treadle_plan_options), .page_bytes = (size_t)1 << 63},
      {.struct_size = sizeof(treadle_plan_options), .cap_bytes = SIZE_MAX},
      {.struct_size = sizeof(treadle_plan_options), .cap_bytes = (size_t)INT64_MAX + 1},
      {.struct_size = sizeof(treadle_plan_options), .waves = -1},
      {.struct_size = sizeof(treadle_plan_options), .waves = INT32_MAX}};
  for (size_t i = 0; i < TEST_COUNT(wrong); i++)
    REFUSED(treadle_plan_create(o->train, o->infer, 0, &wrong[i], &plan));
  memset(&info, 1, sizeof info);
  info.struct_size = sizeof info;
  NOTHING(treadle_plan_get_info(NULL, &info));
  assert_int_equal(info.from_bytes + info.digest, 0);
  NOTHING(treadle_plan_get_info(o->plan, NULL));
  info.struct_size = 0;
  NOTHING(treadle_plan_get_info(o->plan, &info));
  assert_int_equal(info.from_bytes, 0);
  treadle_plan_options given = TREADLE_INIT(treadle_plan_options);
  REFUSED_SIZES(given, treadle_plan_create(o->train, o->infer, 0, &given, &plan));
  REFUSED_NEWER(treadle_plan_options, treadle_plan_create(o->train, o->infer, 0, newer_p, &plan));
  REFUSED_SIZES(storage, treadle_plan_storage(o->plan, 0, &storage));
  NOTHING(treadle_plan_inbound(NULL, &bytes));
  assert_int_equal(bytes, 7);
  NOTHING(treadle_plan_inbound(o->plan, NULL));
  REFUSED(treadle_plan_storage(NULL, 0, &storage));
  REFUSED(treadle_plan_storage(o->plan, 0, NULL));
  REFUSED(treadle_plan_storage(o->plan, -1, &storage));
  REFUSED(treadle_plan_storage(o->plan, INT32_MAX, &storage));
  GIVES(-1, treadle_plan_find(NULL, "x"));
  GIVES(false, treadle_plan_shares(NULL, 0));
  GIVES(false, treadle_plan_shares(o->plan, -1));
  GIVES(false, treadle_plan_shares(o->plan, INT64_MAX));
  GIVES(-1, treadle_plan_find(o->plan, NULL));
  GIVES(-1, treadle_plan_find(o->plan, "no such tensor"));
  REFUSED(treadle_plan_print(NULL, stdout));
  REFUSED(treadle_plan_print(o->plan, NULL));
  WORKS(treadle_plan_destroy(NULL));
}

static void reports(objects *o) {
  treadle_report *report = o->report;
  treadle_report_info info = TREADLE_INIT(treadle_report_info);
  treadle_plan_info one = TREADLE_INIT(treadle_plan_info);
  treadle_node_info node = TREADLE_INIT(treadle_node_info);
  treadle_cut_info cut = TREADLE_INIT(treadle_cut_info);
  treadle_report_options given = TREADLE_INIT(treadle_report_options);
  size_t bytes;
  REFUSED(treadle_report_create(NULL, o->infer, NULL, &report));
  assert_null(report);
  REFUSED(treadle_report_create(o->train, NULL, NULL, &report));
  REFUSED(treadle_report_create(o->train, o->infer, NULL, NULL));
  REFUSED(treadle_report_create(o->train, o->foreign, NULL, &report));
  REFUSED(treadle_report_create(o->train, o->wide, NULL, &report));
  REFUSED_SIZES(given, treadle_report_create(o->train, o->infer, &given, &report));
  REFUSED_NEWER(treadle_report_options, treadle_report_create(o->train, o->infer, newer_p, &report));
  static const size_t sizes[] = {1, 5000, SIZE_MAX, (size_t)1 << 63};
  for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
    given = (treadle_report_options){.struct_size = sizeof given, .page_bytes = sizes[i]};
    REFUSED(treadle_report_create(o->train, o->infer, &given, &report));
  }
  for (size_t i = 2; i < TEST_COUNT(sizes); i++) {
    given = (treadle_report_options){.struct_size = sizeof given, .cap_bytes = sizes[i]};
    REFUSED(treadle_report_create(o->train, o->infer, &given, &report));
    given = (treadle_report_options){.struct_size = sizeof given, .budget_bytes = sizes[i]};
    REFUSED(treadle_report_create(o->train, o->infer, &given, &report));
  }
  for (size_t i = 0; i < TEST_COUNT(no_ranks); i++) {
    given = (treadle_report_options){.struct_size = sizeof given, .one_rank = true, .rank = no_ranks[i]};
    REFUSED(treadle_report_create(o->train, o->infer, &given, &report));
    REFUSED(treadle_report_rank(o->report, no_ranks[i], &one));
    REFUSED(treadle_report_inbound(o->report, no_ranks[i], &bytes));
  }
  info.ranks = 7;
  NOTHING(treadle_report_get_info(NULL, &info));
  assert_int_equal(info.ranks, 0);
  NOTHING(treadle_report_get_info(o->report, NULL));
  REFUSED(treadle_report_rank(NULL, 0, &one));
  REFUSED(treadle_report_rank(o->report, 0, NULL));
  REFUSED_SIZES(one, treadle_report_rank(o->report, 0, &one));
  REFUSED(treadle_report_node(NULL, 0, &node));
  REFUSED(treadle_report_node(o->report, 0, NULL));
  REFUSED(treadle_report_node(o->report, 1, &node)); /* there is one */
  REFUSED(treadle_report_node(o->report, -1, &node));
  REFUSED_SIZES(node, treadle_report_node(o->report, 0, &node));
  REFUSED(treadle_report_inbound(NULL, 0, &bytes));
  REFUSED(treadle_report_inbound(o->report, 0, NULL));
  REFUSED(treadle_layout_largest_cut(NULL, &cut));
  REFUSED(treadle_layout_largest_cut(o->train, NULL));
  REFUSED_SIZES(cut, treadle_layout_largest_cut(o->train, &cut));
  WORKS(treadle_report_destroy(NULL));
}

static void stores(void) {
  static const char *const no_addresses[] = {
      NULL,           "",          "localhost",       "localhost:",   ":7000",
      "[::1]",        "1.2.3.4:0", "1.2.3.4:x",       "::1:7000",     "[]:7000",
      "0.0.0.0:7000", "[::]:7000", "127.0.0.1:65536", "127.0.0.1:-1", "[::ffff:0.0.0.0]:7000"};
  treadle_store store = TREADLE_INIT(treadle_store);
  const treadle_store_options good = {.struct_size = sizeof good,
                                      .address = "127.0.0.1:1",
                                      .job = "job",
                                      .ranks = 1,
                                      .timeout_seconds = 0.1};
  char long_job[202] = "";
  memset(long_job, 'j', sizeof long_job - 1);
  const char *const no_jobs[] = {NULL, "", long_job};
  const int no_ranks_of[][2] = {{-1, 1}, {1, 1}, {0, 0}, {0, -1}, {0, 1025}, {INT32_MAX, INT32_MAX}};
  treadle_store_options bad = good;
  REFUSED(treadle_store_open(NULL, &store));
  REFUSED(treadle_store_open(&good, NULL));
  for (size_t i = 0; i < TEST_COUNT(no_addresses); i++) {
    bad.address = no_addresses[i];
    REFUSED(treadle_store_open(&bad, &store));
    assert_null(store.set);
  }
  for (size_t i = 0; i < TEST_COUNT(no_jobs); i++) {
    bad = good;
    bad.job = no_jobs[i];
    REFUSED(treadle_store_open(&bad, &store));
  }
  for (size_t i = 0; i < TEST_COUNT(no_ranks_of); i++) {
    bad = good;
    bad.rank = no_ranks_of[i][0];
    bad.ranks = no_ranks_of[i][1];
    REFUSED(treadle_store_open(&bad, &store));
  }
  for (size_t i = 0; i < TEST_COUNT(no_seconds); i++) {
    bad = good;
    bad.timeout_seconds = no_seconds[i];
    if (no_seconds[i] != 0) REFUSED(treadle_store_open(&bad, &store));
  }
  REFUSED_SIZES(store, treadle_store_open(&good, &store));
  WORKS(treadle_store_close(NULL));
  WORKS(treadle_store_close(&store));
}

static treadle_status open_net(const treadle_net_options *options, void **net_p) {
  (void)options;
  *net_p = NULL;
  return treadle_error_set(TREADLE_REFUSED, "nobody opens it");
}
static treadle_status address(void *net, void *room, size_t capacity, size_t *bytes_p) {
  (void)net, (void)room, (void)capacity;
  *bytes_p = 0;
  return TREADLE_OK;
}
static treadle_status reach(void *net, int peer, const void *bytes, size_t count) {
  (void)net, (void)peer, (void)bytes, (void)count;
  return TREADLE_OK;
}
static treadle_status begin(void *net, int peer, uint64_t tag, const treadle_net_part *parts, int count,
                            void **request_p) {
  (void)net, (void)peer, (void)tag, (void)parts, (void)count;
  *request_p = NULL;
  return TREADLE_OK;
}
static treadle_status test(void *net, void *request, bool *done_p) {
  (void)net, (void)request;
  *done_p = true;
  return TREADLE_OK;
}
static void pass(void *net, double seconds) { (void)net, (void)seconds; }
static void cancel(void *net, void *request) { (void)net, (void)request; }
static void close_net(void *net) { (void)net; }

static void nets(objects *o) {
  static const treadle_net_ops good = {.struct_size = sizeof good,
                                       .name = "mine",
                                       .memory = TREADLE_NET_HOST,
                                       .most_parts = 1,
                                       .open = open_net,
                                       .address = address,
                                       .connect = reach,
                                       .send = begin,
                                       .receive = begin,
                                       .test = test,
                                       .wait = pass,
                                       .cancel = cancel,
                                       .close = close_net};
  treadle_net_ops bad[15];
  for (size_t i = 0; i < TEST_COUNT(bad); i++) bad[i] = good;
  bad[0].struct_size = 8;
  bad[1].name = NULL;
  bad[2].name = "";
  bad[3].open = NULL;
  bad[4].address = NULL;
  bad[5].connect = NULL;
  bad[6].send = NULL;
  bad[7].receive = NULL;
  bad[8].test = NULL;
  bad[9].wait = NULL;
  bad[10].cancel = NULL;
  bad[11].close = NULL;
  bad[12].most_parts = 0;
  bad[13].memory = TREADLE_NET_CUDA;
  bad[14].memory = 0;
  REFUSED(treadle_group_set_net(NULL, &good, NULL));
  REFUSED(treadle_group_set_net(o->group, NULL, NULL));
  for (size_t i = 0; i < TEST_COUNT(bad); i++) REFUSED(treadle_group_set_net(o->group, &bad[i], NULL));
  REFUSED(treadle_group_choose_net(NULL, "tcp"));
  REFUSED(treadle_group_choose_net(o->group, NULL));
  REFUSED(treadle_group_choose_net(o->group, "threads"));
  REFUSED(treadle_group_choose_net(o->group, "carrier pigeons"));
  WORKS(treadle_group_choose_net(o->group, "tcp"));
  WORKS(treadle_group_set_net(o->group, &good, NULL)); /* used by tests of ranks on several nodes */
}

/* Every function of the table is asked for. (tests/core/memory/device_far.c has a whole one.) */
static void devices(objects *o) {
  (void)o;
  treadle_op op = {.ndim = 1, .size = {1}};
  REFUSED(treadle_device_register(TREADLE_MEMORY_HOST, &device_far_ops));
  REFUSED(treadle_device_register((treadle_memory_kind)-1, &device_far_ops));
  REFUSED(treadle_device_register((treadle_memory_kind)(TREADLE_MEMORY_CUDA + 1), &device_far_ops));
  for (size_t at = 0; at < sizeof device_far_ops / sizeof(void *); at++) {
    treadle_device_ops bad = device_far_ops;
    memset((void **)(void *)&bad + at, 0, sizeof(void *));
    if (memcmp(&bad, &device_far_ops, sizeof bad) == 0 || bad.net_memory == 0) continue;
    REFUSED(treadle_device_register(TREADLE_MEMORY_CUDA, &bad));
  }
  treadle_device_ops plain = device_far_ops, with = device_far_ops;
  plain.move = NULL;
  with.plain = &plain;
  REFUSED(treadle_device_register(TREADLE_MEMORY_CUDA, &with));
  WORKS(treadle_device_register(TREADLE_MEMORY_CUDA, &device_far_ops));
  WORKS(treadle_device_register(TREADLE_MEMORY_CUDA, NULL));
  GIVES(0, treadle_op_mark(NULL));
  assert_true(treadle_op_mark(&op) != 0);
}

static void groups(objects *o) {
  treadle_group *group = o->group;
  char all[64], name[32];
  snprintf(name, sizeof name, "arguments%d", (int)getpid());
  REFUSED(treadle_group_self(NULL));
  REFUSED(treadle_group_open(NULL, 0, 1, 1, &group));
  assert_null(group);
  REFUSED(treadle_group_open(name, 0, 1, 1, NULL));
  REFUSED(treadle_group_open("", 0, 1, 1, &group));
  REFUSED(treadle_group_open("a b", 0, 1, 1, &group));
  REFUSED(treadle_group_open(name, -1, 1, 1, &group));
  REFUSED(treadle_group_open(name, 1, 1, 1, &group));
  REFUSED(treadle_group_open(name, 0, 0, 1, &group));
  REFUSED(treadle_group_open(name, 0, INT32_MIN, 1, &group));
  REFUSED(treadle_group_open(name, 0, INT32_MAX, 1, &group));
  REFUSED(treadle_group_open(name, 0, 2, 0, &group));
  for (size_t i = 0; i < TEST_COUNT(no_seconds); i++) {
    REFUSED(treadle_group_open(name, 0, 2, no_seconds[i], &group));
    REFUSED(treadle_group_open(name, 1, 2, no_seconds[i], &group));
  }
  treadle_store store = TREADLE_INIT(treadle_store);
  REFUSED(treadle_group_store(NULL, 0, 1, -1, 1, &group));
  REFUSED(treadle_group_store(&store, 0, 1, -1, 1, &group)); /* the rest: meet/test_group_store.c */
  REFUSED(treadle_group_store(&store, 0, 1, -1, 1, NULL));
  REFUSED(treadle_group_nodes(NULL, 0, 1, 0, 1, &group));
  REFUSED(treadle_group_nodes(&store, 0, 1, 0, 1, &group));
  REFUSED(treadle_group_nodes(&store, 0, 1, 0, 1, NULL));
  stores();
  GIVES(TREADLE_TIMEOUT, treadle_error_set(TREADLE_TIMEOUT, NULL));
  WORKS(treadle_thread_watch(NULL, NULL));
  REFUSED(treadle_group_mpi(NULL, 1, NULL)); /* the rest: group/test_group_mpi.c */
  GIVES(-1, treadle_group_rank(NULL));
  GIVES(-1, treadle_group_size(NULL));
  GIVES(-1, treadle_group_node(NULL, 0));
  nets(o);
  REFUSED(treadle_group_barrier(NULL));
  REFUSED(treadle_group_refuse(NULL, TREADLE_STATE, "why"));
  REFUSED(treadle_group_refuse(o->group, TREADLE_STATE, NULL));
  REFUSED(treadle_group_refuse(o->group, TREADLE_OK, "why"));
  REFUSED(treadle_group_refuse(o->group, (treadle_status)99, "why"));
  GIVES(TREADLE_STATE, treadle_group_refuse(o->group, TREADLE_STATE, "why"));
  treadle_group *part;
  REFUSED(treadle_group_split(NULL, 0, 0, &part));
  REFUSED(treadle_group_split(o->group, 0, 0, NULL));
  REFUSED(treadle_group_split(o->group, -2, 0, &part));
  REFUSED(treadle_group_gather(NULL, all, 1, all));
  REFUSED(treadle_group_gather(o->group, NULL, 1, all));
  REFUSED(treadle_group_gather(o->group, all, 1, NULL));
  REFUSED(treadle_group_gather(o->group, all, 4097, all));
  REFUSED(treadle_group_gather(o->group, all, SIZE_MAX, all));
  assert_ok(treadle_group_gather(o->group, NULL, 0, NULL));
  WORKS(treadle_group_close(NULL));
}

static void switch_options(objects *o) {
  treadle_switch *sw = o->sw;
  treadle_switch_options options = {.struct_size = sizeof(treadle_switch_options)};
  REFUSED(treadle_switch_create(NULL, o->train, o->infer, NULL, &sw));
  REFUSED(treadle_switch_create(o->second, NULL, o->infer, NULL, &sw));
  assert_null(sw);
  REFUSED(treadle_switch_create(o->second, o->train, NULL, NULL, &sw));
  REFUSED(treadle_switch_create(o->second, o->train, o->infer, NULL, NULL));
  REFUSED(treadle_switch_create(o->second, o->train, o->wide, NULL, &sw));
  REFUSED(treadle_switch_create(o->second, o->train, o->foreign, NULL, &sw));
  for (size_t i = 0; i < TEST_COUNT(no_enums) + TEST_COUNT(no_seconds); i++) {
    for (int field = 0; field < 4; field++) {
      size_t k = i < TEST_COUNT(no_enums) ? i : i - TEST_COUNT(no_enums);
      options = (treadle_switch_options){.struct_size = sizeof(treadle_switch_options)};
      if (i >= TEST_COUNT(no_enums))
        options.timeout_seconds = no_seconds[k];
      else if (field == 0)
        options.keep = (treadle_keep)no_enums[k];
      else if (field == 1)
        options.offload_train_param = (treadle_choice)no_enums[k];
      else if (field == 2)
        options.offload_train_grad = (treadle_choice)no_enums[k];
      else
        options.offload_train_optimizer = (treadle_choice)no_enums[k];
      REFUSED(treadle_switch_create(o->second, o->train, o->infer, &options, &sw));
    }
  }
  static const size_t sizes[] = {SIZE_MAX, (size_t)1 << 63, ((size_t)1 << 63) + 4096};
  for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
    const treadle_switch_options wrong[] = {
        {.struct_size = sizeof(treadle_switch_options), .page_bytes = sizes[i]},
        {.struct_size = sizeof(treadle_switch_options), .cap_bytes = sizes[i]},
        {.struct_size = sizeof(treadle_switch_options), .budget_bytes = sizes[i]},
        {.struct_size = sizeof(treadle_switch_options), .grads_bytes = sizes[i]},
        {.struct_size = sizeof(treadle_switch_options), .optimizer_bytes = sizes[i]},
        {.struct_size = sizeof(treadle_switch_options), .kv_block_bytes = sizes[i]},
        {.struct_size = sizeof(treadle_switch_options), .kv_bytes = sizes[i]},
        {.struct_size = sizeof(treadle_switch_options), .memory = {.kind = (treadle_memory_kind)9}}};
    for (size_t k = 0; k < TEST_COUNT(wrong); k++)
      REFUSED(treadle_switch_create(o->second, o->train, o->infer, &wrong[k], &sw));
  }
  treadle_engine_hooks hooks = TREADLE_INIT(treadle_engine_hooks);
  options = (treadle_switch_options){.struct_size = sizeof options, .engine = &hooks};
  REFUSED_SIZES(hooks, treadle_switch_create(o->second, o->train, o->infer, &options, &sw));
  REFUSED_SIZES(options, treadle_switch_create(o->second, o->train, o->infer, &options, &sw));
  REFUSED_NEWER(treadle_switch_options, treadle_switch_create(o->second, o->train, o->infer, newer_p, &sw));
  treadle_own_tensor own = {.storage = -1, .memory = o->memory, .bytes = 8};
  options =
      (treadle_switch_options){.struct_size = sizeof options, .own_train = &own, .own_train_count = 1};
  REFUSED(treadle_switch_create(o->second, o->train, o->infer, &options, &sw));
  own.storage = 0;
  REFUSED(treadle_switch_create(o->second, o->train, o->infer, &options, &sw)); /* its size */
  options.own_train = NULL;
  REFUSED(treadle_switch_create(o->second, o->train, o->infer, &options, &sw));
  assert_ok(treadle_group_barrier(o->second)); /* the group is none the worse */
}

static void switches(objects *o) {
  size_t bytes = 7;
  bool done = true;
  uint64_t digest;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  memset(&stats, 1, sizeof stats);
  stats.struct_size = sizeof stats;
  REFUSED(treadle_switch_rejoin(NULL, o->second));
  REFUSED(treadle_switch_rejoin(o->sw, NULL));
  GIVES(NULL, treadle_switch_window(NULL, TREADLE_PARAMS, &bytes));
  assert_int_equal(bytes, 0);
  bytes = 7;
  GIVES(NULL, treadle_switch_tensor(NULL, TREADLE_PARAMS, 0, &bytes));
  assert_int_equal(bytes, 0);
  GIVES(NULL, treadle_switch_tensor(o->sw, TREADLE_GRADS, 0, &bytes));
  GIVES(NULL, treadle_switch_tensor(o->sw, TREADLE_PARAMS, -1, NULL));
  GIVES(NULL, treadle_switch_tensor(o->sw, TREADLE_INFER_PARAMS, INT32_MAX, &bytes));
  GIVES(NULL, treadle_switch_train_window(NULL));
  GIVES(NULL, treadle_switch_infer_window(NULL));
  GIVES(TREADLE_LOST, treadle_switch_mode(NULL));
  GIVES(0, treadle_switch_version(NULL));
  GIVES(NULL, treadle_switch_plan(NULL));
  GIVES(0, treadle_switch_resident(NULL, TREADLE_PARAMS));
  GIVES(0, treadle_switch_bound(NULL));
  GIVES(0, treadle_switch_pool_bound(NULL));
  NOTHING(treadle_switch_accumulate(NULL, true));
  REFUSED(treadle_switch_filled(NULL));
  REFUSED(treadle_switch_tensor_filled(NULL, 0));
  REFUSED(treadle_switch_tensor_filled(o->sw, -1));
  REFUSED(treadle_switch_tensor_filled(o->sw, INT32_MAX));
  REFUSED(treadle_switch_to_infer(NULL));
  REFUSED(treadle_switch_to_train(NULL));
  REFUSED(treadle_switch_to_forward(NULL));
  REFUSED(treadle_switch_to_host(NULL));
  REFUSED(treadle_switch_trim(NULL));
  REFUSED(treadle_switch_start(NULL, TREADLE_INFER));
  REFUSED(treadle_switch_start(o->sw, TREADLE_LOST));
  REFUSED(treadle_switch_update(NULL));
  REFUSED(treadle_switch_start_update(NULL));
  GIVES(TREADLE_STATE, treadle_switch_update(o->sw)); /* in mode TRAIN */
  GIVES(TREADLE_STATE, treadle_switch_start_update(o->sw));
  GIVES(false, treadle_switch_is_valid(NULL));
  REFUSED(treadle_switch_test(NULL, &done));
  REFUSED(treadle_switch_test(o->sw, NULL));
  GIVES(TREADLE_STATE, treadle_switch_test(o->sw, &done)); /* nothing was started */
  assert_false(done);
  REFUSED(treadle_switch_wait(NULL));
  GIVES(TREADLE_STATE, treadle_switch_wait(o->sw));
  REFUSED(treadle_switch_cancel(NULL));
  GIVES(TREADLE_STATE, treadle_switch_cancel(o->sw));
  NOTHING(treadle_switch_get_stats(NULL, &stats));
  assert_int_equal(stats.pool_bytes + stats.peak_bytes, 0);
  NOTHING(treadle_switch_get_stats(o->sw, NULL));
  stats.struct_size = 3;
  NOTHING(treadle_switch_get_stats(o->sw, &stats));
  assert_int_equal(stats.pool_bytes, 0);
  REFUSED(treadle_switch_digest(NULL, &digest));
  REFUSED(treadle_switch_digest(o->sw, NULL));
  for (size_t i = 0; i < TEST_COUNT(no_enums); i++) {
    treadle_class which = (treadle_class)no_enums[i];
    REFUSED(treadle_switch_start(o->sw, (treadle_mode)no_enums[i]));
    GIVES(NULL, treadle_switch_window(o->sw, which, &bytes));
    GIVES(NULL, treadle_switch_tensor(o->sw, which, 0, &bytes));
    GIVES(0, treadle_switch_resident(o->sw, which));
    REFUSED(treadle_switch_register(o->sw, which, 0, o->memory, 64));
  }
  REFUSED(treadle_switch_register(NULL, TREADLE_GRADS, 0, o->memory, 64));
  REFUSED(treadle_switch_register(o->sw, TREADLE_GRADS, 0, NULL, 64));
  REFUSED(treadle_switch_register(o->sw, TREADLE_GRADS, 0, o->memory, 0));
  REFUSED(treadle_switch_register(o->sw, TREADLE_GRADS, 0, o->memory, SIZE_MAX));
  REFUSED(treadle_switch_register(o->sw, TREADLE_GRADS, 0, o->memory, (size_t)1 << 63));
  REFUSED(treadle_switch_register(o->sw, TREADLE_GRADS, 0, o->memory + 1, 64));
  REFUSED(treadle_switch_register(o->sw, TREADLE_GRADS, SIZE_MAX, o->memory, 64));
  REFUSED(treadle_switch_register(o->sw, TREADLE_PARAMS, SIZE_MAX - 15, o->memory, 64));
  REFUSED(treadle_switch_register(o->sw, TREADLE_GRADS, 0, o->memory, o->bytes + 16)); /* read only */
  REFUSED(treadle_switch_register(o->sw, TREADLE_GRADS, 0, o->memory + o->bytes, 64));
  REFUSED(treadle_switch_register(o->sw, TREADLE_GRADS, 0, o->memory + o->bytes + OBJECTS_PAGE, 64));
  WORKS(treadle_switch_destroy(NULL));
  assert_ok(treadle_switch_to_infer(o->sw)); /* the switch is none the worse */
  assert_ok(treadle_switch_to_train(o->sw));
}

static void conversions(objects *o) {
  treadle_convert *convert = NULL;
  treadle_convert_figures figures = TREADLE_INIT(treadle_convert_figures);
  char out[64];
  snprintf(out, sizeof out, "%s/out", o->folder);
  treadle_convert_options good = {
      .struct_size = sizeof good, .in = o->folder, .out = out, .from = "hf", .to = "hf"};
  treadle_convert_options wrong = good;
  REFUSED(treadle_convert_open(NULL, &convert));
  REFUSED(treadle_convert_open(&good, NULL));
  REFUSED_SIZES(wrong, treadle_convert_open(&wrong, &convert));
  REFUSED_NEWER(treadle_convert_options, treadle_convert_open(newer_p, &convert));
  const char **const texts[] = {&wrong.in, &wrong.out, &wrong.from, &wrong.to};
  for (size_t i = 0; i < TEST_COUNT(texts); i++) {
    wrong = good;
    *texts[i] = NULL;
    REFUSED(treadle_convert_open(&wrong, &convert));
    *texts[i] = "";
    WORKS(assert_true(treadle_convert_open(&wrong, &convert) < 0));
  }
  static const int no_pairs[][2] = {{-1, 1}, {1, 1}, {0, -1}, {INT32_MAX, INT32_MIN}, {7, 0}};
  for (size_t i = 0; i < TEST_COUNT(no_pairs); i++) {
    wrong = good;
    wrong.rank = no_pairs[i][0];
    wrong.ranks = no_pairs[i][1];
    REFUSED(treadle_convert_open(&wrong, &convert));
  }
  assert_null(convert);
  REFUSED(treadle_convert_compare(NULL));
  REFUSED(treadle_convert_begin(NULL));
  REFUSED(treadle_convert_write(NULL));
  REFUSED(treadle_convert_finish(NULL));
  GIVES(NULL, treadle_convert_model(NULL));
  GIVES(false, treadle_convert_resumes(NULL));
  figures.files = 7;
  NOTHING(treadle_convert_get_figures(NULL, &figures));
  assert_int_equal(figures.files, 0);
  NOTHING(treadle_convert_get_figures(convert, NULL));
  WORKS(treadle_convert_close(NULL));
}

/* ---- Chats, the engine ---- */

/* Of a batch of one row without columns. */
static void more_of_batches(treadle_batch *batch) {
  treadle_batch *made;
  treadle_batch_iterator *iterator;
  const char *text = "x", *none = NULL;
  int64_t row = 0, padding;
  REFUSED(treadle_batch_chunk(NULL, 1, &made));
  REFUSED(treadle_batch_chunk(batch, 0, &made));
  REFUSED(treadle_batch_chunk(batch, 1, NULL));
  REFUSED(treadle_batch_chunk(batch, SIZE_MAX, &made));
  REFUSED(treadle_batch_pop(NULL, NULL, 0, NULL, 0, &made));
  REFUSED(treadle_batch_pop(batch, NULL, 1, NULL, 0, &made));
  REFUSED(treadle_batch_pop(batch, &none, 1, NULL, 0, &made));
  REFUSED(treadle_batch_pop(batch, &text, 1, NULL, 0, &made));
  REFUSED(treadle_batch_pop(batch, NULL, 0, NULL, 1, &made));
  REFUSED(treadle_batch_pop(batch, NULL, 0, &none, 1, &made));
  REFUSED(treadle_batch_pop(batch, NULL, 0, &text, 1, &made));
  assert_null(made);
  REFUSED(treadle_batch_pop(batch, NULL, 0, NULL, 0, NULL));
  REFUSED(treadle_batch_sample_level_repeat(NULL, &row, 1, &made));
  REFUSED(treadle_batch_sample_level_repeat(batch, NULL, 1, &made));
  REFUSED(treadle_batch_sample_level_repeat(batch, &row, 0, &made));
  REFUSED(treadle_batch_sample_level_repeat(batch, &row, 1, NULL));
  REFUSED(treadle_batch_fold(NULL, 1, &made));
  REFUSED(treadle_batch_fold(batch, -1, &made));
  REFUSED(treadle_batch_fold(batch, INT64_MAX, &made));
  REFUSED(treadle_batch_fold(batch, 1, NULL));
  REFUSED(treadle_batch_unfold(NULL, 1, &made));
  REFUSED(treadle_batch_unfold(batch, 0, &made));
  REFUSED(treadle_batch_unfold(batch, INT64_MAX, &made));
  REFUSED(treadle_batch_unfold(batch, 1, NULL));
  REFUSED(treadle_batch_unfold_columns(NULL, 1, &text, 1, &made));
  REFUSED(treadle_batch_unfold_columns(batch, 1, NULL, 1, &made));
  REFUSED(treadle_batch_unfold_columns(batch, 1, &none, 1, &made));
  REFUSED(treadle_batch_unfold_columns(batch, INT64_MIN, &text, 0, &made));
  REFUSED(treadle_batch_unfold_columns(batch, 1, &text, 0, NULL));
  REFUSED(treadle_batch_pad_to_divisor(NULL, 1, &made, &padding));
  REFUSED(treadle_batch_pad_to_divisor(batch, 0, &made, &padding));
  REFUSED(treadle_batch_pad_to_divisor(batch, INT64_MAX, &made, &padding));
  REFUSED(treadle_batch_pad_to_divisor(batch, 1, NULL, &padding));
  REFUSED(treadle_batch_pad_to_divisor(batch, 1, &made, NULL));
  REFUSED(treadle_batch_unpad(NULL, 0, &made));
  REFUSED(treadle_batch_unpad(batch, 2, &made));
  REFUSED(treadle_batch_unpad(batch, 0, NULL));
  REFUSED(treadle_batch_iterate_open(NULL, 1, 1, true, 0, &iterator));
  REFUSED(treadle_batch_iterate_open(batch, 0, 1, true, 0, &iterator));
  REFUSED(treadle_batch_iterate_open(batch, 1, -1, true, 0, &iterator));
  REFUSED(treadle_batch_iterate_open(batch, 1, 1, true, 0, NULL));
  REFUSED(treadle_batch_iterate_next(NULL, &made));
  WORKS(assert_ok(treadle_batch_iterate_open(batch, 1, 1, true, 0, &iterator)));
  REFUSED(treadle_batch_iterate_next(iterator, NULL));
  WORKS(treadle_batch_iterate_close(NULL));
  treadle_batch_iterate_close(iterator);
}

static void batches(objects *o) {
  (void)o;
  treadle_batch *batch, *made;
  treadle_column column = TREADLE_INIT(treadle_column);
  int64_t row = 0;
  const bool mask = true;
  const char *text = "x", *none = NULL;
  REFUSED(treadle_batch_create(1, NULL));
  REFUSED(treadle_batch_create(-1, &batch));
  assert_null(batch);
  REFUSED(treadle_batch_create(INT64_MAX, &batch));
  WORKS(assert_ok(treadle_batch_create(1, &batch)));
  GIVES(-1, treadle_batch_rows(NULL));
  GIVES(-1, treadle_batch_column_count(NULL));
  REFUSED(treadle_batch_add(NULL, &column));
  REFUSED(treadle_batch_add(batch, NULL));
  REFUSED(treadle_batch_add(batch, &column));
  column.name = "x";
  REFUSED_SIZES(column, treadle_batch_add(batch, &column));
  REFUSED_NEWER(treadle_column, treadle_batch_add(batch, newer_p));
  for (size_t i = 0; i < TEST_COUNT(no_enums); i++) {
    column.type = (treadle_column_type)no_enums[i];
    REFUSED(treadle_batch_add(batch, &column));
  }
  REFUSED(treadle_batch_add_texts(NULL, "x", &text, NULL));
  REFUSED(treadle_batch_add_texts(batch, NULL, &text, NULL));
  REFUSED(treadle_batch_add_texts(batch, "x", NULL, NULL));
  REFUSED(treadle_batch_add_texts(batch, "x", &none, NULL));
  REFUSED(treadle_batch_column(NULL, "x", &column));
  REFUSED(treadle_batch_column(batch, NULL, &column));
  REFUSED(treadle_batch_column(batch, "x", &column));
  REFUSED(treadle_batch_column(batch, "x", NULL));
  REFUSED(treadle_batch_column_at(NULL, 0, &column));
  REFUSED(treadle_batch_column_at(batch, 0, &column));
  REFUSED(treadle_batch_column_at(batch, -1, &column));
  REFUSED(treadle_batch_column_at(batch, 0, NULL));
  GIVES(false, treadle_batch_has(NULL, "x"));
  GIVES(false, treadle_batch_has(batch, NULL));
  REFUSED(treadle_batch_remove(NULL, "x"));
  REFUSED(treadle_batch_remove(batch, NULL));
  REFUSED(treadle_batch_rename(NULL, "x", "y"));
  REFUSED(treadle_batch_rename(batch, "x", NULL));
  REFUSED(treadle_batch_rename(batch, NULL, "y"));
  REFUSED(treadle_batch_set_meta(NULL, "k", "1"));
  REFUSED(treadle_batch_set_meta(batch, NULL, "1"));
  REFUSED(treadle_batch_set_meta(batch, "k", "["));
  GIVES(NULL, treadle_batch_meta(NULL, "k"));
  GIVES(NULL, treadle_batch_meta(batch, NULL));
  GIVES(NULL, treadle_batch_meta_key(NULL, 0));
  REFUSED(treadle_batch_select(NULL, &text, 1, &made));
  assert_null(made);
  REFUSED(treadle_batch_select(batch, NULL, 1, &made));
  REFUSED(treadle_batch_select(batch, &none, 1, &made));
  REFUSED(treadle_batch_select(batch, &text, 0, NULL));
  REFUSED(treadle_batch_index(NULL, &row, 1, &made));
  REFUSED(treadle_batch_index(batch, NULL, 1, &made));
  REFUSED(treadle_batch_index(batch, &row, SIZE_MAX, &made));
  REFUSED(treadle_batch_index(batch, &row, 1, NULL));
  REFUSED(treadle_batch_index_mask(NULL, &mask, 1, &made));
  REFUSED(treadle_batch_index_mask(batch, NULL, 1, &made));
  REFUSED(treadle_batch_index_mask(batch, &mask, 1, NULL));
  REFUSED(treadle_batch_slice(NULL, 0, 1, &made));
  REFUSED(treadle_batch_slice(batch, 0, 1, NULL));
  REFUSED(treadle_batch_slice(batch, -1, 1, &made));
  REFUSED(treadle_batch_slice(batch, 0, INT64_MAX, &made));
  REFUSED(treadle_batch_split(NULL, &row, 1, &made));
  REFUSED(treadle_batch_split(batch, NULL, 1, &made));
  REFUSED(treadle_batch_split(batch, &row, 1, NULL));
  REFUSED(treadle_batch_split(batch, &row, SIZE_MAX, &made));
  REFUSED(treadle_batch_concat(NULL, 1, &made));
  REFUSED(treadle_batch_concat((const treadle_batch *const[]){NULL}, 1, &made));
  REFUSED(treadle_batch_concat((const treadle_batch *const[]){batch}, 1, NULL));
  REFUSED(treadle_batch_repeat(NULL, 1, true, &made));
  REFUSED(treadle_batch_repeat(batch, -1, true, &made));
  REFUSED(treadle_batch_repeat(batch, 1, true, NULL));
  more_of_batches(batch);
  REFUSED(treadle_batch_union(NULL, batch));
  REFUSED(treadle_batch_union(batch, NULL));
  REFUSED(treadle_batch_reorder(NULL, &row, 1));
  REFUSED(treadle_batch_reorder(batch, NULL, 1));
  REFUSED(treadle_batch_save(NULL, "/nothing/nothing"));
  REFUSED(treadle_batch_save(batch, NULL));
  REFUSED(treadle_batch_save(batch, ""));
  WORKS(assert_true(treadle_batch_save(batch, "/nothing/nothing") < 0));
  REFUSED(treadle_batch_load(NULL, &made));
  REFUSED(treadle_batch_load("/nothing/nothing", &made));
  assert_null(made);
  REFUSED(treadle_batch_load("/nothing/nothing", NULL));
  WORKS(treadle_batch_destroy(NULL));
  treadle_batch_destroy(batch);
}

static void chats(objects *o) {
  treadle_chat *chat = o->chat;
  treadle_chat_options options = TREADLE_INIT(treadle_chat_options);
  char *text;
  size_t bytes;
  REFUSED(treadle_chat_open(NULL, &chat));
  assert_null(chat);
  REFUSED(treadle_chat_open(o->chat_file, NULL));
  WORKS(assert_true(treadle_chat_open("/nothing/nothing", &chat) < 0));
  note("treadle_chat_open(");
  REFUSED(treadle_chat_find(NULL, &chat));
  REFUSED(treadle_chat_find(o->chat_file, NULL));
  WORKS(assert_int_equal(treadle_chat_find("/nothing/nothing", &chat), TREADLE_OK));
  note("treadle_chat_find(");
  assert_null(chat);
  REFUSED(treadle_chat_render(NULL, "[]", NULL, &text, &bytes));
  assert_null(text);
  REFUSED(treadle_chat_render(o->chat, NULL, NULL, &text, &bytes));
  REFUSED(treadle_chat_render(o->chat, "[]", NULL, NULL, &bytes));
  REFUSED(treadle_chat_render(o->chat, "[]", NULL, &text, NULL));
  REFUSED(treadle_chat_render(o->chat, "[", NULL, &text, &bytes));
  REFUSED(treadle_chat_render(o->chat, "7", NULL, &text, &bytes));
  REFUSED_SIZES(options, treadle_chat_render(o->chat, "[]", &options, &text, &bytes));
  REFUSED_NEWER(treadle_chat_options, treadle_chat_render(o->chat, "[]", newer_p, &text, &bytes));
  options.variables = "[";
  REFUSED(treadle_chat_render(o->chat, "[]", &options, &text, &bytes));
  assert_null(text);
  WORKS(treadle_chat_close(NULL));
}

static void engines(objects *o) {
  static const int32_t no_threads[] = {-1, 257, INT32_MIN, INT32_MAX};
  treadle_generator *engine = o->engine;
  treadle_generator_options options = TREADLE_INIT(treadle_generator_options);
  treadle_generator_info info = TREADLE_INIT(treadle_generator_info);
  treadle_engine_hooks hooks = TREADLE_INIT(treadle_engine_hooks);
  REFUSED(treadle_generator_create(NULL, NULL, NULL, &engine));
  assert_null(engine);
  REFUSED(treadle_generator_create(NULL, o->infer, NULL, NULL));
  REFUSED(treadle_generator_create(NULL, o->wide, NULL, &engine));
  REFUSED_SIZES(options, treadle_generator_create(NULL, o->infer, &options, &engine));
  REFUSED_NEWER(treadle_generator_options, treadle_generator_create(NULL, o->infer, newer_p, &engine));
  for (size_t i = 0; i < TEST_COUNT(no_threads); i++) {
    options.threads = no_threads[i];
    REFUSED(treadle_generator_create(NULL, o->infer, &options, &engine));
  }
  options = TREADLE_INIT(treadle_generator_options);
  options.kernels = "none";
  REFUSED(treadle_generator_create(NULL, o->infer, &options, &engine));
  options = TREADLE_INIT(treadle_generator_options);
  options.kv_bytes = 1;
  REFUSED(treadle_generator_create(NULL, o->infer, &options, &engine));
  assert_null(engine);
  REFUSED(treadle_generator_bind(NULL, o->weights, o->weights_bytes));
  REFUSED(treadle_generator_bind(o->engine, NULL, o->weights_bytes));
  REFUSED(treadle_generator_bind(o->engine, o->weights, o->weights_bytes - 1));
  REFUSED(treadle_generator_unbind(NULL));
  REFUSED(treadle_generator_hooks_of(NULL, &hooks));
  REFUSED(treadle_generator_hooks_of(o->engine, NULL));
  REFUSED_SIZES(hooks, treadle_generator_hooks_of(o->engine, &hooks));
  REFUSED(treadle_generator_get_info(NULL, &info));
  REFUSED(treadle_generator_get_info(o->engine, NULL));
  REFUSED_SIZES(info, treadle_generator_get_info(o->engine, &info));
  WORKS(treadle_generator_destroy(NULL));
}

static void engine_work(objects *o) {
  static const int32_t ids[] = {1, 2, 3}, bad[] = {1, 24};
  static const char line[] = "{\"prompt_token_ids\": [1, 2], \"max_tokens\": 2}\n",
                    text[] = "{\"token_ids\": [1, 2]}\n";
  const treadle_score_text good = {ids, 3}, wrong = {bad, 2}, none = {ids, 0};
  treadle_score_options score = TREADLE_INIT(treadle_score_options);
  treadle_score_lines_options lines = TREADLE_INIT(treadle_score_lines_options);
  treadle_generate_options generate = TREADLE_INIT(treadle_generate_options);
  treadle_score_figures scored = TREADLE_INIT(treadle_score_figures);
  treadle_generate_figures generated = TREADLE_INIT(treadle_generate_figures);
  REFUSED(treadle_generator_score(NULL, &good, 1, NULL));
  REFUSED(treadle_generator_score(o->engine, NULL, 1, NULL));
  REFUSED(treadle_generator_score(o->engine, &wrong, 1, NULL));
  REFUSED(treadle_generator_score(o->engine, &none, 1, NULL));
  REFUSED_SIZES(score, treadle_generator_score(o->engine, &good, 1, &score));
  REFUSED_NEWER(treadle_score_options, treadle_generator_score(o->engine, &good, 1, newer_p));
  score.temperature = -1;
  REFUSED(treadle_generator_score(o->engine, &good, 1, &score));
  REFUSED(treadle_generator_score_lines(NULL, text, sizeof text - 1, NULL, &scored));
  REFUSED(treadle_generator_score_lines(o->engine, NULL, 1, NULL, &scored));
  REFUSED(treadle_generator_score_lines(o->engine, text, sizeof text - 1, NULL, NULL));
  REFUSED(treadle_generator_score_lines(o->engine, "{", 1, NULL, &scored));
  REFUSED_SIZES(lines, treadle_generator_score_lines(o->engine, text, sizeof text - 1, &lines, &scored));
  lines.top = 21;
  REFUSED(treadle_generator_score_lines(o->engine, text, sizeof text - 1, &lines, &scored));
  lines.top = -1;
  REFUSED(treadle_generator_score_lines(o->engine, text, sizeof text - 1, &lines, &scored));
  lines.top = 0;
  lines.logits_file = "/nothing/nothing";
  GIVES(TREADLE_SYSTEM, treadle_generator_score_lines(o->engine, text, sizeof text - 1, &lines, &scored));
  lines.logits_file = NULL;
  REFUSED_SIZES(scored, treadle_generator_score_lines(o->engine, text, sizeof text - 1, NULL, &scored));
  lines.check = true;
  REFUSED(treadle_generator_score_lines(o->engine, text, sizeof text - 1, &lines, &scored));
  REFUSED(treadle_generator_generate_lines(NULL, line, sizeof line - 1, NULL, &generated));
  REFUSED(treadle_generator_generate_lines(o->engine, NULL, 1, NULL, &generated));
  REFUSED(treadle_generator_generate_lines(o->engine, line, sizeof line - 1, NULL, NULL));
  REFUSED(treadle_generator_generate_lines(o->engine, "{}", 2, NULL, &generated));
  REFUSED_SIZES(generate,
                treadle_generator_generate_lines(o->engine, line, sizeof line - 1, &generate, &generated));
  REFUSED_SIZES(generated,
                treadle_generator_generate_lines(o->engine, line, sizeof line - 1, NULL, &generated));
  generate.sampling = "{\"temperature\": -1}";
  REFUSED(treadle_generator_generate_lines(o->engine, line, sizeof line - 1, &generate, &generated));
  assert_ok(treadle_generator_unbind(o->engine));
  GIVES(TREADLE_STATE, treadle_generator_score(o->engine, &good, 1, NULL));
  GIVES(TREADLE_STATE,
        treadle_generator_generate_lines(o->engine, line, sizeof line - 1, NULL, &generated));
  assert_ok(treadle_generator_bind(o->engine, o->weights, o->weights_bytes));
  assert_ok(treadle_generator_generate_lines(o->engine, line, sizeof line - 1, NULL, &generated));
  assert_int_equal(generated.new_tokens, 2);
}

static void generating(objects *o) {
  static int32_t ids[] = {1, 2, 24};
  static const int64_t offsets[] = {0, 2}, beyond[] = {1, 3};
  treadle_column column = {
      .struct_size = sizeof column, .name = "prompt_ids", .offsets = offsets, .data = ids};
  treadle_sampling sampling = TREADLE_SAMPLING_INIT;
  treadle_observer observer = TREADLE_INIT(treadle_observer);
  treadle_batch *good, *wrong, *none, *out = NULL;
  assert_ok(treadle_batch_create(1, &good));
  assert_ok(treadle_batch_create(1, &wrong));
  assert_ok(treadle_batch_create(1, &none));
  assert_ok(treadle_batch_add(good, &column));
  column.offsets = beyond;
  assert_ok(treadle_batch_add(wrong, &column));
  REFUSED(treadle_generator_generate(NULL, good, NULL, NULL, &out));
  REFUSED(treadle_generator_generate(o->engine, NULL, NULL, NULL, &out));
  REFUSED(treadle_generator_generate(o->engine, good, NULL, NULL, NULL));
  REFUSED(treadle_generator_generate(o->engine, wrong, NULL, NULL, &out));
  REFUSED(treadle_generator_generate(o->engine, none, NULL, NULL, &out));
  REFUSED_SIZES(sampling, treadle_generator_generate(o->engine, good, &sampling, NULL, &out));
  REFUSED_SIZES(observer, treadle_generator_generate(o->engine, good, NULL, &observer, &out));
  REFUSED_NEWER(treadle_sampling, treadle_generator_generate(o->engine, good, newer_p, NULL, &out));
  REFUSED_NEWER(treadle_observer, treadle_generator_generate(o->engine, good, NULL, newer_p, &out));
  sampling.temperature = -1;
  REFUSED(treadle_generator_generate(o->engine, good, &sampling, NULL, &out));
  assert_ok(treadle_generator_unbind(o->engine));
  GIVES(TREADLE_STATE, treadle_generator_generate(o->engine, good, NULL, NULL, &out));
  assert_null(out);
  assert_ok(treadle_generator_bind(o->engine, o->weights, o->weights_bytes));
  sampling = TREADLE_SAMPLING_INIT;
  assert_ok(treadle_generator_generate(o->engine, good, &sampling, &observer, &out));
  assert_int_equal(treadle_batch_rows(out), 1);
  treadle_batch_destroy(out);
  treadle_batch_destroy(good);
  treadle_batch_destroy(wrong);
  treadle_batch_destroy(none);
}

/* ---- treadle_engine.h ---- */

/* A batch of one row, which the caller destroys. */
static treadle_batch *one_row(const int32_t *ids, const uint8_t *mask, size_t count) {
  treadle_batch *batch;
  assert_ok(rows_batch(&(rows_row){ids, mask, count, 0}, 1, &batch));
  return batch;
}

static treadle_status give_nothing(void *context, const treadle_loss_row *row) {
  (void)context;
  (void)row;
  return TREADLE_OK;
}

static void training(objects *o) {
  static const int32_t ids[] = {1, 2, 3}, bad[] = {1, 24, 3};
  static const uint8_t mask[] = {0, 1, 1}, first[] = {1, 1, 1}, none[] = {0, 0, 0};
  static const char line[] = "{\"ids\": [1, 2], \"mask\": [0, 1]}\n";
  treadle_batch *good = one_row(ids, mask, 3), *bare;
  treadle_batch *const wrong[] = {one_row(bad, mask, 3), one_row(ids, first, 3), one_row(ids, none, 3),
                                  one_row(ids, mask, 1)};
  treadle_trainer_options options = TREADLE_INIT(treadle_trainer_options);
  treadle_train_rows_spec spec = TREADLE_INIT(treadle_train_rows_spec);
  treadle_forward_options forward = {.struct_size = sizeof forward, .micro_batch_size = 1};
  treadle_loss_options nll = {.struct_size = sizeof nll, .name = "nll"};
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  const int64_t lengths[] = {3}, negative = -1;
  treadle_row_range range;
  treadle_batch *mine = (void *)o;
  treadle_optimizer_step step = TREADLE_INIT(treadle_optimizer_step);
  treadle_optimizer_figures result = TREADLE_INIT(treadle_optimizer_figures);
  treadle_sft_figures figures = TREADLE_INIT(treadle_sft_figures);
  treadle_sequence_options task = TREADLE_INIT(treadle_sequence_options);
  treadle_sequence_figures sequence = TREADLE_INIT(treadle_sequence_figures);
  treadle_train_engine engine = TREADLE_INIT(treadle_train_engine);
  treadle_trainer_memory memory;
  treadle_batch *rows = (void *)o;
  treadle_trainer *trainer;
  size_t count = 7;
  double norm;
  uint64_t digest;
  REFUSED(treadle_train_rows_read(&spec, line, sizeof line - 1, NULL));
  REFUSED(treadle_train_rows_read(&spec, NULL, 1, &rows));
  REFUSED(treadle_train_rows_read(NULL, "{}", 2, &rows));
  REFUSED(treadle_train_rows_read(NULL, "", 0, &rows));
  REFUSED_SIZES(spec, treadle_train_rows_read(&spec, line, sizeof line - 1, &rows));
  spec.most_tokens = -1;
  REFUSED(treadle_train_rows_read(&spec, line, sizeof line - 1, &rows));
  assert_null(rows);
  REFUSED(treadle_trainer_create(NULL, o->infer, NULL, NULL));
  REFUSED(treadle_trainer_create(NULL, NULL, NULL, &trainer));
  assert_null(trainer);
  REFUSED(treadle_trainer_create(NULL, o->wide, NULL, &trainer));
  REFUSED_SIZES(options, treadle_trainer_create(NULL, o->infer, &options, &trainer));
  options.threads = -1;
  REFUSED(treadle_trainer_create(NULL, o->infer, &options, &trainer));
  options.threads = 0;
  options.most_rows = -1;
  REFUSED(treadle_trainer_create(NULL, o->infer, &options, &trainer));
  options.most_rows = 4;
  options.kernels = "no such kernels";
  REFUSED(treadle_trainer_create(NULL, o->infer, &options, &trainer));
  options.kernels = NULL;
  options.lora_rank = -1;
  REFUSED(treadle_trainer_create(NULL, o->infer, &options, &trainer));
  options.lora_rank = 1025;
  REFUSED(treadle_trainer_create(NULL, o->infer, &options, &trainer));
  options.lora_rank = 2;
  options.lora_alpha = -1;
  REFUSED(treadle_trainer_create(NULL, o->infer, &options, &trainer));
  options.lora_alpha = 0;
  options.lora_modules = "q_proj,embed_tokens";
  REFUSED(treadle_trainer_create(NULL, o->infer, &options, &trainer));
  options.lora_rank = 0;
  assert_ok(treadle_trainer_create(NULL, o->infer, &options, &trainer));
  REFUSED(treadle_trainer_load(NULL));
  GIVES(TREADLE_STATE, treadle_trainer_gradients(trainer, good, &forward, &nll, NULL, &loss));
  assert_ok(treadle_trainer_load(trainer));
  REFUSED(treadle_trainer_randomise(NULL, 1));
  REFUSED(treadle_trainer_coordinate_of(NULL, lengths, 1, &forward, &range));
  REFUSED(treadle_trainer_coordinate_of(trainer, NULL, 1, &forward, &range));
  REFUSED(treadle_trainer_coordinate_of(trainer, lengths, -1, &forward, &range));
  REFUSED(treadle_trainer_coordinate_of(trainer, &negative, 1, &forward, &range));
  REFUSED(treadle_trainer_coordinate_of(trainer, lengths, 1, NULL, &range));
  REFUSED(treadle_trainer_coordinate_of(trainer, lengths, 1, &forward, NULL));
  REFUSED_SIZES(forward, treadle_trainer_coordinate_of(trainer, lengths, 1, &forward, &range));
  assert_ok(treadle_trainer_coordinate_of(trainer, lengths, 1, &forward, &range));
  assert_true(range.first == 0 && range.end == 1);
  REFUSED(treadle_trainer_slice(NULL, good, &forward, NULL, &mine));
  assert_null(mine);
  REFUSED(treadle_trainer_slice(trainer, NULL, &forward, NULL, &mine));
  REFUSED(treadle_trainer_slice(trainer, good, NULL, NULL, &mine));
  REFUSED(treadle_trainer_slice(trainer, good, &forward, NULL, NULL));
  assert_ok(treadle_batch_create(1, &bare));
  REFUSED(treadle_trainer_slice(trainer, bare, &forward, NULL, &mine));
  assert_null(mine);
  REFUSED_SIZES(forward, treadle_trainer_slice(trainer, good, &forward, NULL, &mine));
  assert_ok(treadle_trainer_slice(trainer, good, &forward, NULL, &mine));
  treadle_batch_destroy(mine);
  REFUSED(treadle_trainer_gradients(NULL, good, &forward, &nll, NULL, &loss));
  REFUSED(treadle_trainer_gradients(trainer, NULL, &forward, &nll, NULL, &loss));
  REFUSED(treadle_trainer_gradients(trainer, good, NULL, &nll, NULL, &loss));
  REFUSED(treadle_trainer_gradients(trainer, good, &forward, NULL, NULL, &loss));
  REFUSED(treadle_trainer_gradients(trainer, good, &forward, &nll, NULL, NULL));
  REFUSED(treadle_trainer_gradients(trainer, bare, &forward, &nll, NULL, &loss));
  REFUSED_SIZES(forward, treadle_trainer_gradients(trainer, good, &forward, &nll, NULL, &loss));
  REFUSED_SIZES(nll, treadle_trainer_gradients(trainer, good, &forward, &nll, NULL, &loss));
  REFUSED_SIZES(loss, treadle_trainer_gradients(trainer, good, &forward, &nll, NULL, &loss));
  REFUSED_NEWER(treadle_forward_options,
                treadle_trainer_gradients(trainer, good, newer_p, &nll, NULL, &loss));
  REFUSED_NEWER(treadle_loss_options,
                treadle_trainer_gradients(trainer, good, &forward, newer_p, NULL, &loss));
  REFUSED(treadle_trainer_loss(NULL, good, &forward, &nll, &loss));
  REFUSED(treadle_trainer_loss(trainer, NULL, &forward, &nll, &loss));
  REFUSED(treadle_trainer_loss(trainer, good, NULL, &nll, &loss));
  REFUSED(treadle_trainer_loss(trainer, good, &forward, NULL, &loss));
  REFUSED(treadle_trainer_loss(trainer, good, &forward, &nll, NULL));
  nll.name = NULL;
  REFUSED(treadle_trainer_gradients(trainer, good, &forward, &nll, NULL, &loss));
  nll.name = "nil";
  REFUSED(treadle_trainer_gradients(trainer, good, &forward, &nll, NULL, &loss));
  nll.name = "nll";
  for (size_t i = 0; i < TEST_COUNT(wrong); i++) {
    REFUSED(treadle_trainer_gradients(trainer, wrong[i], &forward, &nll, NULL, &loss));
    treadle_batch_destroy(wrong[i]);
  }
  assert_ok(treadle_batch_slice(good, 0, 0, &mine));
  REFUSED(treadle_trainer_gradients(trainer, mine, &forward, &nll, NULL, &loss));
  treadle_batch_destroy(mine);
  treadle_batch_destroy(bare);
  forward.micro_batch_size = 0;
  REFUSED(treadle_trainer_gradients(trainer, good, &forward, &nll, NULL, &loss));
  forward.max_tokens_per_micro = 2;
  REFUSED(treadle_trainer_gradients(trainer, good, &forward, &nll, NULL, &loss));
  forward.max_tokens_per_micro = 3;
  assert_ok(treadle_trainer_gradients(trainer, good, &forward, &nll, NULL, &loss));
  assert_ok(treadle_trainer_loss(trainer, good, &forward, &nll, &loss));
  forward.micro_batch_size = 1;
  REFUSED(treadle_trainer_gradients(trainer, good, &forward, &nll, NULL, &loss));
  forward.max_tokens_per_micro = 0;
  GIVES(TREADLE_STATE, treadle_trainer_step(trainer, &step, &result));
  REFUSED(treadle_trainer_step(NULL, &step, &result));
  REFUSED(treadle_trainer_step(trainer, NULL, &result));
  REFUSED(treadle_trainer_step(trainer, &step, NULL));
  REFUSED(treadle_trainer_gather_adapters(NULL));
  GIVES(TREADLE_STATE, treadle_trainer_gather_adapters(trainer));
  REFUSED(treadle_trainer_merge_adapters(NULL, o->infer, 0, &norm));
  REFUSED(treadle_trainer_merge_adapters(trainer, NULL, 0, &norm));
  REFUSED(treadle_trainer_merge_adapters(trainer, o->infer, 0, NULL));
  GIVES(TREADLE_STATE, treadle_trainer_merge_adapters(trainer, o->infer, 0, &norm));
  REFUSED(treadle_trainer_norm(NULL, &norm));
  REFUSED(treadle_trainer_norm(trainer, NULL));
  REFUSED(treadle_trainer_digest(NULL, &digest));
  REFUSED(treadle_trainer_digest(trainer, NULL));
  REFUSED(treadle_trainer_save_gradients(NULL, "/nothing"));
  REFUSED(treadle_trainer_save_gradients(trainer, NULL));
  GIVES(TREADLE_SYSTEM, treadle_trainer_save_gradients(trainer, "/nothing/nothing"));
  REFUSED(treadle_train_experts_read(NULL, NULL, "{}", 2, NULL));
  REFUSED(treadle_train_experts_read(NULL, NULL, NULL, 2, good));
  REFUSED(treadle_train_experts_read(NULL, NULL, "{}", 2, good));
  REFUSED(treadle_trainer_save_experts(NULL, NULL, "/nothing"));
  REFUSED(treadle_trainer_save_experts(trainer, NULL, NULL));
  GIVES(TREADLE_SYSTEM, treadle_trainer_save_experts(trainer, NULL, "/nothing/nothing"));
  GIVES(NULL, treadle_trainer_grad_layout(NULL));
  GIVES(NULL, treadle_trainer_grad_window(NULL, &count));
  assert_int_equal(count, 0);
  GIVES(0, treadle_trainer_bytes(NULL));
  assert_ok(treadle_trainer_gradients(trainer, good, &forward, &nll, NULL, &loss));
  assert_int_equal(loss.tokens, 2);
  WORKS(treadle_trainer_destroy(NULL));
  treadle_trainer_destroy(trainer);
  options.optimizer = true;
  options.adam_beta1 = 1;
  REFUSED(treadle_trainer_create(NULL, o->infer, &options, &trainer));
  options.adam_beta1 = 0;
  assert_ok(treadle_trainer_create(NULL, o->infer, &options, &trainer));
  assert_ok(treadle_trainer_randomise(trainer, 1));
  assert_ok(treadle_trainer_gradients(trainer, good, &forward, &nll, NULL, &loss));
  step.lr = -1;
  REFUSED(treadle_trainer_step(trainer, &step, &result));
  step.lr = 1e-3;
  REFUSED_SIZES(step, treadle_trainer_step(trainer, &step, &result));
  REFUSED_SIZES(result, treadle_trainer_step(trainer, &step, &result));
  assert_ok(treadle_trainer_step(trainer, &step, &result));
  assert_int_equal(result.steps, 1);
  REFUSED(treadle_trainer_weights_digest(NULL, &digest));
  REFUSED(treadle_trainer_weights_digest(trainer, NULL));
  assert_ok(treadle_trainer_weights_digest(trainer, &digest));
  REFUSED(treadle_trainer_save(NULL, "/nothing"));
  REFUSED(treadle_trainer_save(trainer, NULL));
  GIVES(TREADLE_SYSTEM, treadle_trainer_save(trainer, "/nothing/nothing"));
  REFUSED(treadle_trainer_resume(NULL, "/nothing"));
  REFUSED(treadle_trainer_resume(trainer, NULL));
  REFUSED(treadle_trainer_resume(trainer, "/nothing/nothing"));
  treadle_trainer_destroy(trainer);
  treadle_batch_destroy(good);
  REFUSED(treadle_trainer_open_engine(NULL, NULL, NULL, &options, &engine));
  REFUSED(treadle_trainer_open_engine(NULL, NULL, o->infer, &options, NULL));
  REFUSED_SIZES(engine, treadle_trainer_open_engine(NULL, NULL, o->infer, &options, &engine));
  options.params_window = &digest;
  REFUSED(treadle_trainer_open_engine(NULL, NULL, o->infer, &options, &engine));
  options.params_window = NULL;
  assert_ok(treadle_trainer_open_engine(NULL, NULL, o->infer, &options, &engine));
  assert_ok(engine.randomise(engine.engine, 1));
  assert_true(engine.bytes(engine.engine) > 0);
  engine.close(engine.engine);
  REFUSED(treadle_sft_run(NULL, NULL, NULL, &figures));
  REFUSED(treadle_sft_foresee(NULL, 1, NULL, &memory));
  int64_t damaged;
  REFUSED(treadle_checkpoint_verify(NULL, NULL, NULL, NULL, &damaged));
  REFUSED(treadle_checkpoint_verify("/none", NULL, NULL, NULL, &damaged));
  REFUSED(treadle_checkpoint_verify("/none", NULL, NULL, NULL, NULL));
  REFUSED(treadle_trainer_foresee(NULL, &options, &memory));
  REFUSED(treadle_trainer_foresee(o->infer, &options, NULL));
  REFUSED_SIZES(options, treadle_trainer_foresee(o->infer, &options, &memory));
  assert_ok(treadle_trainer_foresee(o->infer, &options, &memory));
  assert_true(memory.peak > 0);
  REFUSED(treadle_data_sequence(NULL, NULL, &sequence));
  REFUSED(treadle_data_sequence("/nothing", NULL, NULL));
  REFUSED_SIZES(sequence, treadle_data_sequence("/nothing/at/all", NULL, &sequence));
  REFUSED_SIZES(task, treadle_data_sequence("/nothing/at/all", &task, &sequence));
  task.noise = 2;
  REFUSED(treadle_data_sequence("/nothing/at/all", &task, &sequence));
  task.noise = 0;
  GIVES(TREADLE_SYSTEM, treadle_data_sequence("/nothing/at/all", &task, &sequence));
}

static void configurations(objects *o) {
  static const char *const good[] = {"actor_config.lr=1"}, *const bad[] = {"actor_config.lr=x"},
                           *const none[] = {NULL};
  treadle_train_config *config = (void *)o;
  size_t count = 7;
  char *text = (void *)o, path[64];
  snprintf(path, sizeof path, "%s/sft.yaml", o->folder);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs("rl_config: {}\n", file);
  fclose(file);
  REFUSED(treadle_train_config_read(NULL, NULL, 0, &config));
  assert_null(config);
  REFUSED(treadle_train_config_read(path, NULL, 0, NULL));
  REFUSED(treadle_train_config_read(path, NULL, 1, &config));
  REFUSED(treadle_train_config_read(path, none, 1, &config));
  REFUSED(treadle_train_config_read(path, bad, 1, &config));
  assert_null(config);
  GIVES(TREADLE_SYSTEM, treadle_train_config_read("/nothing/nothing", good, 1, &config));
  assert_ok(treadle_train_config_read(path, good, 1, &config));
  GIVES(NULL, treadle_train_config_warnings(NULL, &count));
  assert_int_equal(count, 0);
  GIVES(NULL, treadle_train_config_warnings(config, NULL));
  assert_non_null(treadle_train_config_warnings(config, &count));
  assert_int_equal(count, 1);
  REFUSED(treadle_train_config_text(NULL, &text));
  assert_null(text);
  REFUSED(treadle_train_config_text(config, NULL));
  REFUSED(treadle_train_config_help(true, NULL));
  WORKS(treadle_train_config_destroy(NULL));
  treadle_train_config_destroy(config);
  unlink(path);
}

/* ---- Policies, rewards, workers, runs ---- */

static void policies(objects *o) {
  static const int32_t ids[] = {1, 2, 3}, never[] = {7};
  static const uint8_t mask[] = {0, 1, 1};
  treadle_batch *batch = one_row(ids, mask, 3), *out, *large;
  treadle_forward_options forward = {.struct_size = sizeof forward, .micro_batch_size = 1};
  treadle_loss_options own = {.struct_size = sizeof own, .of_row = give_nothing};
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  const treadle_trainer_options options = {.struct_size = sizeof options, .threads = 1, .most_rows = 4};
  treadle_trainer *trainer;
  assert_ok(treadle_batch_create(1, &out));
  assert_ok(treadle_batch_create(2, &large));
  assert_ok(treadle_trainer_create(NULL, o->train, &options, &trainer));
  GIVES(TREADLE_STATE, treadle_trainer_logprobs(trainer, batch, &forward, NULL, out));
  assert_ok(treadle_trainer_randomise(trainer, 1));
  REFUSED(treadle_trainer_logprobs(NULL, batch, &forward, NULL, out));
  REFUSED(treadle_trainer_logprobs(trainer, NULL, &forward, NULL, out));
  REFUSED(treadle_trainer_logprobs(trainer, batch, NULL, NULL, out));
  REFUSED(treadle_trainer_logprobs(trainer, batch, &forward, NULL, NULL));
  REFUSED(treadle_trainer_logprobs(trainer, batch, &forward, NULL, large));
  REFUSED_SIZES(forward, treadle_trainer_logprobs(trainer, batch, &forward, NULL, out));
  REFUSED_SIZES(forward, treadle_trainer_gradients(trainer, batch, &forward, &own, NULL, &loss));
  REFUSED_SIZES(own, treadle_trainer_gradients(trainer, batch, &forward, &own, NULL, &loss));
  REFUSED(treadle_trainer_gradients(trainer, batch, &forward, &own, large, &loss));
  REFUSED(treadle_trainer_gradients(trainer, batch, NULL, &own, NULL, &loss));
  own.of_row = NULL;
  REFUSED(treadle_trainer_gradients(trainer, batch, &forward, &own, NULL, &loss));
  own.of_row = give_nothing;
  forward.temperature = -1;
  REFUSED(treadle_trainer_logprobs(trainer, batch, &forward, NULL, out));
  forward.temperature = 0;
  forward.never_count = 1;
  REFUSED(treadle_trainer_logprobs(trainer, batch, &forward, NULL, out));
  forward.never = never;
  assert_ok(treadle_trainer_logprobs(trainer, batch, &forward, NULL, out));
  REFUSED(treadle_trainer_logprobs(trainer, batch, &forward, NULL, out));
  assert_ok(treadle_trainer_gradients(trainer, batch, &forward, &own, NULL, &loss));
  treadle_batch_destroy(batch);
  treadle_batch_destroy(out);
  treadle_batch_destroy(large);
  REFUSED(treadle_trainer_rebind(NULL));
  treadle_trainer_destroy(trainer);
  GIVES(NULL, treadle_switch_reference_twin(NULL, NULL));
  REFUSED(treadle_switch_show_reference(NULL));
  REFUSED(treadle_switch_hide_reference(NULL));
  GIVES(TREADLE_STATE, treadle_switch_show_reference(o->sw));
  GIVES(TREADLE_STATE, treadle_switch_hide_reference(o->sw));
}

/* Values and scores, of a trainer with such a head and of one without. */
static void critics(objects *o) {
  static const int32_t ids[] = {1, 2, 3};
  static const uint8_t mask[] = {0, 1, 1};
  treadle_forward_options forward = {.struct_size = sizeof forward, .micro_batch_size = 1};
  const treadle_trainer_options options = {.struct_size = sizeof options, .threads = 1, .most_rows = 4};
  treadle_batch *batch = one_row(ids, mask, 3), *out, *large;
  treadle_trainer *trainer;
  assert_ok(treadle_batch_create(1, &out));
  assert_ok(treadle_batch_create(2, &large));
  assert_ok(treadle_trainer_create(NULL, o->train, &options, &trainer));
  assert_ok(treadle_trainer_randomise(trainer, 1));
  REFUSED(treadle_trainer_values(trainer, batch, &forward, out));
  REFUSED(treadle_trainer_scores(trainer, batch, &forward, out));
  treadle_trainer_destroy(trainer);
  assert_ok(treadle_trainer_create(NULL, o->scores, &options, &trainer));
  GIVES(TREADLE_STATE, treadle_trainer_values(trainer, batch, &forward, out));
  GIVES(TREADLE_STATE, treadle_trainer_scores(trainer, batch, &forward, out));
  assert_ok(treadle_trainer_randomise(trainer, 1));
  REFUSED(treadle_trainer_values(NULL, batch, &forward, out));
  REFUSED(treadle_trainer_values(trainer, NULL, &forward, out));
  REFUSED(treadle_trainer_values(trainer, batch, NULL, out));
  REFUSED(treadle_trainer_values(trainer, batch, &forward, NULL));
  REFUSED(treadle_trainer_values(trainer, batch, &forward, large));
  REFUSED_SIZES(forward, treadle_trainer_values(trainer, batch, &forward, out));
  REFUSED(treadle_trainer_scores(NULL, batch, &forward, out));
  REFUSED(treadle_trainer_scores(trainer, NULL, &forward, out));
  REFUSED(treadle_trainer_scores(trainer, batch, NULL, out));
  REFUSED(treadle_trainer_scores(trainer, batch, &forward, NULL));
  REFUSED(treadle_trainer_scores(trainer, batch, &forward, large));
  REFUSED_SIZES(forward, treadle_trainer_scores(trainer, batch, &forward, out));
  assert_ok(treadle_trainer_values(trainer, batch, &forward, out));
  REFUSED(treadle_trainer_values(trainer, batch, &forward, out));
  assert_ok(treadle_trainer_scores(trainer, batch, &forward, out));
  REFUSED(treadle_trainer_scores(trainer, batch, &forward, out));
  REFUSED(treadle_trainer_logprobs(trainer, batch, &forward, NULL, out));
  treadle_trainer_destroy(trainer);
  treadle_batch_destroy(batch);
  treadle_batch_destroy(out);
  treadle_batch_destroy(large);
}

static void rewards(objects *o) {
  treadle_reward_options options = {.struct_size = sizeof options, .name = "length:target=4"};
  const treadle_reward_sample sample = {.id = "a", .completion = "", .tokens = 2};
  treadle_reward *reward = (void *)o;
  char *text = (void *)o;
  double score;
  REFUSED(treadle_reward_create(NULL, &reward));
  assert_null(reward);
  REFUSED(treadle_reward_create(&options, NULL));
  REFUSED_SIZES(options, treadle_reward_create(&options, &reward));
  options.name = NULL;
  REFUSED(treadle_reward_create(&options, &reward));
  options.name = "lenght:target=4";
  REFUSED(treadle_reward_create(&options, &reward));
  options.name = "length:target=4";
  assert_ok(treadle_reward_create(&options, &reward));
  REFUSED(treadle_reward_start(NULL, &sample, 1));
  REFUSED(treadle_reward_start(reward, NULL, 1));
  REFUSED(treadle_reward_wait(NULL, &score, NULL));
  GIVES(TREADLE_STATE, treadle_reward_wait(reward, &score, NULL));
  assert_ok(treadle_reward_start(reward, &sample, 1));
  REFUSED(treadle_reward_wait(reward, NULL, NULL));
  assert_ok(treadle_reward_wait(reward, &score, NULL));
  REFUSED(treadle_reward_help(NULL));
  assert_ok(treadle_reward_help(&text));
  free(text);
  WORKS(treadle_reward_destroy(NULL));
  treadle_reward_destroy(reward);
}

static void workers(objects *o) {
  treadle_actor_options options = {.struct_size = sizeof options};
  treadle_infer_engine engine = TREADLE_INIT(treadle_infer_engine);
  treadle_generator_options of_engine = TREADLE_INIT(treadle_generator_options);
  treadle_generator_memory memory;
  treadle_actor_memory many;
  treadle_actor_info info = TREADLE_INIT(treadle_actor_info);
  treadle_optimizer_figures result = TREADLE_INIT(treadle_optimizer_figures);
  const treadle_forward_options forward = TREADLE_INIT(treadle_forward_options);
  const treadle_loss_options nll = {.struct_size = sizeof nll, .name = "nll"};
  treadle_batch *batch, *mine = (void *)o;
  const treadle_optimizer_step step = TREADLE_INIT(treadle_optimizer_step);
  treadle_actor *actor = (void *)o;
  uint64_t digest;
  assert_ok(treadle_batch_create(0, &batch));
  REFUSED(treadle_actor_create(NULL, NULL, o->infer, &options, &actor));
  assert_null(actor);
  REFUSED(treadle_actor_create(NULL, o->train, NULL, &options, &actor));
  REFUSED(treadle_actor_create(NULL, o->train, o->infer, &options, NULL));
  REFUSED_SIZES(options, treadle_actor_create(NULL, o->train, o->infer, &options, &actor));
  WORKS(treadle_actor_destroy(NULL));
  REFUSED(treadle_actor_load(NULL));
  REFUSED(treadle_actor_randomise(NULL, 1));
  REFUSED(treadle_actor_resume(NULL, "x"));
  REFUSED(treadle_actor_save(NULL, "x"));
  REFUSED(treadle_actor_load_reference(NULL));
  REFUSED(treadle_actor_enter(NULL, TREADLE_TRAIN));
  REFUSED(treadle_actor_exit(NULL, TREADLE_TRAIN));
  REFUSED(treadle_actor_slice_prompts(NULL, batch, NULL, NULL, &mine));
  assert_null(mine);
  REFUSED(treadle_actor_slice_prompts(NULL, batch, NULL, NULL, NULL));
  mine = (void *)o;
  REFUSED(treadle_actor_generate_sequences(NULL, batch, NULL, NULL, &mine));
  assert_null(mine);
  REFUSED(treadle_actor_generate_sequences(NULL, batch, NULL, NULL, NULL));
  mine = (void *)o;
  REFUSED(treadle_actor_slice(NULL, batch, &forward, NULL, &mine));
  assert_null(mine);
  REFUSED(treadle_actor_slice(NULL, batch, &forward, NULL, NULL));
  REFUSED(treadle_actor_compute_log_prob(NULL, batch, &forward, batch));
  REFUSED(treadle_actor_compute_ref_log_prob(NULL, batch, &forward, batch));
  REFUSED(treadle_actor_update(NULL, batch, &forward, &nll, &step, NULL, &result));
  treadle_batch_destroy(batch);
  REFUSED(treadle_actor_weights_digest(NULL, &digest));
  REFUSED(treadle_actor_get_info(NULL, &info));
  GIVES(NULL, treadle_actor_switch(NULL));
  REFUSED(treadle_actor_foresee(NULL, o->infer, &options, &many));
  REFUSED(treadle_actor_foresee(o->train, NULL, &options, &many));
  REFUSED(treadle_actor_foresee(o->train, o->infer, &options, NULL));
  REFUSED_SIZES(options, treadle_actor_foresee(o->train, o->infer, &options, &many));
  REFUSED(treadle_generator_foresee(NULL, &of_engine, &memory));
  REFUSED(treadle_generator_foresee(o->infer, &of_engine, NULL));
  REFUSED_SIZES(of_engine, treadle_generator_foresee(o->infer, &of_engine, &memory));
  REFUSED(treadle_generator_open_infer(NULL, NULL, NULL, NULL, &engine));
  REFUSED(treadle_generator_open_infer(NULL, NULL, o->infer, NULL, NULL));
}

/* ---- Pieces of a loop ---- */

static void prompts_of_loops(objects *o) {
  const char *path = test_write(o->folder, "prompts.jsonl", "{\"prompt_token_ids\": [1, 2]}\n");
  treadle_prompts_options options = {.struct_size = sizeof options, .path = path};
  treadle_draw_options draw = {.struct_size = sizeof draw, .count = 1};
  treadle_batch *prompts = (void *)o, *none, *drawn = (void *)o;
  REFUSED(treadle_prompts_read(NULL, &prompts));
  assert_null(prompts);
  REFUSED(treadle_prompts_read(&options, NULL));
  REFUSED_SIZES(options, treadle_prompts_read(&options, &prompts));
  REFUSED_NEWER(treadle_prompts_options, treadle_prompts_read(newer_p, &prompts));
  options.path = NULL;
  REFUSED(treadle_prompts_read(&options, &prompts));
  options.path = path;
  options.vocabulary = options.most_tokens = -1;
  REFUSED(treadle_prompts_read(&options, &prompts));
  options.vocabulary = options.most_tokens = 0;
  assert_ok(treadle_prompts_read(&options, &prompts));
  REFUSED(treadle_prompts_draw(NULL, &draw, &drawn));
  assert_null(drawn);
  REFUSED(treadle_prompts_draw(prompts, NULL, &drawn));
  REFUSED(treadle_prompts_draw(prompts, &draw, NULL));
  REFUSED_SIZES(draw, treadle_prompts_draw(prompts, &draw, &drawn));
  REFUSED_NEWER(treadle_draw_options, treadle_prompts_draw(prompts, newer_p, &drawn));
  assert_ok(treadle_batch_create(0, &none));
  REFUSED(treadle_prompts_draw(none, &draw, &drawn));
  for (size_t i = 0; i < TEST_COUNT(no_ranks); i++) {
    draw.step = no_ranks[i] == 1 ? INT64_MIN : no_ranks[i];
    draw.count = no_ranks[i] > 1 ? INT64_MAX : 1;
    REFUSED(treadle_prompts_draw(prompts, &draw, &drawn));
  }
  draw = (treadle_draw_options){.struct_size = sizeof draw};
  REFUSED(treadle_prompts_draw(prompts, &draw, &drawn));
  REFUSED(treadle_batch_gather(NULL, NULL, &drawn));
  assert_null(drawn);
  REFUSED(treadle_batch_gather(o->group, prompts, NULL));
  assert_ok(treadle_batch_gather(NULL, prompts, &drawn));
  treadle_batch_destroy(drawn);
  treadle_batch_destroy(none);
  treadle_batch_destroy(prompts);
  unlink(path);
}

static void scores_of_loops(objects *o) {
  static const int32_t ids[] = {0, 1};
  static const double numbers[] = {NAN, INFINITY, -1};
  const treadle_reward_options options = {.struct_size = sizeof options, .name = "length:target=4"};
  treadle_advantage_options advantage = TREADLE_INIT(treadle_advantage_options);
  treadle_lr_options lr = {.struct_size = sizeof lr, .steps = 2};
  treadle_batch *batch = one_row(ids, NULL, 2);
  treadle_reward *reward;
  double rate;
  assert_ok(treadle_reward_create(&options, &reward));
  REFUSED(treadle_reward_score(NULL, batch));
  REFUSED(treadle_reward_score(reward, NULL));
  REFUSED(treadle_tokenizer_decode_rows(NULL, batch, "ids", "completion"));
  REFUSED(treadle_tokenizer_decode_rows(o->tokenizer, NULL, "ids", "completion"));
  REFUSED(treadle_tokenizer_decode_rows(o->tokenizer, batch, NULL, "completion"));
  REFUSED(treadle_tokenizer_decode_rows(o->tokenizer, batch, "ids", NULL));
  REFUSED(treadle_tokenizer_decode_rows(o->tokenizer, batch, "none", "completion"));
  REFUSED(treadle_tokenizer_decode_rows(o->tokenizer, batch, "ids", ""));
  REFUSED(treadle_advantages(NULL, NULL));
  REFUSED(treadle_advantages(batch, NULL)); /* no rewards */
  REFUSED_SIZES(advantage, treadle_advantages(batch, &advantage));
  REFUSED_NEWER(treadle_advantage_options, treadle_advantages(batch, newer_p));
  advantage.estimator = "";
  REFUSED(treadle_advantages(batch, &advantage));
  REFUSED(treadle_learning_rate(NULL, 0, &rate));
  REFUSED(treadle_learning_rate(&lr, 0, NULL));
  REFUSED(treadle_learning_rate(&lr, -1, &rate));
  REFUSED_SIZES(lr, treadle_learning_rate(&lr, 0, &rate));
  REFUSED_NEWER(treadle_lr_options, treadle_learning_rate(newer_p, 0, &rate));
  for (size_t i = 0; i < TEST_COUNT(numbers); i++) {
    double *const members[] = {&lr.lr, &lr.min_lr, &lr.warmup_fraction};
    for (size_t m = 0; m < TEST_COUNT(members); m++) {
      *members[m] = numbers[i];
      REFUSED(treadle_learning_rate(&lr, 0, &rate));
      *members[m] = 0;
    }
  }
  lr.style = "";
  REFUSED(treadle_learning_rate(&lr, 0, &rate));
  treadle_reward_destroy(reward);
  treadle_batch_destroy(batch);
}

static void runs(objects *o) {
  static const char *const bad[] = {"actor_config.lr=x"};
  treadle_train_config *config = (void *)o;
  treadle_rl_figures figures = TREADLE_INIT(treadle_rl_figures);
  treadle_eval_figures found = TREADLE_INIT(treadle_eval_figures);
  treadle_eval_options options = {.struct_size = sizeof options, .model = "/nothing", .data = "/nothing"};
  treadle_actor_memory memory;
  REFUSED(treadle_rl_config_read(NULL, NULL, 0, &config));
  assert_null(config);
  REFUSED(treadle_rl_config_read("/nothing", NULL, 1, &config));
  REFUSED(treadle_rl_config_read("/nothing", NULL, 0, NULL));
  GIVES(TREADLE_SYSTEM, treadle_rl_config_read("/nothing/at/all", bad, 1, &config));
  treadle_switch_config *described = (void *)o;
  treadle_switch_config_info info = TREADLE_INIT(treadle_switch_config_info);
  size_t warnings = 7;
  REFUSED(treadle_switch_config_read(NULL, NULL, 0, &described));
  assert_null(described);
  REFUSED(treadle_switch_config_read("/nothing", NULL, 1, &described));
  REFUSED(treadle_switch_config_read("/nothing", NULL, 0, NULL));
  GIVES(TREADLE_SYSTEM, treadle_switch_config_read("/nothing/at/all", bad, 1, &described));
  WORKS(treadle_switch_config_destroy(NULL));
  NOTHING(treadle_switch_config_get_info(NULL, &info));
  NOTHING(treadle_switch_config_get_info(NULL, NULL));
  assert_null(info.train);
  GIVES(NULL, treadle_switch_config_warnings(NULL, &warnings));
  assert_int_equal(warnings, 0);
  const char *from = "x";
  GIVES(TREADLE_RESUME_NEVER, treadle_rl_config_start(NULL, &from));
  GIVES(TREADLE_RESUME_NEVER, treadle_rl_config_start(config, NULL));
  REFUSED(treadle_rl_config_help(true, NULL));
  REFUSED(treadle_rl_run(NULL, NULL, NULL, &figures));
  REFUSED(treadle_rl_foresee(NULL, 1, NULL, &memory));
  size_t kept;
  REFUSED(treadle_rl_foresee_kept(NULL, NULL, &kept));
  treadle_rl_mini_batch *mini = (void *)o;
  treadle_rl_mini_figures of_mini = TREADLE_INIT(treadle_rl_mini_figures);
  REFUSED(treadle_rl_mini_batch_read(NULL, o->train, "/nothing", 0, &mini));
  assert_null(mini);
  REFUSED(treadle_rl_mini_batch_measure(NULL, 1, NULL));
  REFUSED(treadle_rl_mini_batch_gradients(NULL, NULL, &of_mini));
  WORKS(treadle_rl_mini_batch_destroy(NULL));
  REFUSED(treadle_eval(NULL, NULL, &found));
  REFUSED(treadle_eval(NULL, &options, &found)); /* no reward */
  options.reward = "sequence";
  options.samples = -1;
  REFUSED(treadle_eval(NULL, &options, &found));
  options.samples = 0;
  options.temperature = -1;
  REFUSED(treadle_eval(NULL, &options, &found));
  REFUSED(treadle_eval(NULL, &options, NULL));
}

/* ---- treadle_tools.h ---- */

static const int32_t no_numbers[] = {-1, INT32_MIN, 1 << 20, INT32_MAX};

static void families(objects *o) {
  treadle_families *families = o->families;
  treadle_family_info info = TREADLE_INIT(treadle_family_info);
  treadle_family_check *check = o->check;
  treadle_family_check_info found = TREADLE_INIT(treadle_family_check_info);
  treadle_family_check_options given = TREADLE_INIT(treadle_family_check_options);
  char *text;
  REFUSED(treadle_families_open(NULL, NULL));
  WORKS(assert_true(treadle_families_open("/nothing/at/all", &families) < 0));
  note("treadle_families_open(");
  assert_null(families);
  GIVES(-1, treadle_families_count(NULL));
  REFUSED(treadle_families_get(NULL, 0, &info));
  REFUSED(treadle_families_get(o->families, 0, NULL));
  REFUSED_SIZES(info, treadle_families_get(o->families, 0, &info));
  GIVES(-1, treadle_families_find(NULL, "llama"));
  GIVES(-1, treadle_families_find(o->families, NULL));
  GIVES(-1, treadle_families_find(o->families, "no such family"));
  REFUSED(treadle_families_text(NULL, 0, &text));
  REFUSED(treadle_families_text(o->families, 0, NULL));
  REFUSED(treadle_families_expanded(NULL, 0, &text));
  REFUSED(treadle_families_expanded(o->families, 0, NULL));
  for (size_t i = 0; i < TEST_COUNT(no_numbers); i++) {
    REFUSED(treadle_families_get(o->families, no_numbers[i], &info));
    REFUSED(treadle_families_text(o->families, no_numbers[i], &text));
    assert_null(text);
    REFUSED(treadle_families_expanded(o->families, no_numbers[i], &text));
    assert_null(text);
  }
  WORKS(treadle_families_close(NULL));
  REFUSED(treadle_family_check_open(NULL, NULL, &check));
  assert_null(check);
  REFUSED(treadle_family_check_open(o->config, NULL, NULL));
  REFUSED_SIZES(given, treadle_family_check_open(o->config, &given, &check));
  REFUSED_NEWER(treadle_family_check_options, treadle_family_check_open(o->config, newer_p, &check));
  given.scale_down = -1;
  REFUSED(treadle_family_check_open(o->config, &given, &check));
  found.names = 7;
  NOTHING(treadle_family_check_get_info(NULL, &found));
  assert_int_equal(found.names, 0);
  NOTHING(treadle_family_check_get_info(o->check, NULL));
  GIVES(NULL, treadle_family_check_model(NULL));
  WORKS(treadle_family_check_close(NULL));
}

static void drafts(objects *o) {
  treadle_family_draft *draft = NULL;
  treadle_family_draft_options given = TREADLE_INIT(treadle_family_draft_options);
  treadle_family_draft_info info = TREADLE_INIT(treadle_family_draft_info);
  REFUSED(treadle_family_draft_create(NULL, NULL, &draft));
  assert_null(draft);
  REFUSED(treadle_family_draft_create(o->folder, NULL, NULL));
  REFUSED_SIZES(given, treadle_family_draft_create(o->folder, &given, &draft));
  REFUSED_NEWER(treadle_family_draft_options, treadle_family_draft_create(o->folder, newer_p, &draft));
  info.names = 7;
  NOTHING(treadle_family_draft_get_info(NULL, &info));
  assert_int_equal(info.names, 0);
  WORKS(treadle_family_draft_destroy(NULL));
}

static void inspection(objects *o) {
  treadle_model_info info = TREADLE_INIT(treadle_model_info);
  treadle_pattern_info kind = TREADLE_INIT(treadle_pattern_info);
  treadle_model *model = NULL;
  const treadle_model_options smaller = {.struct_size = sizeof smaller, .scale_down = -1};
  const char *name;
  int64_t value;
  REFUSED(treadle_model_open(o->config, &smaller, &model));
  info.tensors = 7;
  NOTHING(treadle_model_get_info(NULL, &info));
  assert_int_equal(info.tensors, 0);
  NOTHING(treadle_model_get_info(o->model, NULL));
  REFUSED(treadle_model_dim(NULL, 0, &name, &value));
  REFUSED(treadle_model_dim(o->model, 0, NULL, &value));
  REFUSED(treadle_model_dim(o->model, 0, &name, NULL));
  GIVES(NULL, treadle_model_file(NULL, 0));
  GIVES(-1, treadle_model_elems_of(NULL, TREADLE_BF16));
  REFUSED(treadle_model_pattern(NULL, 0, &kind));
  REFUSED(treadle_model_pattern(o->model, 0, NULL));
  REFUSED_SIZES(kind, treadle_model_pattern(o->model, 0, &kind));
  for (size_t i = 0; i < TEST_COUNT(no_numbers); i++) {
    REFUSED(treadle_model_dim(o->model, no_numbers[i], &name, &value));
    assert_null(name);
    GIVES(NULL, treadle_model_file(o->model, no_numbers[i]));
    REFUSED(treadle_model_pattern(o->model, no_numbers[i], &kind));
  }
  for (size_t i = 0; i < TEST_COUNT(no_enums); i++)
    GIVES(-1, treadle_model_elems_of(o->model, (treadle_dtype)no_enums[i]));
}

static void made(objects *o) {
  treadle_model *model = o->model;
  treadle_make_options given = TREADLE_INIT(treadle_make_options);
  char folder[64];
  snprintf(folder, sizeof folder, "%s/made", o->folder);
  REFUSED(treadle_make_model(NULL, NULL, &model));
  assert_null(model);
  REFUSED(treadle_make_model(folder, NULL, NULL));
  REFUSED_SIZES(given, treadle_make_model(folder, &given, &model));
  REFUSED_NEWER(treadle_make_options, treadle_make_model(folder, newer_p, &model));
  const treadle_make_options wrong[] = {{.layers = -1},
                                        {.hidden = 63},
                                        {.hidden = -64},
                                        {.hidden = INT64_MAX / 64 * 64},
                                        {.vocab = INT64_MIN},
                                        {.vocab = INT64_MAX},
                                        {.layers = INT64_MAX},
                                        {.scale_down = 100},
                                        {.scale_down = -1, .config = o->config},
                                        {.config = "/nothing/at/all"},
                                        {.model_type = "no such family"},
                                        {.model_type = "\xff"},
                                        {.dtype = TREADLE_FP8_E4M3},
                                        {.dtype = (treadle_dtype)99},
                                        {.dtype = (treadle_dtype)-1}};
  for (size_t i = 0; i < TEST_COUNT(wrong); i++) {
    given = wrong[i];
    given.struct_size = sizeof given;
    REFUSED(treadle_make_model(folder, &given, &model));
    assert_null(model);
    assert_int_equal(access(folder, F_OK), -1);
  }
  REFUSED(treadle_make_model(o->folder, NULL, &model)); /* there is a model */
}

static void machine(objects *o) {
  treadle_limit_info info = TREADLE_INIT(treadle_limit_info);
  int rank;
  REFUSED(treadle_machine_limit(TREADLE_OF_MACHINE, NULL));
  REFUSED_SIZES(info, treadle_machine_limit(TREADLE_OF_MACHINE, &info));
  for (size_t i = 0; i < TEST_COUNT(no_enums); i++)
    REFUSED(treadle_machine_limit((treadle_limit_kind)no_enums[i], &info));
  treadle_kernel_info kernel = TREADLE_INIT(treadle_kernel_info);
  WORKS(treadle_machine_kernel_count());
  REFUSED(treadle_machine_kernel(0, NULL));
  REFUSED_SIZES(kernel, treadle_machine_kernel(0, &kernel));
  REFUSED(treadle_machine_kernel(-1, &kernel));
  REFUSED(treadle_machine_kernel(treadle_machine_kernel_count(), &kernel));
  treadle_net_info net = TREADLE_INIT(treadle_net_info);
  WORKS(treadle_machine_net_count());
  REFUSED(treadle_machine_net(0, NULL));
  REFUSED_SIZES(net, treadle_machine_net(0, &net));
  REFUSED(treadle_machine_net(-1, &net));
  REFUSED(treadle_machine_net(treadle_machine_net_count(), &net));
  treadle_device_info device = TREADLE_INIT(treadle_device_info);
  WORKS(treadle_machine_device_count());
  WORKS(treadle_machine_has_kernels());
  REFUSED(treadle_machine_device(0, NULL));
  REFUSED_SIZES(device, treadle_machine_device(0, &device));
  REFUSED(treadle_machine_device(-1, &device));
  REFUSED(treadle_machine_device(treadle_machine_device_count(), &device));
  REFUSED(treadle_machine_address(NULL));
  WORKS(treadle_machine_address(&(treadle_node_address){.outside = true}));
  REFUSED(treadle_mpi_start(NULL, &rank));
  REFUSED(treadle_mpi_start(&rank, NULL));
  REFUSED(treadle_mpi_meet(NULL, false, NULL));
  REFUSED(treadle_mpi_meet_nodes(NULL, false, NULL, NULL, NULL));
  WORKS(treadle_mpi_stop()); /* it does not run */
  REFUSED(treadle_output_ask(NULL));
  REFUSED(treadle_output_ask(o->folder));
  REFUSED(treadle_output_write(NULL, "x", 1));
  REFUSED(treadle_output_write("/tmp/treadle-no-output", NULL, 1));
  REFUSED(treadle_output_write(o->folder, "x", 1));
}

/* ---- Text ---- */

static void tokens(objects *o) {
  static const int32_t bad_ids[] = {-1, 7, INT32_MIN, INT32_MAX};
  treadle_tokenizer *tokenizer = o->tokenizer;
  treadle_token_info info = TREADLE_INIT(treadle_token_info);
  int32_t *ids, id = 0;
  char *text_of;
  size_t count;
  REFUSED(treadle_tokenizer_open(NULL, &tokenizer));
  assert_null(tokenizer);
  REFUSED(treadle_tokenizer_open(o->tokens, NULL));
  REFUSED(treadle_tokenizer_open("", &tokenizer));
  REFUSED(treadle_tokenizer_open("/nothing/nothing", &tokenizer));
  REFUSED(treadle_tokenizer_open("/", &tokenizer));
  GIVES(-1, treadle_tokenizer_count(NULL));
  REFUSED(treadle_tokenizer_token(NULL, 0, &info));
  REFUSED(treadle_tokenizer_token(o->tokenizer, 0, NULL));
  REFUSED_SIZES(info, treadle_tokenizer_token(o->tokenizer, 0, &info));
  GIVES(-1, treadle_tokenizer_find(NULL, "a", 1));
  GIVES(-1, treadle_tokenizer_find(o->tokenizer, NULL, 1));
  GIVES(-1, treadle_tokenizer_find(o->tokenizer, "none", 4));
  GIVES(-1, treadle_tokenizer_special(NULL, TREADLE_BOS));
  GIVES(-1, treadle_tokenizer_special(o->tokenizer, TREADLE_BOS)); /* it has none */
  for (size_t i = 0; i < TEST_COUNT(no_enums); i++)
    GIVES(-1, treadle_tokenizer_special(o->tokenizer, (treadle_special_token)no_enums[i]));
  REFUSED(treadle_tokenizer_encode(NULL, "a", 1, true, &ids, &count));
  assert_null(ids);
  REFUSED(treadle_tokenizer_encode(o->tokenizer, NULL, 1, true, &ids, &count));
  REFUSED(treadle_tokenizer_encode(o->tokenizer, "a", 1, true, NULL, &count));
  REFUSED(treadle_tokenizer_encode(o->tokenizer, "a", 1, true, &ids, NULL));
  REFUSED(treadle_tokenizer_encode(o->tokenizer, "\xff", 1, true, &ids, &count));
  REFUSED(treadle_tokenizer_encode(o->tokenizer, "a", SIZE_MAX, true, &ids, &count));
  assert_null(ids);
  REFUSED(treadle_tokenizer_decode(NULL, &id, 1, true, &text_of, &count));
  assert_null(text_of);
  REFUSED(treadle_tokenizer_decode(o->tokenizer, NULL, 1, true, &text_of, &count));
  REFUSED(treadle_tokenizer_decode(o->tokenizer, &id, 1, true, NULL, &count));
  REFUSED(treadle_tokenizer_decode(o->tokenizer, &id, 1, true, &text_of, NULL));
  for (size_t i = 0; i < TEST_COUNT(bad_ids); i++) {
    REFUSED(treadle_tokenizer_token(o->tokenizer, bad_ids[i], &info));
    REFUSED(treadle_tokenizer_decode(o->tokenizer, &bad_ids[i], 1, true, &text_of, &count));
    assert_null(text_of);
  }
  WORKS(treadle_tokenizer_close(NULL));
}

static void handles(objects *o) {
  treadle_attached *attached = o->attached;
  treadle_attached_info info = TREADLE_INIT(treadle_attached_info);
  treadle_storage_info storage = TREADLE_INIT(treadle_storage_info);
  char handle[TREADLE_HANDLE_BYTES];
  size_t bytes = 7;
  uint64_t version = 7;
  REFUSED(treadle_switch_withdraw(NULL));
  REFUSED(treadle_switch_handle(NULL, TREADLE_INFER_PARAMS, handle, sizeof handle, &bytes));
  assert_int_equal(bytes, 0);
  REFUSED(treadle_switch_handle(o->sw, TREADLE_INFER_PARAMS, NULL, sizeof handle, &bytes));
  REFUSED(treadle_switch_handle(o->sw, TREADLE_INFER_PARAMS, handle, sizeof handle, NULL));
  REFUSED(treadle_switch_handle(o->sw, TREADLE_INFER_PARAMS, handle, 0, &bytes));
  REFUSED(treadle_switch_handle(o->sw, TREADLE_PARAMS, handle, sizeof handle, &bytes));
  for (size_t i = 0; i < TEST_COUNT(no_enums); i++)
    REFUSED(treadle_switch_handle(o->sw, (treadle_class)no_enums[i], handle, sizeof handle, &bytes));
  REFUSED(treadle_attach(NULL, o->handle_bytes, 1, &attached));
  assert_null(attached);
  REFUSED(treadle_attach(o->handle, o->handle_bytes, 1, NULL));
  REFUSED(treadle_attach(o->handle, 0, 1, &attached));
  REFUSED(treadle_attach(o->handle, SIZE_MAX, 1, &attached));
  for (size_t i = 0; i < TEST_COUNT(no_seconds); i++) {
    REFUSED(treadle_attach(o->handle, o->handle_bytes, no_seconds[i], &attached));
    assert_null(attached);
    REFUSED(treadle_attached_wait(o->attached, 1, no_seconds[i], NULL, NULL));
  }
  GIVES(NULL, treadle_attached_window(NULL, &bytes));
  assert_int_equal(bytes, 0);
  WORKS(assert_non_null(treadle_attached_window(o->attached, NULL)));
  char byte;
  REFUSED(treadle_attached_read(NULL, 0, 1, &byte));
  REFUSED(treadle_attached_read(o->attached, 0, 1, NULL));
  REFUSED(treadle_attached_read(o->attached, SIZE_MAX, 1, &byte));
  REFUSED(treadle_attached_read(o->attached, 1, SIZE_MAX, &byte));
  WORKS(assert_ok(treadle_attached_read(o->attached, 0, 1, &byte)));
  WORKS(assert_ok(treadle_attached_read(o->attached, 0, 0, NULL)));
  NOTHING(treadle_attached_get_info(NULL, &info));
  assert_int_equal(info.process, 0);
  NOTHING(treadle_attached_get_info(o->attached, NULL));
  GIVES(-1, treadle_attached_storage_count(NULL));
  REFUSED(treadle_attached_storage(NULL, 0, &storage));
  REFUSED(treadle_attached_storage(o->attached, 0, NULL));
  REFUSED(treadle_attached_storage(o->attached, -1, &storage));
  REFUSED(treadle_attached_storage(o->attached, INT32_MAX, &storage));
  REFUSED_SIZES(storage, treadle_attached_storage(o->attached, 0, &storage));
  GIVES(-1, treadle_attached_find(NULL, "x"));
  GIVES(-1, treadle_attached_find(o->attached, NULL));
  GIVES(-1, treadle_attached_find(o->attached, "no such tensor"));
  GIVES(0, treadle_attached_version(NULL));
  GIVES(false, treadle_attached_is_valid(NULL));
  REFUSED(treadle_attached_wait(NULL, 1, 1, NULL, NULL));
  REFUSED(treadle_attached_hold(NULL, &version));
  assert_int_equal(version, 0);
  REFUSED(treadle_attached_hold(o->attached, NULL));
  GIVES(TREADLE_STATE, treadle_attached_hold(o->attached, &version)); /* in mode TRAIN */
  REFUSED(treadle_attached_release(NULL, 1));
  GIVES(TREADLE_STATE, treadle_attached_release(o->attached, 1));
  WORKS(treadle_detach(NULL));
}

static void text_streams(objects *o) {
  treadle_text_stream *stream = o->stream;
  const char *part;
  size_t bytes;
  REFUSED(treadle_text_stream_create(NULL, true, &stream));
  assert_null(stream);
  REFUSED(treadle_text_stream_create(o->tokenizer, true, NULL));
  REFUSED(treadle_text_stream_put(NULL, 0, &part, &bytes));
  assert_null(part);
  REFUSED(treadle_text_stream_put(o->stream, 0, NULL, &bytes));
  REFUSED(treadle_text_stream_put(o->stream, 0, &part, NULL));
  REFUSED(treadle_text_stream_put(o->stream, -1, &part, &bytes));
  REFUSED(treadle_text_stream_put(o->stream, 7, &part, &bytes));
  REFUSED(treadle_text_stream_end(NULL, &part, &bytes));
  REFUSED(treadle_text_stream_end(o->stream, NULL, &bytes));
  REFUSED(treadle_text_stream_end(o->stream, &part, NULL));
  assert_ok(treadle_text_stream_end(o->stream, &part, &bytes));
  GIVES(TREADLE_STATE, treadle_text_stream_end(o->stream, &part, &bytes));
  GIVES(TREADLE_STATE, treadle_text_stream_put(o->stream, 0, &part, &bytes));
  WORKS(treadle_text_stream_destroy(NULL));
}

/* ---- treadle_testing.h ---- */

static void planted(objects *o) {
  uint64_t sums[OBJECTS_PIECES];
  treadle_injection injection = {TREADLE_INJECT_KILL, TREADLE_AT_WAVE, 0};
  REFUSED(treadle_plan_expect(NULL, o->memory));
  REFUSED(treadle_plan_expect(o->plan, NULL));
  GIVES(false, treadle_plan_shares(NULL, 0));
  GIVES(false, treadle_plan_shares(o->plan, -1));
  GIVES(false, treadle_plan_shares(o->plan, INT64_MAX));
  NOTHING(treadle_switch_noise(NULL, 1));
  double seconds;
  REFUSED(treadle_switch_flat_copy(NULL, 1, &seconds));
  REFUSED(treadle_switch_flat_copy(o->sw, 1, NULL));
  WORKS(assert_ok(treadle_switch_flat_copy(o->sw, 0, &seconds)));
  size_t window_bytes;
  (void)treadle_switch_window(o->sw, TREADLE_PARAMS, &window_bytes);
  REFUSED(treadle_switch_read(NULL, TREADLE_PARAMS, 0, 0, NULL));
  REFUSED(treadle_switch_read(o->sw, TREADLE_PARAMS, 0, 1, NULL));
  REFUSED(treadle_switch_read(o->sw, (treadle_class)77, 0, 1, o->memory));
  REFUSED(treadle_switch_read(o->sw, TREADLE_PARAMS, window_bytes, 1, o->memory));
  REFUSED(treadle_switch_read(o->sw, TREADLE_PARAMS, 1, SIZE_MAX, o->memory));
  GIVES(TREADLE_STATE,
        treadle_switch_read(o->sw, TREADLE_INFER_PARAMS, 0, 1, o->memory)); /* in mode TRAIN */
  char *window = treadle_switch_train_window(o->sw), before[8], after[8];
  if (window_bytes >= 16) {
    memcpy(before, window + 8, 8);
    assert_ok(treadle_switch_write(o->sw, TREADLE_PARAMS, 8, 8, "12345678"));
    assert_ok(treadle_switch_read(o->sw, TREADLE_PARAMS, 8, 8, after));
    assert_memory_equal(after, "12345678", 8);
    assert_memory_equal(window + 8, "12345678", 8);
    assert_ok(treadle_switch_write(o->sw, TREADLE_PARAMS, 8, 8, before));
  } else {
    fail_msg("the window of params is too small to be tried");
  }
  REFUSED(treadle_switch_write(NULL, TREADLE_PARAMS, 0, 0, NULL));
  REFUSED(treadle_switch_write(o->sw, TREADLE_PARAMS, 0, 1, NULL));
  REFUSED(treadle_switch_write(o->sw, TREADLE_PARAMS, window_bytes + 1, 0, o->memory));
  GIVES(TREADLE_STATE, treadle_switch_write(o->sw, TREADLE_INFER_PARAMS, 0, 1, o->memory));
  REFUSED(treadle_switch_digest_entries(NULL, 0, sums));
  REFUSED(treadle_switch_digest_entries(o->sw, 0, NULL));
  REFUSED(treadle_switch_digest_entries(o->sw, -1, sums));
  REFUSED(treadle_switch_plant(NULL, TREADLE_FAULT_DROP, 0, 0));
  REFUSED(treadle_switch_plant(o->sw, TREADLE_FAULT_DROP, -1, 0));
  REFUSED(treadle_switch_plant(o->sw, TREADLE_FAULT_DROP, 1, 0));
  REFUSED(treadle_switch_inject(NULL, injection));
  injection.wave = -1;
  REFUSED(treadle_switch_inject(o->sw, injection));
  for (size_t i = 0; i < TEST_COUNT(no_enums); i++) {
    REFUSED(treadle_switch_plant(o->sw, (treadle_fault)no_enums[i], 0, 0));
    injection = (treadle_injection){(treadle_injection_type)no_enums[i], TREADLE_AT_WAVE, 0};
    REFUSED(treadle_switch_inject(o->sw, injection));
    injection = (treadle_injection){TREADLE_INJECT_KILL, (treadle_injection_point)no_enums[i], 0};
    REFUSED(treadle_switch_inject(o->sw, injection));
    WORKS(
        assert_string_equal(treadle_injection_point_text((treadle_injection_point)no_enums[i]), "(none)"));
  }
  note("treadle_injection_point_text(");
  REFUSED(treadle_switch_return(NULL));
  GIVES(TREADLE_STATE, treadle_switch_return(o->sw)); /* in mode TRAIN */
  REFUSED(treadle_group_last_words(NULL, "x", 1));
  REFUSED(treadle_group_last_words(o->second, NULL, 1));
  REFUSED(treadle_group_last_words(o->second, o->memory, 4097));
  GIVES(NULL, treadle_group_hear(NULL, 0, 1));
  GIVES(NULL, treadle_group_hear(o->second, -1, 1));
  GIVES(NULL, treadle_group_hear(o->second, 1, 1));
  for (size_t i = 0; i < TEST_COUNT(no_seconds); i++)
    GIVES(NULL, treadle_group_hear(o->second, 0, no_seconds[i]));
  GIVES(-1, treadle_group_process(NULL, 0));
  GIVES(-1, treadle_group_process(o->second, -1));
  GIVES(-1, treadle_group_process(o->second, 1));
}

/* ---- treadle_control.h ---- */

static void meshes(objects *o) {
  (void)o;
  treadle_meshes *meshes;
  int32_t size;
  REFUSED(treadle_meshes_create(1, NULL));
  REFUSED(treadle_meshes_create(0, &meshes));
  REFUSED(treadle_meshes_create(INT32_MAX, &meshes));
  assert_null(meshes);
  assert_ok(treadle_meshes_create(1, &meshes));
  REFUSED(treadle_meshes_register(NULL, "m", 0, 0, true));
  REFUSED(treadle_meshes_register(meshes, NULL, 0, 0, true));
  REFUSED(treadle_meshes_register(meshes, "", 0, 0, true));
  REFUSED(treadle_meshes_register(meshes, "\xff", 0, 0, true));
  REFUSED(treadle_meshes_register(meshes, "m", 1, 0, true));
  REFUSED(treadle_meshes_register(meshes, "m", INT32_MIN, 0, true));
  REFUSED(treadle_meshes_register(meshes, "m", 0, INT32_MAX, true));
  REFUSED(treadle_meshes_dp_size(NULL, "m", &size));
  REFUSED(treadle_meshes_dp_size(meshes, NULL, &size));
  REFUSED(treadle_meshes_dp_size(meshes, "m", &size));
  assert_int_equal(size, 0);
  REFUSED(treadle_meshes_dp_size(meshes, "m", NULL));
  WORKS(treadle_meshes_destroy(NULL));
  treadle_meshes_destroy(meshes);
}

static void dispatches(objects *o) {
  (void)o;
  treadle_dispatch_argument given = {TREADLE_ARGUMENT_BATCH, 1};
  treadle_dispatch_spec spec = {
      .struct_size = sizeof spec, .workers = 1, .arguments = &given, .argument_count = 1};
  treadle_dispatch_info info = TREADLE_INIT(treadle_dispatch_info);
  treadle_dispatch_share share;
  treadle_dispatch *dispatch;
  treadle_batch *batch, *part;
  int32_t count;
  assert_ok(treadle_batch_create(1, &batch));
  REFUSED(treadle_dispatch_create(NULL, &dispatch));
  REFUSED(treadle_dispatch_create(&spec, NULL));
  REFUSED_SIZES(spec, treadle_dispatch_create(&spec, &dispatch));
  REFUSED_NEWER(treadle_dispatch_spec, treadle_dispatch_create(newer_p, &dispatch));
  for (size_t i = 0; i < TEST_COUNT(no_enums); i++) {
    spec.kind = (treadle_dispatch_kind)no_enums[i];
    REFUSED(treadle_dispatch_create(&spec, &dispatch));
    spec.kind = TREADLE_DISPATCH_ALL_TO_ALL;
    spec.execute = (treadle_execute_kind)no_enums[i];
    REFUSED(treadle_dispatch_create(&spec, &dispatch));
    spec.execute = TREADLE_EXECUTE_ALL;
    given.kind = (treadle_argument_kind)no_enums[i];
    REFUSED(treadle_dispatch_create(&spec, &dispatch));
    given.kind = TREADLE_ARGUMENT_BATCH;
  }
  given.length = INT64_MAX;
  REFUSED(treadle_dispatch_create(&spec, &dispatch));
  given.length = 1;
  spec.workers = INT32_MAX;
  REFUSED(treadle_dispatch_create(&spec, &dispatch));
  spec.workers = 1;
  spec.argument_count = SIZE_MAX;
  REFUSED(treadle_dispatch_create(&spec, &dispatch));
  spec.argument_count = 1;
  spec.arguments = NULL;
  REFUSED(treadle_dispatch_create(&spec, &dispatch));
  assert_null(dispatch);
  spec.arguments = &given;
  assert_ok(treadle_dispatch_create(&spec, &dispatch));
  REFUSED(treadle_dispatch_get_info(NULL, &info));
  REFUSED(treadle_dispatch_get_info(dispatch, NULL));
  REFUSED_SIZES(info, treadle_dispatch_get_info(dispatch, &info));
  REFUSED(treadle_dispatch_get_share(NULL, 0, &share));
  REFUSED(treadle_dispatch_get_share(dispatch, 1, &share));
  REFUSED(treadle_dispatch_get_share(dispatch, -1, &share));
  REFUSED(treadle_dispatch_get_share(dispatch, 0, NULL));
  REFUSED(treadle_dispatch_batch(NULL, 0, batch, &part));
  REFUSED(treadle_dispatch_batch(dispatch, 1, batch, &part));
  REFUSED(treadle_dispatch_batch(dispatch, 0, NULL, &part));
  assert_null(part);
  REFUSED(treadle_dispatch_batch(dispatch, 0, batch, NULL));
  REFUSED(treadle_dispatch_collect(NULL, (const treadle_batch *const[]){batch}, &part, &count));
  REFUSED(treadle_dispatch_collect(dispatch, NULL, &part, &count));
  REFUSED(treadle_dispatch_collect(dispatch, (const treadle_batch *const[]){NULL}, &part, &count));
  REFUSED(treadle_dispatch_collect(dispatch, (const treadle_batch *const[]){batch}, NULL, &count));
  REFUSED(treadle_dispatch_collect(dispatch, (const treadle_batch *const[]){batch}, &part, NULL));
  WORKS(treadle_dispatch_destroy(NULL));
  treadle_dispatch_destroy(dispatch);
  treadle_batch_destroy(batch);
}

static void balances(objects *o) {
  (void)o;
  static const int64_t loads[] = {1, 2};
  int64_t order[2] = {0, 1}, counts[2] = {1, 1}, inverse[2], count;
  treadle_balance_spec spec = {.struct_size = sizeof spec, .loads = loads, .count = 2, .parts = 2};
  treadle_balance_micro_spec micro = {
      .struct_size = sizeof micro, .lengths = loads, .count = 2, .max_tokens = 2};
  treadle_balance_figures figures = TREADLE_INIT(treadle_balance_figures);
  REFUSED(treadle_balance_workload(NULL, 2, order));
  REFUSED(treadle_balance_workload(loads, 2, NULL));
  REFUSED(treadle_balance_divide(NULL, order, counts));
  REFUSED(treadle_balance_divide(&spec, NULL, counts));
  REFUSED(treadle_balance_divide(&spec, order, NULL));
  REFUSED_SIZES(spec, treadle_balance_divide(&spec, order, counts));
  REFUSED_NEWER(treadle_balance_spec, treadle_balance_divide(newer_p, order, counts));
  spec.count = SIZE_MAX;
  REFUSED(treadle_balance_divide(&spec, order, counts));
  spec.count = 2;
  spec.loads = NULL;
  REFUSED(treadle_balance_divide(&spec, order, counts));
  spec.loads = loads;
  for (size_t i = 0; i < TEST_COUNT(no_enums); i++) {
    spec.kind = (treadle_balance_kind)no_enums[i];
    REFUSED(treadle_balance_divide(&spec, order, counts));
  }
  REFUSED(treadle_balance_invert(NULL, 2, inverse));
  REFUSED(treadle_balance_invert(order, 2, NULL));
  REFUSED(treadle_balance_invert(order, SIZE_MAX, inverse));
  REFUSED(treadle_balance_get_figures(NULL, 2, order, counts, 2, &figures));
  REFUSED(treadle_balance_get_figures(loads, 2, NULL, counts, 2, &figures));
  REFUSED(treadle_balance_get_figures(loads, 2, order, NULL, 2, &figures));
  REFUSED(treadle_balance_get_figures(loads, 2, order, counts, 0, &figures));
  REFUSED(treadle_balance_get_figures(loads, SIZE_MAX, order, counts, 1, &figures));
  REFUSED(treadle_balance_get_figures(loads, 2, order, counts, 2, NULL));
  REFUSED_SIZES(figures, treadle_balance_get_figures(loads, 2, order, counts, 2, &figures));
  REFUSED(treadle_balance_micro_count(NULL, &count));
  REFUSED(treadle_balance_micro_count(&micro, NULL));
  REFUSED_SIZES(micro, treadle_balance_micro_count(&micro, &count));
  REFUSED_NEWER(treadle_balance_micro_spec, treadle_balance_micro_count(newer_p, &count));
  REFUSED(treadle_balance_micro_divide(NULL, order, counts));
  REFUSED(treadle_balance_micro_divide(&micro, NULL, counts));
  REFUSED(treadle_balance_micro_divide(&micro, order, NULL));
  micro.count = SIZE_MAX;
  REFUSED(treadle_balance_micro_count(&micro, &count));
  micro.count = 2;
  micro.lengths = NULL;
  REFUSED(treadle_balance_micro_divide(&micro, order, counts));
}

/* ---- Docks ---- */

static void docks(objects *o) {
  (void)o;
  static const char *const names[] = {"a", "b"}, *const no_name[] = {"a", ""}, *const gap[] = {NULL, "b"};
  static const int64_t low[] = {-1}, high[] = {4}, first[] = {0};
  int64_t rows[8];
  size_t count;
  treadle_dock *dock;
  treadle_dock_spec spec = {.struct_size = sizeof spec,
                            .rows = 4,
                            .columns = names,
                            .column_count = 2,
                            .consumers = names,
                            .consumer_count = 2};
  REFUSED(treadle_dock_create(NULL, &dock));
  REFUSED(treadle_dock_create(&spec, NULL));
  REFUSED_SIZES(spec, treadle_dock_create(&spec, &dock));
  REFUSED_NEWER(treadle_dock_spec, treadle_dock_create(newer_p, &dock));
  for (size_t i = 0; i < 3; i++) {
    spec.rows = (const int64_t[]){0, -1, INT64_MAX}[i];
    REFUSED(treadle_dock_create(&spec, &dock));
  }
  spec.rows = 4;
  spec.group = -1;
  REFUSED(treadle_dock_create(&spec, &dock));
  spec.group = 3;
  REFUSED(treadle_dock_create(&spec, &dock));
  spec.group = 0;
  spec.column_count = SIZE_MAX;
  REFUSED(treadle_dock_create(&spec, &dock));
  spec.column_count = 2;
  spec.columns = NULL;
  REFUSED(treadle_dock_create(&spec, &dock));
  spec.columns = no_name;
  REFUSED(treadle_dock_create(&spec, &dock));
  spec.columns = gap;
  REFUSED(treadle_dock_create(&spec, &dock));
  spec.columns = names;
  spec.consumer_count = 0;
  REFUSED(treadle_dock_create(&spec, &dock));
  spec.consumer_count = 2;
  assert_ok(treadle_dock_create(&spec, &dock));
  REFUSED(treadle_dock_put(NULL, names, 1, first, 1));
  REFUSED(treadle_dock_put(dock, NULL, 1, first, 1));
  REFUSED(treadle_dock_put(dock, names, SIZE_MAX, first, 1));
  REFUSED(treadle_dock_put(dock, names, 1, NULL, 1));
  REFUSED(treadle_dock_put(dock, names, 1, first, SIZE_MAX));
  REFUSED(treadle_dock_put(dock, names, 1, low, 1));
  REFUSED(treadle_dock_put(dock, names, 1, high, 1));
  treadle_dock_request ask = {
      .struct_size = sizeof ask, .consumer = "a", .columns = names, .column_count = 1};
  REFUSED(treadle_dock_take(NULL, &ask, rows, &count));
  REFUSED(treadle_dock_take(dock, NULL, rows, &count));
  REFUSED(treadle_dock_take(dock, &ask, NULL, &count));
  REFUSED(treadle_dock_take(dock, &ask, rows, NULL));
  REFUSED_SIZES(ask, treadle_dock_take(dock, &ask, rows, &count));
  REFUSED_NEWER(treadle_dock_request, treadle_dock_take(dock, newer_p, rows, &count));
  ask.consumer = NULL;
  REFUSED(treadle_dock_take(dock, &ask, rows, &count));
  ask.consumer = "a";
  ask.columns = NULL;
  REFUSED(treadle_dock_take(dock, &ask, rows, &count));
  ask.columns = gap;
  REFUSED(treadle_dock_take(dock, &ask, rows, &count));
  ask.columns = names;
  ask.column_count = 0;
  REFUSED(treadle_dock_take(dock, &ask, rows, &count));
  ask.column_count = 1;
  ask.count = -1;
  REFUSED(treadle_dock_take(dock, &ask, rows, &count));
  ask.count = 0;
  ask.dp_size = INT64_MAX;
  REFUSED(treadle_dock_take(dock, &ask, rows, &count));
  GIVES(false, treadle_dock_all_consumed(NULL, "a"));
  GIVES(false, treadle_dock_all_consumed(dock, NULL));
  GIVES(0, treadle_dock_ready(NULL, "a"));
  GIVES(0, treadle_dock_ready(dock, NULL));
  NOTHING(treadle_dock_clear(NULL));
  WORKS(treadle_dock_destroy(NULL));
  treadle_dock_destroy(dock);
}

/* ---- Pools ---- */

static void pools_of_slots(objects *o) {
  static const int32_t two[] = {2, 2}, node_of[] = {0, 0, 1, 1};
  const treadle_resource_pool_spec spec = {.name = "p", .counts = two, .entries = 2};
  treadle_resource_pool *pool = (void *)o, *parts[4] = {NULL}, *merged = (void *)o;
  treadle_resource_pool_info info = TREADLE_INIT(treadle_resource_pool_info);
  treadle_slot slot;
  REFUSED(treadle_resource_pool_create(&spec, 1, node_of, 4, NULL));
  REFUSED(treadle_resource_pool_create(NULL, 1, node_of, 4, &pool));
  REFUSED(treadle_resource_pool_create(&spec, 1, NULL, 4, &pool));
  REFUSED(treadle_resource_pool_create(&spec, 0, node_of, 4, &pool));
  REFUSED(treadle_resource_pool_create(&spec, 1, node_of, SIZE_MAX, &pool));
  assert_null(pool);
  assert_ok(treadle_resource_pool_create(&spec, 1, node_of, 4, &pool));
  NOTHING(treadle_resource_pool_get_info(NULL, &info));
  NOTHING(treadle_resource_pool_get_info(pool, NULL));
  REFUSED(treadle_resource_pool_get_slot(NULL, 0, &slot));
  REFUSED(treadle_resource_pool_get_slot(pool, 0, NULL));
  REFUSED(treadle_resource_pool_get_slot(pool, INT32_MAX, &slot));
  REFUSED(treadle_resource_pool_split(NULL, two, 2, parts));
  REFUSED(treadle_resource_pool_split(pool, NULL, 2, parts));
  REFUSED(treadle_resource_pool_split(pool, two, 2, NULL));
  REFUSED(treadle_resource_pool_split(pool, two, SIZE_MAX, parts));
  REFUSED(treadle_resource_pool_split_evenly(NULL, 1, parts));
  REFUSED(treadle_resource_pool_split_evenly(pool, 1, NULL));
  REFUSED(treadle_resource_pool_split_evenly(pool, INT32_MIN, parts));
  REFUSED(treadle_resource_pool_merge(NULL, pool, &merged));
  assert_null(merged);
  REFUSED(treadle_resource_pool_merge(pool, NULL, &merged));
  REFUSED(treadle_resource_pool_merge(pool, pool, NULL));
  REFUSED(treadle_resource_pool_merge(pool, pool, &merged));
  WORKS(treadle_resource_pool_destroy(NULL));
  treadle_resource_pool_destroy(pool);
  for (size_t i = 0; i < TEST_COUNT(no_enums); i++)
    WORKS(assert_string_equal(treadle_pool_role_name((treadle_pool_role)no_enums[i]), "(none)"));
  note("treadle_pool_role_name(");
}

static void pools_of_roles(objects *o) {
  static const int32_t slots[] = {2, -1};
  static const char *const none[] = {NULL};
  treadle_train_config *config = (void *)o;
  treadle_rl_pools *pools = (void *)o;
  treadle_rl_pools_info info = TREADLE_INIT(treadle_rl_pools_info);
  treadle_rl_pool_info one = TREADLE_INIT(treadle_rl_pool_info);
  treadle_rl_pool_memory memory = TREADLE_INIT(treadle_rl_pool_memory);
  treadle_rl_options options = {.struct_size = sizeof options};
  size_t bytes;
  bool known;
  REFUSED(treadle_rl_pools_config_read(NULL, NULL, 0, &config));
  assert_null(config);
  REFUSED(treadle_rl_pools_config_read("/nothing", NULL, 1, &config));
  REFUSED(treadle_rl_pools_config_read("/nothing", none, 0, NULL));
  GIVES(TREADLE_SYSTEM, treadle_rl_pools_config_read("/nothing/at/all", NULL, 0, &config));
  assert_ok(treadle_rl_pools_config_read(TREADLE_SOURCE_DIR "/examples/grpo-demo.yaml", NULL, 0, &config));
  REFUSED(treadle_rl_pools_create(NULL, slots, 1, &pools));
  assert_null(pools);
  REFUSED(treadle_rl_pools_create(config, NULL, 1, &pools));
  REFUSED(treadle_rl_pools_create(config, slots, 2, &pools));
  REFUSED(treadle_rl_pools_create(config, slots, 1, NULL));
  assert_ok(treadle_rl_pools_create(config, slots, 1, &pools));
  NOTHING(treadle_rl_pools_get_info(NULL, &info));
  NOTHING(treadle_rl_pools_get_info(pools, NULL));
  REFUSED(treadle_rl_pools_get_pool(NULL, 0, &one));
  REFUSED(treadle_rl_pools_get_pool(pools, 0, NULL));
  REFUSED(treadle_rl_pools_get_pool(pools, -1, &one));
  REFUSED(treadle_rl_pools_get_pool(pools, 1, &one));
  REFUSED_SIZES(one, treadle_rl_pools_get_pool(pools, 0, &one));
  REFUSED(treadle_rl_pools_foresee(NULL, config, &options, 0, &bytes, &known));
  REFUSED(treadle_rl_pools_foresee(pools, NULL, &options, 0, &bytes, &known));
  REFUSED(treadle_rl_pools_foresee(pools, config, &options, 1, &bytes, &known));
  REFUSED(treadle_rl_pools_foresee(pools, config, &options, 0, NULL, &known));
  REFUSED(treadle_rl_pools_foresee(pools, config, &options, 0, &bytes, NULL));
  REFUSED_SIZES(options, treadle_rl_pools_foresee(pools, config, &options, 0, &bytes, &known));
  REFUSED(treadle_rl_pools_foresee_roles(NULL, config, &options, 0, &memory));
  REFUSED(treadle_rl_pools_foresee_roles(pools, NULL, &options, 0, &memory));
  REFUSED(treadle_rl_pools_foresee_roles(pools, config, &options, 1, &memory));
  REFUSED(treadle_rl_pools_foresee_roles(pools, config, &options, 0, NULL));
  REFUSED_SIZES(options, treadle_rl_pools_foresee_roles(pools, config, &options, 0, &memory));
  REFUSED_SIZES(memory, treadle_rl_pools_foresee_roles(pools, config, &options, 0, &memory));
  WORKS(treadle_rl_pools_destroy(NULL));
  treadle_rl_pools_destroy(pools);
  treadle_train_config_destroy(config);
}

/* ---- Crews ---- */

static treadle_status crew_method(void *worker, const treadle_batch *in, treadle_batch **out_p) {
  (void)worker, (void)in;
  return treadle_batch_create(2, out_p);
}

static void crews(objects *o) {
  static const treadle_class_method method = {.name = "m", .function = crew_method},
                                    twice[] = {{.name = "m", .function = crew_method},
                                               {.name = "m", .function = crew_method}},
                                    empty = {.name = "m"};
  const treadle_worker_class class = {
      .struct_size = sizeof class, .name = "c", .methods = &method, .method_count = 1};
  treadle_worker_class bad[] = {class, class}, without = class, nameless = class, doubled = class;
  treadle_crew_options options = TREADLE_INIT(treadle_crew_options);
  treadle_crew *crew;
  treadle_workers *workers;
  treadle_future *future;
  treadle_batch *batch, *list[1];
  treadle_crew_books books;
  const int32_t ranks[] = {0};
  int64_t rows;
  size_t count;
  REFUSED(treadle_crew_open(NULL, &class, 1, NULL, &crew));
  REFUSED(treadle_crew_open(o->group, NULL, 1, NULL, &crew));
  REFUSED(treadle_crew_open(o->group, &class, 1, NULL, NULL));
  REFUSED(treadle_crew_open(o->group, bad, 2, NULL, &crew));
  without.methods = NULL;
  REFUSED(treadle_crew_open(o->group, &without, 1, NULL, &crew));
  without.methods = &empty;
  REFUSED(treadle_crew_open(o->group, &without, 1, NULL, &crew));
  nameless.name = NULL;
  REFUSED(treadle_crew_open(o->group, &nameless, 1, NULL, &crew));
  doubled.methods = twice;
  doubled.method_count = 2;
  REFUSED(treadle_crew_open(o->group, &doubled, 1, NULL, &crew));
  options.timeout_seconds = -1;
  REFUSED(treadle_crew_open(o->group, &class, 1, &options, &crew));
  options.timeout_seconds = 0;
  REFUSED_SIZES(options, treadle_crew_open(o->group, &class, 1, &options, &crew));
  assert_null(crew);
  assert_ok(treadle_crew_open(o->group, &class, 1, &options, &crew));
  REFUSED(treadle_crew_serve(NULL));
  assert_int_equal(treadle_crew_serve(crew), TREADLE_STATE);
  WORKS(treadle_crew_end(NULL, TREADLE_OK));
  WORKS(treadle_crew_close(NULL));
  WORKS(treadle_crew_get_books(NULL, &books));
  WORKS(treadle_crew_get_books(crew, NULL));
  REFUSED(treadle_workers_create(NULL, ranks, 1, "c", NULL, &workers));
  REFUSED(treadle_workers_create(crew, NULL, 1, "c", NULL, &workers));
  REFUSED(treadle_workers_create(crew, ranks, 0, "c", NULL, &workers));
  REFUSED(treadle_workers_create(crew, ranks, 1, NULL, NULL, &workers));
  REFUSED(treadle_workers_create(crew, ranks, 1, "d", NULL, &workers));
  REFUSED(treadle_workers_create(crew, ranks, 1, "c", NULL, NULL));
  REFUSED(treadle_workers_create_in_pool(crew, NULL, 0, "c", NULL, &workers));
  assert_ok(treadle_workers_create(crew, ranks, 1, "c", NULL, &workers));
  GIVES(-1, treadle_workers_size(NULL));
  REFUSED(treadle_workers_alive(NULL));
  WORKS(treadle_workers_destroy(NULL));
  treadle_call_input in = TREADLE_INIT(treadle_call_input);
  REFUSED(treadle_workers_call(NULL, "m", &in, &future));
  REFUSED(treadle_workers_call(workers, NULL, &in, &future));
  REFUSED(treadle_workers_call(workers, "n", &in, &future));
  REFUSED(treadle_workers_call(workers, "m", &in, NULL));
  REFUSED_SIZES(in, treadle_workers_call(workers, "m", &in, &future));
  in.future_count = 1;
  REFUSED(treadle_workers_call(workers, "m", &in, &future));
  in = TREADLE_INIT(treadle_call_input);
  in.row_count = 1;
  REFUSED(treadle_workers_call(workers, "m", &in, &future));
  in.rows = &(const int64_t){0};
  REFUSED(treadle_workers_call(workers, "m", &in, &future));
  in = TREADLE_INIT(treadle_call_input);
  in.column_count = 1;
  REFUSED(treadle_workers_call(workers, "m", &in, &future));
  in = TREADLE_INIT(treadle_call_input);
  in.list_count = 1;
  REFUSED(treadle_workers_call(workers, "m", &in, &future));
  in = TREADLE_INIT(treadle_call_input);
  in.by_worker = &(const treadle_row_range){1, 0};
  REFUSED(treadle_workers_call(workers, "m", &in, &future));
  assert_null(future);
  assert_ok(treadle_workers_call(workers, "m", NULL, &future));
  REFUSED(treadle_future_wait(NULL));
  GIVES(false, treadle_future_done(NULL));
  REFUSED(treadle_future_rows(NULL, &rows));
  REFUSED(treadle_future_rows(future, NULL));
  REFUSED(treadle_future_take(NULL, NULL, 0, &batch));
  REFUSED(treadle_future_take(future, NULL, 0, NULL));
  REFUSED(treadle_future_take(future, NULL, 1, &batch));
  REFUSED(treadle_future_take(future, NULL, 0, &batch)); /* the results are a list */
  REFUSED(treadle_future_take_of(NULL, 0, NULL, 0, &batch));
  REFUSED(treadle_future_take_of(future, 1, NULL, 0, &batch));
  REFUSED(treadle_future_take_of(future, -1, NULL, 0, &batch));
  REFUSED(treadle_future_take_of(future, 0, NULL, 0, NULL));
  REFUSED(treadle_future_take_list(NULL, list, &count));
  REFUSED(treadle_future_take_list(future, NULL, &count));
  REFUSED(treadle_future_take_list(future, list, NULL));
  assert_ok(treadle_future_rows(future, &rows));
  assert_int_equal(rows, 2);
  treadle_crew_close(crew);
  /* What is left of a crew that was closed gives no way to what is gone. */
  assert_int_equal(treadle_workers_call(workers, "m", NULL, &(treadle_future *){NULL}), TREADLE_STATE);
  treadle_future_destroy(future);
  WORKS(treadle_future_destroy(NULL));
  treadle_workers_destroy(workers);
}

/* ---- All ---- */

static void look_up(void *context, const char *name) {
  int *count = context;
  ++*count;
  for (size_t i = 0; i < called_count; i++)
    if (strcmp(called[i], name) == 0) return;
  fail_msg("%s is in a public header, and no argument of it is tried here", name);
}

static void test_arguments(void **state) {
  (void)state;
  static void (*const parts[])(objects *) = {
      texts,           models,   layouts,      pieces,         placements,     plans,
      reports,         groups,   devices,      switch_options, switches,       conversions,
      families,        drafts,   inspection,   made,           batches,        machine,
      planted,         chats,    engines,      engine_work,    generating,     training,
      configurations,  tokens,   text_streams, policies,       rewards,        prompts_of_loops,
      scores_of_loops, workers,  runs,         handles,        critics,        meshes,
      dispatches,      balances, docks,        pools_of_slots, pools_of_roles, crews};
  objects o;
  int count = 0;
  objects_init(&o);
  for (size_t i = 0; i < TEST_COUNT(parts); i++) parts[i](&o);
  objects_release(&o);
  objects_each_function(look_up, &count);
  assert_in_range(count, 58, 500);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_arguments)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
