/* Calls of public functions with arguments drawn in and out of range: no crash, no word of a sanitizer, a message where a status is
 * no TREADLE_OK. TREADLE_CALLS says how many, TREADLE_SEED from where. ctest: timeout=600 */
#include "api/objects.h"
#include "base/random.h"
#include "base/status.h"
#include "test.h"
#include "train/rows.h"
#include "treadle_batch.h"
#include "treadle_control.h"
#include "treadle_device.h"

#include <math.h>
#include <unistd.h>

enum { CALLS = 20000 };

typedef struct caller {
  objects o;
  treadle_random random;
  FILE *paper;
  char *window; /* as large as the largest window */
  char name[32];
} caller;

/* ---- Drawing ---- */

static size_t below(caller *c, size_t count) {
  return (size_t)treadle_random_below(&c->random, (int64_t)count);
}
static bool often(caller *c) { return below(c, 8) > 0; }

#define ONE_OF(c, array)    ((array)[below(c, TEST_COUNT(array))])
#define OR_NULL(c, pointer) (often(c) ? (pointer) : NULL)

static int64_t number(caller *c) {
  static const int64_t numbers[] = {0,  0,  0,    0,    1,         1,         2,         3,
                                    -1, 77, 4096, 4097, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
  return often(c) ? ONE_OF(c, numbers) : (int64_t)treadle_random_next(&c->random);
}

/* Sizes that are small, or that nobody has. */
static size_t size(caller *c) {
  static const size_t small[] = {0, 0, 0, 16, 64, 4096, 8192, 65536},
                      none[] = {1, 15, SIZE_MAX, SIZE_MAX - 15, (size_t)1 << 63};
  return below(c, 16) ? ONE_OF(c, small) : ONE_OF(c, none);
}

/* Of a struct: its own, a smaller one, or one that is none. What is larger would be memory that is not there. */
/* A smaller one ends between two fields, as that of an older header: half a pointer is none. */
static size_t struct_size(caller *c, size_t own) {
  return often(c)   ? own
         : often(c) ? below(c, own / 8 + 1) * 8
                    : (size_t)treadle_random_next(&c->random) | 1 << 16;
}

static size_t page(caller *c) {
  static const size_t pages[] = {0, 65536, 1, 5000, SIZE_MAX, (size_t)1 << 63};
  return often(c) ? 4096 : ONE_OF(c, pages);
}

static int any_enum(caller *c) {
  static const int values[] = {0, 0, 1, 1, 2, 3, 4, 5, 9, 77, 99, -1, INT32_MAX, INT32_MIN};
  return ONE_OF(c, values);
}

static double seconds(caller *c) {
  static const double values[] = {0.001, 0, -1, 1e300, NAN, INFINITY, -INFINITY};
  return ONE_OF(c, values);
}

static const char *text(caller *c) {
  static const char *const texts[] = {"hf",
                                      "vllm:tp=1",
                                      "vllm:tp=2",
                                      "megatron:tp=1",
                                      "megatron:tp=2,pp=2",
                                      "fsdp2:dp=1",
                                      "sglang:tp=4",
                                      "fsdp:dp=3",
                                      "zero3:dp=2",
                                      "distopt:tp=1,dp=2",
                                      "pieces:@/nowhere",
                                      "",
                                      ":",
                                      "vllm",
                                      "vllm:tp=",
                                      "vllm:tp=-1",
                                      "vllm:tp=99999999999999999999",
                                      "x:y=z",
                                      "vllm:tp=1,tp=1",
                                      "vllm:dtype=fp8,tp=1",
                                      "megatron:order=tp",
                                      "\xff\xfe"};
  return OR_NULL(c, ONE_OF(c, texts));
}

static const treadle_layout *layout(caller *c) {
  const treadle_layout *const same[] = {c->o.train, c->o.infer}, *const others[] = {c->o.wide, c->o.foreign,
                                                                                    NULL};
  return often(c) ? ONE_OF(c, same) : ONE_OF(c, others);
}

static const treadle_model *model(caller *c) { return OR_NULL(c, c->o.model); }
static const treadle_plan *plan(caller *c) { return OR_NULL(c, c->o.plan); }
static treadle_switch *sw(caller *c) { return OR_NULL(c, c->o.sw); }
static int64_t rank(caller *c) { return often(c) ? 0 : number(c); }

/* ---- Calling: functions of one object are one group ---- */

static char called[400][64];
static size_t called_count;

/* Notes which function it is, and that no message stands. */
static void begin(const char *call) {
  size_t length = strcspn(call, "(");
  treadle_fail(TREADLE_OK, "%s", "");
  for (size_t i = 0; i < called_count; i++)
    if (strncmp(called[i], call, length) == 0 && !called[i][length]) return;
  assert_in_range(called_count, 0, TEST_COUNT(called) - 1);
  snprintf(called[called_count++], sizeof *called, "%.*s", (int)length, call);
}

/* A status is one, and says why it is not TREADLE_OK. */
static treadle_status said(treadle_status status, const char *call) {
  if (status > TREADLE_OK || status < TREADLE_CANCELLED ||
      (status != TREADLE_OK && !*treadle_error_message()))
    fail_msg("%s: status %d, '%s'", call, (int)status, treadle_error_message());
  return status;
}

/* A function that returns a status, or another. */
#define SAID(call) (begin(#call), said(call, #call))
#define CALL(call) (begin(#call), (void)(call))

static void call_models(caller *c) {
  const char *const paths[] = {c->o.folder, c->o.config, "", "/", "/dev/null", "/nowhere/at/all", NULL};
  const treadle_model_options options = {.struct_size = struct_size(c, sizeof options),
                                         .families = OR_NULL(c, TREADLE_SOURCE_DIR "/tests"),
                                         .weights = (treadle_weights)any_enum(c),
                                         .head = often(c) ? TREADLE_HEAD_LM : (treadle_head)any_enum(c),
                                         .score_zeros = below(c, 2)};
  treadle_tensor_info info = {.struct_size = struct_size(c, sizeof info)};
  treadle_model *made = NULL;
  switch (below(c, 8)) {
  case 0:
    if (below(c, 10) == 0)
      SAID(treadle_model_open(ONE_OF(c, paths), OR_NULL(c, &options), OR_NULL(c, &made)));
    CALL(treadle_model_close(made));
    break;
  case 1: CALL(treadle_model_tensor_count(model(c))); break;
  case 2: CALL(treadle_model_family(model(c))); break;
  case 3: CALL(treadle_model_elems(model(c))); break;
  case 4: CALL(treadle_model_bytes(model(c))); break;
  case 5:
    CALL(treadle_model_has_weights(model(c)));
    CALL(treadle_model_weights(model(c)));
    char line[64];
    SAID(treadle_model_unheard(model(c), OR_NULL(c, line), below(c, sizeof line)));
    SAID(treadle_model_need_weights(model(c)));
    break;
  default: SAID(treadle_model_tensor(model(c), (int32_t)number(c), OR_NULL(c, &info)));
  }
}

static treadle_explicit_piece *spoil_pieces(caller *c, treadle_explicit_piece *pieces) {
  memcpy(pieces, c->o.pieces, sizeof c->o.pieces);
  for (size_t i = below(c, 3); i > 0; i--) {
    treadle_explicit_piece *p = &pieces[below(c, c->o.piece_count)];
    int d = (int)below(c, 4);
    switch (below(c, 9)) {
    case 0: p->rank = number(c); break;
    case 1: p->storage = OR_NULL(c, text(c)); break;
    case 2: p->tensor = text(c); break;
    case 3: p->storage_ndim = any_enum(c); break;
    case 4: p->dtype = (treadle_dtype)any_enum(c); break;
    case 5: p->start[d] = number(c); break;
    case 6: p->size[d] = number(c); break;
    case 7: p->offset = number(c); break;
    default: p->stride[d] = number(c);
    }
  }
  return OR_NULL(c, pieces);
}

/* A list of the pieces' tensors on two meshes, some of it spoiled. */
static void call_placements(caller *c) {
  const int64_t ranks[] = {(int64_t)below(c, 3), often(c) ? 1 : number(c), 2, 3};
  treadle_placed_mesh meshes[2] = {{.ndim = 1, .size = {1}},
                                   {.ndim = 2, .size = {2, 2}, .ranks = OR_NULL(c, ranks)}};
  treadle_placed_tensor tensors[OBJECTS_PIECES];
  treadle_layout *made = NULL;
  for (size_t i = 0; i < c->o.piece_count; i++)
    tensors[i] =
        (treadle_placed_tensor){.tensor = c->o.pieces[i].tensor,
                                .mesh = (int32_t)below(c, 3) - 1,
                                .placements = {{TREADLE_SHARD, 0, 0}, {TREADLE_FULLY_SHARD, 0, 0}}};
  for (size_t i = below(c, 4); i > 0; i--) {
    treadle_placed_tensor *tensor = &tensors[below(c, c->o.piece_count)];
    treadle_placed_mesh *mesh = &meshes[below(c, 2)];
    int d = (int)below(c, 8);
    switch (below(c, 14)) {
    case 0: mesh->ndim = any_enum(c); break;
    case 1: mesh->size[d] = number(c); break;
    case 2: mesh->first = number(c); break;
    case 3: mesh->stride[d] = number(c); break;
    case 4: tensor->storage = OR_NULL(c, text(c)); break;
    case 5: tensor->tensor = OR_NULL(c, text(c)); break;
    case 6: tensor->dtype = (treadle_dtype)any_enum(c); break;
    case 7: tensor->mesh = any_enum(c); break;
    case 8: tensor->ndim = any_enum(c); break;
    case 9: tensor->shape[d % 4] = number(c); break;
    case 10: tensor->placements[d % 2].type = (treadle_placement_type)any_enum(c); break;
    case 11: tensor->placements[d % 2].dim = any_enum(c); break;
    case 12: tensor->placements[d % 2].split = number(c); break;
    default:
      tensor->placements[d % 2].type = TREADLE_STRIDED_SHARD;
      tensor->placements[d % 2].split = number(c);
    }
  }
  SAID(treadle_layout_from_placements(
      model(c), often(c) ? 4 : number(c), OR_NULL(c, meshes), below(c, 3), OR_NULL(c, tensors),
      often(c) ? c->o.piece_count : below(c, c->o.piece_count), OR_NULL(c, &made)));
  CALL(treadle_layout_destroy(made));
}

static void call_save(caller *c) {
  char made[40];
  snprintf(made, sizeof made, "%s/saved", c->o.folder);
  const char *const paths[] = {made, made, made, c->o.folder, "", "/", "/dev/null", "/nowhere/at/all",
                               NULL};
  const treadle_save_options options = {.struct_size = struct_size(c, sizeof options),
                                        .dtype = (treadle_dtype)any_enum(c),
                                        .shard_bytes = size(c),
                                        .weights_only = below(c, 2)};
  if (below(c, 8)) return;
  SAID(treadle_layout_save(OR_NULL(c, c->o.second), layout(c), OR_NULL(c, c->window), ONE_OF(c, paths),
                           OR_NULL(c, &options)));
  if (access(made, F_OK) == 0) test_remove(made);
}

static void call_layouts(caller *c) {
  treadle_explicit_piece pieces[OBJECTS_PIECES];
  treadle_storage_info info = {.struct_size = struct_size(c, sizeof info)};
  treadle_layout_options options = {.struct_size = struct_size(c, sizeof options)};
  const int32_t node_of[] = {1, 0, 1};
  treadle_layout *made = NULL;
  treadle_run *runs = NULL;
  size_t count;
  switch (below(c, 16)) {
  case 13: CALL(treadle_layout_holds(layout(c), rank(c))); break;
  case 14: call_placements(c); break;
  case 0:
    SAID(treadle_layout_create(model(c), text(c), often(c) ? (int64_t)below(c, 9) : number(c), NULL,
                               OR_NULL(c, &made)));
    break;
  case 1:
    count = often(c) ? c->o.piece_count : below(c, c->o.piece_count);
    SAID(treadle_layout_from_pieces(model(c), often(c) ? 1 : number(c), spoil_pieces(c, pieces), count,
                                    OR_NULL(c, &made)));
    break;
  case 2:
    options.rank_map = (treadle_rank_map)any_enum(c);
    options.train = layout(c);
    options.node_of = OR_NULL(c, node_of);
    SAID(treadle_layout_create(model(c), text(c), (int64_t)below(c, 3), OR_NULL(c, &options),
                               OR_NULL(c, &made)));
    break;
  case 10: CALL(treadle_layout_find(layout(c), rank(c), text(c))); break;
  case 11: CALL(treadle_layout_is_train(layout(c))); break;
  case 12: call_save(c); break;
  case 3: CALL(treadle_layout_rank_map(layout(c))); break;
  case 4: CALL(treadle_layout_text(layout(c))); break;
  case 5: CALL(treadle_layout_ranks(layout(c))); break;
  case 6: CALL(treadle_layout_window_bytes(layout(c), rank(c))); break;
  case 7: CALL(treadle_layout_storage_count(layout(c), rank(c))); break;
  case 8:
    if (often(c))
      SAID(treadle_layout_load(layout(c), rank(c), OR_NULL(c, c->window)));
    else
      SAID(treadle_layout_load_weights(layout(c), rank(c), (treadle_weights)any_enum(c),
                                       OR_NULL(c, c->window)));
    break;
  case 9:
    SAID(
        treadle_layout_runs(layout(c), rank(c), (int32_t)number(c), OR_NULL(c, &runs), OR_NULL(c, &count)));
    break;
  default: SAID(treadle_layout_storage(layout(c), rank(c), (int32_t)number(c), OR_NULL(c, &info)));
  }
  CALL(treadle_layout_destroy(made));
  free(runs);
}

static void call_plans(caller *c) {
  const treadle_plan_options options = {.struct_size = struct_size(c, sizeof(treadle_plan_options)),
                                        .page_bytes = page(c),
                                        .cap_bytes = size(c),
                                        .waves = often(c) ? (int32_t)below(c, 20) : (int32_t)number(c),
                                        .alias = below(c, 2),
                                        .keep_params = below(c, 2)};
  treadle_plan *made = NULL;
  treadle_plan_info info = {.struct_size = struct_size(c, sizeof info)};
  treadle_storage_info storage = {.struct_size = struct_size(c, sizeof storage)};
  size_t bytes[4];
  switch (below(c, 6)) {
  case 0:
    SAID(treadle_plan_create(layout(c), layout(c), rank(c), OR_NULL(c, &options), OR_NULL(c, &made)));
    break;
  case 1: CALL(treadle_plan_get_info(plan(c), OR_NULL(c, &info))); break;
  case 2: SAID(treadle_plan_storage(plan(c), (int32_t)number(c), OR_NULL(c, &storage))); break;
  case 4: CALL(treadle_plan_find(plan(c), text(c))); break;
  case 3: CALL(treadle_plan_inbound(plan(c), OR_NULL(c, bytes))); break;
  default: rewind(c->paper); SAID(treadle_plan_print(plan(c), OR_NULL(c, c->paper)));
  }
  CALL(treadle_plan_destroy(made));
}

static void call_reports(caller *c) {
  const treadle_report_options options = {.struct_size = struct_size(c, sizeof options),
                                          .page_bytes = page(c),
                                          .cap_bytes = size(c),
                                          .budget_bytes = size(c),
                                          .alias = below(c, 2),
                                          .one_rank = below(c, 2),
                                          .rank = rank(c)};
  const treadle_report *report = OR_NULL(c, c->o.report);
  treadle_report *made = NULL;
  treadle_report_info info = {.struct_size = struct_size(c, sizeof info)};
  treadle_plan_info one = {.struct_size = struct_size(c, sizeof one)};
  treadle_node_info node = {.struct_size = struct_size(c, sizeof node)};
  treadle_cut_info cut = {.struct_size = struct_size(c, sizeof cut)};
  size_t bytes;
  switch (below(c, 6)) {
  case 0: SAID(treadle_report_create(layout(c), layout(c), OR_NULL(c, &options), OR_NULL(c, &made))); break;
  case 1: CALL(treadle_report_get_info(report, OR_NULL(c, &info))); break;
  case 2: SAID(treadle_report_rank(report, rank(c), OR_NULL(c, &one))); break;
  case 3: SAID(treadle_report_inbound(report, rank(c), OR_NULL(c, &bytes))); break;
  case 4: SAID(treadle_report_node(report, (int32_t)(rank(c) % 1000), OR_NULL(c, &node))); break;
  default: SAID(treadle_layout_largest_cut(layout(c), OR_NULL(c, &cut)));
  }
  CALL(treadle_report_destroy(made));
}

static void call_words(caller *c) {
  switch (below(c, 5)) {
  case 0: CALL(treadle_version_number()); break;
  case 1: CALL(treadle_version_text()); break;
  case 2: CALL(treadle_status_text((treadle_status)any_enum(c))); break;
  case 3: CALL(treadle_mode_text((treadle_mode)any_enum(c))); break;
  default: CALL(treadle_error_message());
  }
}

/* MPI itself is not started: what it leaves behind when it ends hides what treadle does. */
static void call_files(caller *c) {
  static const int64_t layers[] = {1, 1, 2, -1, INT64_MAX}, widths[] = {64, 64, 63, -64, INT64_MIN},
                       words[] = {16, 100, -1, INT64_MIN};
  char made[40], file[40];
  snprintf(made, sizeof made, "%s/made", c->o.folder);
  snprintf(file, sizeof file, "%s/file", c->o.folder);
  const char *const paths[] = {file, file, made,        c->o.folder,       c->o.config,
                               "",   "/",  "/dev/null", "/nowhere/at/all", NULL};
  const treadle_make_options options = {.struct_size = struct_size(c, sizeof options),
                                        .config = often(c) ? NULL : ONE_OF(c, paths),
                                        .model_type = often(c) ? NULL : text(c),
                                        .dtype = (treadle_dtype)any_enum(c),
                                        .layers = ONE_OF(c, layers),
                                        .hidden = ONE_OF(c, widths),
                                        .vocab = ONE_OF(c, words),
                                        .stacked = below(c, 2)};
  const treadle_family_check_options checked = {.struct_size = struct_size(c, sizeof checked),
                                                .scale_down = often(c) ? 0 : number(c),
                                                .model = often(c) ? NULL : ONE_OF(c, paths)};
  treadle_model *model = NULL;
  treadle_families *families = NULL;
  treadle_family_check *check = NULL;
  const treadle_family_draft_options drafted = {.struct_size = struct_size(c, sizeof drafted),
                                                .families = often(c) ? NULL : ONE_OF(c, paths),
                                                .like = often(c) ? NULL : text(c)};
  treadle_family_draft_info draft_info = {.struct_size = struct_size(c, sizeof draft_info)};
  treadle_family_draft *draft = NULL;
  int rank;
  treadle_node_address address;
  const char *written = often(c) ? file : below(c, 2) ? made : "";
  if (below(c, 8)) return;
  switch (below(c, 12)) {
  case 0: SAID(treadle_make_model(OR_NULL(c, made), &options, OR_NULL(c, &model))); break;
  case 1: SAID(treadle_families_open(ONE_OF(c, paths), OR_NULL(c, &families))); break;
  case 2:
    SAID(treadle_family_check_open(ONE_OF(c, paths), OR_NULL(c, &checked), OR_NULL(c, &check)));
    break;
  case 3: SAID(treadle_output_ask(ONE_OF(c, paths))); break;
  case 4: SAID(treadle_output_write(OR_NULL(c, written), OR_NULL(c, c->window), below(c, 1 << 16))); break;
  case 5: SAID(treadle_mpi_start(NULL, &rank)); break;
  case 6: SAID(treadle_mpi_start(&rank, NULL)); break;
  case 7:
    SAID(treadle_family_draft_create(ONE_OF(c, paths), OR_NULL(c, &drafted), OR_NULL(c, &draft)));
    CALL(treadle_family_draft_get_info(draft, OR_NULL(c, &draft_info)));
    break;
  case 8: SAID(treadle_mpi_meet(NULL, false, NULL)); break;
  case 9: SAID(treadle_mpi_meet_nodes(NULL, false, OR_NULL(c, &address), NULL, NULL)); break;
  case 10: SAID(treadle_machine_address(OR_NULL(c, &address))); break;
  default: CALL(treadle_mpi_stop());
  }
  CALL(treadle_model_close(model));
  CALL(treadle_families_close(families));
  CALL(treadle_family_check_close(check));
  CALL(treadle_family_draft_destroy(draft));
  if (access(made, F_OK) == 0) test_remove(made);
}

static void call_tools(caller *c) {
  treadle_family_info family = {.struct_size = struct_size(c, sizeof family)};
  treadle_family_check_info found = {.struct_size = struct_size(c, sizeof found)};
  treadle_model_info info = {.struct_size = struct_size(c, sizeof info)};
  treadle_pattern_info kind = {.struct_size = struct_size(c, sizeof kind)};
  treadle_limit_info limit = {.struct_size = struct_size(c, sizeof limit)};
  treadle_kernel_info kernel = {.struct_size = struct_size(c, sizeof kernel)};
  treadle_net_info net = {.struct_size = struct_size(c, sizeof net)};
  treadle_device_info device = {.struct_size = struct_size(c, sizeof device)};
  const treadle_families *families = OR_NULL(c, c->o.families);
  const treadle_family_check *check = OR_NULL(c, c->o.check);
  const char *name;
  char *text_of = NULL;
  int64_t value;
  int32_t at = often(c) ? (int32_t)below(c, 20) : (int32_t)number(c);
  switch (below(c, 20)) {
  case 0: CALL(treadle_families_count(families)); break;
  case 1: SAID(treadle_families_get(families, at, OR_NULL(c, &family))); break;
  case 2: CALL(treadle_families_find(families, text(c))); break;
  case 3: SAID(treadle_families_text(families, at, OR_NULL(c, &text_of))); break;
  case 4: CALL(treadle_family_check_get_info(check, OR_NULL(c, &found))); break;
  case 5: CALL(treadle_family_check_model(check)); break;
  case 6: CALL(treadle_model_get_info(model(c), OR_NULL(c, &info))); break;
  case 7: SAID(treadle_model_dim(model(c), at, OR_NULL(c, &name), OR_NULL(c, &value))); break;
  case 8: CALL(treadle_model_file(model(c), at)); break;
  case 9: CALL(treadle_model_elems_of(model(c), (treadle_dtype)any_enum(c))); break;
  case 10: SAID(treadle_model_pattern(model(c), at, OR_NULL(c, &kind))); break;
  case 11:
    if (below(c, 6) == 0) SAID(treadle_machine_limit((treadle_limit_kind)any_enum(c), OR_NULL(c, &limit)));
    break;
  case 12: SAID(treadle_families_expanded(families, at, OR_NULL(c, &text_of))); break;
  case 13: SAID(treadle_machine_kernel(at, OR_NULL(c, &kernel))); break;
  case 14: CALL(treadle_machine_kernel_count()); break;
  case 15: CALL(treadle_machine_net_count()); break;
  case 16: /* number 0 loads UCX, which is slow, and stays */
    SAID(treadle_machine_net(at ? at : -1, OR_NULL(c, &net)));
    break;
  case 17:
    CALL(treadle_machine_device_count());
    CALL(treadle_machine_has_kernels());
    break;
  case 18: SAID(treadle_machine_device(at, OR_NULL(c, &device))); break;
  default: CALL(treadle_injection_point_text((treadle_injection_point)any_enum(c)));
  }
  free(text_of);
}

/* Faults of the machine would end this program: those that slow it down or leave no memory. */
static void call_testing(caller *c) {
  static const treadle_injection_type milder[] = {TREADLE_INJECT_NOTHING, TREADLE_INJECT_ENOMEM,
                                                  (treadle_injection_type)-1, (treadle_injection_type)77};
  const treadle_injection injection = {ONE_OF(c, milder), (treadle_injection_point)any_enum(c),
                                       (int32_t)number(c)};
  uint64_t sums[OBJECTS_PIECES];
  treadle_group *group = OR_NULL(c, c->o.second);
  int which = often(c) ? 0 : (int)number(c);
  double flat;
  switch (below(c, 12)) {
  case 8: SAID(treadle_switch_read(sw(c), (treadle_class)any_enum(c), 0, 8, OR_NULL(c, sums))); break;
  case 9: SAID(treadle_switch_write(sw(c), (treadle_class)any_enum(c), 0, 8, OR_NULL(c, sums))); break;
  case 0: CALL(treadle_switch_noise(sw(c), (uint64_t)number(c))); break;
  case 10: SAID(treadle_switch_flat_copy(sw(c), below(c, 1 << 16), OR_NULL(c, &flat))); break;
  case 1: SAID(treadle_switch_digest_entries(sw(c), number(c), OR_NULL(c, sums))); break;
  case 2: SAID(treadle_switch_plant(sw(c), (treadle_fault)any_enum(c), which, (uint64_t)number(c))); break;
  case 3: SAID(treadle_switch_inject(sw(c), injection)); break;
  case 4: SAID(treadle_switch_return(sw(c))); break;
  case 5: SAID(treadle_group_last_words(group, OR_NULL(c, c->window), size(c))); break;
  case 6: CALL(treadle_group_hear(group, which, seconds(c))); break;
  case 7: CALL(treadle_group_process(group, which)); break;
  default:
    if (often(c))
      CALL(treadle_plan_shares(plan(c), number(c)));
    else
      SAID(treadle_plan_expect(plan(c), OR_NULL(c, c->window)));
  }
}

static void call_conversions(caller *c) {
  char out[64];
  snprintf(out, sizeof out, "%s/out", c->o.folder);
  const treadle_convert_options options = {.struct_size = struct_size(c, sizeof options),
                                           .in = OR_NULL(c, c->o.folder),
                                           .out = OR_NULL(c, out),
                                           .from = text(c),
                                           .to = text(c),
                                           .model = below(c, 2) ? c->o.config : NULL,
                                           .rank = often(c) ? 0 : (int)number(c),
                                           .ranks = often(c) ? (int)below(c, 3) : (int)number(c)};
  treadle_convert *made = NULL;
  treadle_convert_figures figures = {.struct_size = struct_size(c, sizeof figures)};
  if (below(c, 20)) return;
  SAID(treadle_convert_open(OR_NULL(c, &options), OR_NULL(c, &made)));
  for (int i = 0; i < 6; i++) {
    treadle_convert *one = OR_NULL(c, made);
    switch (below(c, 7)) {
    case 0: SAID(treadle_convert_compare(one)); break;
    case 1: SAID(treadle_convert_begin(one)); break;
    case 2: SAID(treadle_convert_write(one)); break;
    case 3: SAID(treadle_convert_finish(one)); break;
    case 4: CALL(treadle_convert_resumes(one)); break;
    case 5: CALL(treadle_convert_model(one)); break;
    default: CALL(treadle_convert_get_figures(one, OR_NULL(c, &figures)));
    }
  }
  CALL(treadle_convert_close(made));
}

/* Sometimes a store of one rank, which is used; nobody listens where the others would be. */
static void call_store(caller *c) {
  static const char *const addresses[] = {"127.0.0.1:1", "127.0.0.1", "[::1]:1", "0.0.0.0:1",
                                          "\xff:1",      "",          NULL};
  const char *const names[] = {"job", "", "\xff", NULL};
  char value[64];
  size_t bytes;
  const treadle_store_options options = {.struct_size = struct_size(c, sizeof options),
                                         .address = ONE_OF(c, addresses),
                                         .job = ONE_OF(c, names),
                                         .rank = (int)number(c),
                                         .ranks = (int)number(c),
                                         .timeout_seconds = 0.01};
  treadle_store store = {.struct_size = struct_size(c, sizeof store)};
  SAID(treadle_store_open(OR_NULL(c, &options), OR_NULL(c, &store)));
  if (store.struct_size == sizeof store && store.set) {
    SAID(store.set(store.context, ONE_OF(c, names), OR_NULL(c, value), below(c, 65)));
    SAID(store.get(store.context, ONE_OF(c, names), 0.001, OR_NULL(c, value), below(c, 65),
                   OR_NULL(c, &bytes)));
  }
  CALL(treadle_store_close(OR_NULL(c, &store)));
  CALL(treadle_store_close(&store));
}

static void call_groups(caller *c) {
  const char *const names[] = {c->name, c->name, "", "a/b", "\xff", NULL};
  static char room[4096];
  treadle_group *made = NULL, *group = OR_NULL(c, c->o.second);
  switch (below(c, 15)) {
  case 0: SAID(treadle_group_self(OR_NULL(c, &made))); break;
  case 7: {
    treadle_store store = {.struct_size = sizeof store, .job = ONE_OF(c, names)};
    SAID(treadle_group_store(OR_NULL(c, &store), (int)number(c), (int)number(c), (int)number(c), seconds(c),
                             OR_NULL(c, &made)));
    break;
  }
  case 10: {
    treadle_store store = {.struct_size = sizeof store, .job = ONE_OF(c, names)};
    SAID(treadle_group_nodes(OR_NULL(c, &store), (int)number(c), (int)number(c), (int)number(c), seconds(c),
                             OR_NULL(c, &made)));
    break;
  }
  case 11: call_store(c); break;
  case 12: {
    static const treadle_net_ops table = {.struct_size = sizeof table,
                                          .name = "none"}; /* lacks functions */
    SAID(treadle_group_set_net(group, OR_NULL(c, &table), OR_NULL(c, room)));
    SAID(treadle_group_choose_net(group, ONE_OF(c, names)));
    static const treadle_device_ops device = {.struct_size = sizeof device,
                                              .name = "none"}; /* and so does this */
    SAID(treadle_device_register((treadle_memory_kind)number(c), OR_NULL(c, &device)));
    CALL(treadle_op_mark(NULL));
    break;
  }
  case 9: CALL(treadle_thread_watch(NULL, NULL)); break;
  case 8: SAID(treadle_error_set(TREADLE_REFUSED, ONE_OF(c, names))); break;
  case 1:
    SAID(treadle_group_open(ONE_OF(c, names), (int)number(c), (int)number(c), seconds(c),
                            OR_NULL(c, &made)));
    break;
  case 2: SAID(treadle_group_mpi(NULL, seconds(c), OR_NULL(c, &made))); break;
  case 3: CALL(treadle_group_rank(group)); break;
  case 4:
    CALL(treadle_group_size(group));
    CALL(treadle_group_node(group, (int)number(c)));
    break;
  case 5: SAID(treadle_group_barrier(group)); break;
  case 13: SAID(treadle_group_refuse(group, (treadle_status)any_enum(c), OR_NULL(c, "why"))); break;
  case 14: SAID(treadle_group_split(group, (int)number(c), (int)number(c), OR_NULL(c, &made))); break;
  default: SAID(treadle_group_gather(group, OR_NULL(c, room), size(c), OR_NULL(c, c->window)));
  }
  CALL(treadle_group_close(made));
}

static treadle_choice choice(caller *c) {
  return (treadle_choice)(below(c, 32) ? (int)below(c, 3) : any_enum(c));
}

enum { OWN_TENSORS = 3 };

/* Own tensors: now and then those of a layout of one rank, in memory that may be used; else anything. */
static void draw_own(caller *c, treadle_own_tensor tensors[OWN_TENSORS]) {
  char *const memories[] = {c->o.memory,
                            c->o.memory + 16,
                            c->o.memory + 1,
                            c->o.memory + c->o.bytes,
                            c->o.memory + c->o.bytes + OBJECTS_PAGE,
                            (char *)16,
                            NULL};
  for (int i = 0; i < OWN_TENSORS; i++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    int32_t storage = often(c) ? i : (int32_t)number(c);
    (void)treadle_layout_storage(c->o.train, 0, storage, &info);
    tensors[i] = (treadle_own_tensor){storage, ONE_OF(c, memories), often(c) ? info.bytes : size(c)};
  }
}

static void make_switch(caller *c) {
  treadle_own_tensor own_train[OWN_TENSORS], own_infer[OWN_TENSORS];
  draw_own(c, own_train);
  draw_own(c, own_infer);
  const treadle_switch_options options = {.struct_size = struct_size(c, sizeof(treadle_switch_options)),
                                          .page_bytes = page(c),
                                          .cap_bytes = often(c) ? (size_t)1 << 20 : size(c),
                                          .budget_bytes = often(c) ? (size_t)1 << 24 : size(c),
                                          .timeout_seconds = often(c) ? 0 : seconds(c),
                                          .one_way = below(c, 2),
                                          .grads_bytes = size(c),
                                          .optimizer_bytes = size(c),
                                          .offload_train_param = choice(c),
                                          .offload_train_grad = choice(c),
                                          .keep_grads = below(c, 2),
                                          .offload_train_optimizer = choice(c),
                                          .keep = (treadle_keep)(often(c) ? (int)below(c, 2) : any_enum(c)),
                                          .host = below(c, 2),
                                          .kv_block_bytes = size(c),
                                          .alias = below(c, 2),
                                          .guard_pages = below(c, 2),
                                          .plan = often(c) ? NULL : plan(c),
                                          .double_infer = !often(c),
                                          .allow_unfilled = often(c),
                                          .undo_bytes = often(c) ? 0 : size(c),
                                          .own_train = OR_NULL(c, own_train),
                                          .own_infer = OR_NULL(c, own_infer),
                                          .own_train_count = often(c) ? 0 : below(c, OWN_TENSORS + 1),
                                          .own_infer_count = often(c) ? 0 : below(c, OWN_TENSORS + 1),
                                          .memory.kind = often(c) ? TREADLE_MEMORY_HOST
                                                                  : (treadle_memory_kind)any_enum(c)};
  treadle_switch *made = NULL;
  treadle_status status = SAID(treadle_switch_create(OR_NULL(c, c->o.second), layout(c), layout(c),
                                                     OR_NULL(c, &options), OR_NULL(c, &made)));
  if (status == TREADLE_OK && below(c, 2)) SAID(treadle_switch_to_infer(made));
  if (status == TREADLE_OK && below(c, 2)) SAID(treadle_switch_update(made));
  if (status == TREADLE_OK && below(c, 2)) SAID(treadle_switch_start(made, TREADLE_INFER));
  CALL(treadle_switch_destroy(made));
}

static void ask_switch(caller *c) {
  uint64_t digest;
  bool done;
  treadle_switch_stats stats = {.struct_size = struct_size(c, sizeof stats)};
  switch (below(c, 15)) {
  case 11: SAID(treadle_switch_update(sw(c))); break;
  case 12: SAID(treadle_switch_start_update(sw(c))); break;
  case 13: CALL(treadle_switch_is_valid(sw(c))); break;
  case 0: SAID(treadle_switch_cancel(sw(c))); break;
  case 1: SAID(treadle_switch_start(sw(c), (treadle_mode)any_enum(c))); break;
  case 2: SAID(treadle_switch_to_train(sw(c))); break;
  case 3: SAID(treadle_switch_digest(sw(c), OR_NULL(c, &digest))); break;
  case 4: SAID(treadle_switch_trim(sw(c))); break;
  case 5:
    CALL(treadle_switch_accumulate(sw(c), false));
    SAID(treadle_switch_filled(sw(c)));
    SAID(treadle_switch_tensor_filled(sw(c), (int32_t)number(c)));
    break;
  case 6: CALL(treadle_switch_get_stats(sw(c), OR_NULL(c, &stats))); break;
  case 7: CALL(treadle_switch_mode(sw(c))); break;
  case 8: CALL(treadle_switch_version(sw(c))); break;
  case 9: CALL(treadle_switch_window(sw(c), (treadle_class)any_enum(c), NULL)); break;
  case 10: SAID(treadle_switch_wait(sw(c))); break;
  default: SAID(treadle_switch_test(sw(c), OR_NULL(c, &done)));
  }
}

/* An arrow that was started, if it was, has been waited for in the end: until then the group is the switch's. */
static void start_switch(caller *c) {
  bool done = false;
  if (often(c))
    SAID(treadle_switch_start(sw(c), (treadle_mode)(often(c) ? (int)below(c, 5) : any_enum(c))));
  for (size_t i = below(c, 8); i > 0; i--) ask_switch(c);
  if (treadle_switch_test(c->o.sw, &done) == TREADLE_OK) SAID(treadle_switch_wait(c->o.sw));
}

static void call_switches(caller *c) {
  uint64_t digest;
  size_t bytes;
  treadle_switch_stats stats = {.struct_size = struct_size(c, sizeof stats)};
  treadle_class which = (treadle_class)any_enum(c);
  char *const memories[] = {c->o.memory,
                            c->o.memory + 16,
                            c->o.memory + 1,
                            c->o.memory + c->o.bytes,
                            c->o.memory + c->o.bytes + OBJECTS_PAGE,
                            (char *)16,
                            NULL,
                            treadle_switch_train_window(c->o.sw)};
  treadle_group *const groups[] = {c->o.group, c->o.second, NULL};
  switch (below(c, 25)) {
  case 0: make_switch(c); break;
  case 23: CALL(treadle_switch_tensor(sw(c), which, (int32_t)number(c), OR_NULL(c, &bytes))); break;
  case 21:
  case 22: start_switch(c); break;
  case 1: SAID(treadle_switch_rejoin(sw(c), ONE_OF(c, groups))); break;
  case 2: CALL(treadle_switch_window(sw(c), which, OR_NULL(c, &bytes))); break;
  case 3: CALL(treadle_switch_train_window(sw(c))); break;
  case 4: CALL(treadle_switch_infer_window(sw(c))); break;
  case 5: CALL(treadle_mode_text(treadle_switch_mode(sw(c)))); break;
  case 6: CALL(treadle_switch_version(sw(c))); break;
  case 7: CALL(treadle_switch_plan(sw(c))); break;
  case 8: CALL(treadle_switch_resident(sw(c), which)); break;
  case 9: CALL(treadle_switch_accumulate(sw(c), below(c, 4) == 0)); break;
  case 10: CALL(treadle_switch_bound(sw(c))); break;
  case 11: CALL(treadle_switch_pool_bound(sw(c))); break;
  case 12: CALL(treadle_switch_get_stats(sw(c), OR_NULL(c, &stats))); break;
  case 13: SAID(treadle_switch_digest(sw(c), OR_NULL(c, &digest))); break;
  case 14: SAID(treadle_switch_trim(sw(c))); break;
  case 15: SAID(treadle_switch_to_forward(sw(c))); break;
  case 16: SAID(treadle_switch_to_host(sw(c))); break;
  case 17:
  case 18: SAID(treadle_switch_to_infer(sw(c))); break;
  case 19:
  case 20: SAID(treadle_switch_to_train(sw(c))); break;
  default:
    SAID(treadle_switch_register(sw(c), which, often(c) ? 0 : size(c), ONE_OF(c, memories), size(c)));
  }
}

static void call_texts(caller *c) {
  const char *const paths[] = {c->o.tokens, c->o.tokens, c->o.folder,       c->o.config,
                               "",          "/",         "/nowhere/at/all", NULL};
  static const char *const words[] = {"ab<s>\xc3\xa9 ab", "", "\xff", "<s>", "aaab"};
  const treadle_tokenizer *tokenizer = OR_NULL(c, c->o.tokenizer);
  treadle_text_stream *stream = OR_NULL(c, c->o.stream), *made_stream = NULL;
  treadle_tokenizer *made = NULL;
  treadle_token_info info = {.struct_size = struct_size(c, sizeof info)};
  const char *word = ONE_OF(c, words), *part;
  size_t bytes = strlen(word), count;
  int32_t ids[4], *given = NULL;
  char *text_of = NULL;
  for (int i = 0; i < 4; i++) ids[i] = often(c) ? (int32_t)below(c, 7) : (int32_t)number(c);
  switch (below(c, 9)) {
  case 0: SAID(treadle_tokenizer_open(ONE_OF(c, paths), OR_NULL(c, &made))); break;
  case 1: CALL(treadle_tokenizer_count(tokenizer)); break;
  case 2: SAID(treadle_tokenizer_token(tokenizer, ids[0], OR_NULL(c, &info))); break;
  case 3: CALL(treadle_tokenizer_find(tokenizer, OR_NULL(c, word), bytes)); break;
  case 4: CALL(treadle_tokenizer_special(tokenizer, (treadle_special_token)any_enum(c))); break;
  case 5:
    SAID(treadle_tokenizer_encode(tokenizer, OR_NULL(c, word), bytes, below(c, 2), OR_NULL(c, &given),
                                  OR_NULL(c, &count)));
    break;
  case 6:
    SAID(treadle_tokenizer_decode(tokenizer, OR_NULL(c, ids), below(c, 5), below(c, 2),
                                  OR_NULL(c, &text_of), OR_NULL(c, &bytes)));
    break;
  case 7: SAID(treadle_text_stream_put(stream, ids[0], OR_NULL(c, &part), OR_NULL(c, &bytes))); break;
  default:
    SAID(treadle_text_stream_create(tokenizer, below(c, 2), OR_NULL(c, &made_stream)));
    if (made_stream) SAID(treadle_text_stream_end(made_stream, OR_NULL(c, &part), OR_NULL(c, &bytes)));
  }
  CALL(treadle_text_stream_destroy(made_stream));
  CALL(treadle_tokenizer_close(made));
  free(given);
  free(text_of);
}

static void call_chats(caller *c) {
  const char *const paths[] = {c->o.chat_file, c->o.chat_file, c->o.folder, "", "/nowhere/at/all", NULL};
  static const char *const messages[] = {"[]", "[{\"role\": \"user\", \"content\": \"x\"}]", "[7]", "{", "",
                                         NULL};
  static const char *const variables[] = {NULL, "{}",  "{\"x\": 1}", "{\"chat_template\": \"{{ 1 }}\"}",
                                          "[",  "\xff"};
  const treadle_chat_options options = {.struct_size = struct_size(c, sizeof options),
                                        .variables = ONE_OF(c, variables),
                                        .now = often(c) ? NULL : "2025-03-14T15:09:26"};
  treadle_chat *made = NULL;
  char *out = NULL;
  size_t bytes;
  if (below(c, 4) == 0) {
    if (below(c, 2))
      SAID(treadle_chat_open(ONE_OF(c, paths), OR_NULL(c, &made)));
    else
      SAID(treadle_chat_find(ONE_OF(c, paths), OR_NULL(c, &made)));
    CALL(treadle_chat_close(made));
    return;
  }
  SAID(treadle_chat_render(OR_NULL(c, c->o.chat), ONE_OF(c, messages), OR_NULL(c, &options),
                           OR_NULL(c, &out), OR_NULL(c, &bytes)));
  free(out);
}

static void make_engine(caller *c) {
  static const int32_t counts[] = {0, 1, 2, 8, 64, -1, INT32_MIN, INT32_MAX};
  static const int64_t lengths[] = {0, 1, 64, 4096, -1, INT64_MAX};
  static const char *const kernels[] = {NULL, "auto", "plain", "avx2", "none", ""};
  static const size_t memories[] = {1 << 16, 1 << 12, 1, 1 << 20, SIZE_MAX};
  const treadle_generator_options options = {.struct_size = struct_size(c, sizeof options),
                                             .fast = below(c, 2),
                                             .kernels = ONE_OF(c, kernels),
                                             .threads = ONE_OF(c, counts),
                                             .max_batch = ONE_OF(c, counts),
                                             .prefill_chunk = ONE_OF(c, counts),
                                             .block_tokens = ONE_OF(c, counts),
                                             .prefix_cache = (treadle_choice)below(c, 3),
                                             .kv_bytes = ONE_OF(c, memories),
                                             .max_len = ONE_OF(c, lengths),
                                             .experts = below(c, 8) == 0};
  treadle_generator *made = NULL;
  SAID(treadle_generator_create(often(c) ? NULL : c->o.second, layout(c), &options, OR_NULL(c, &made)));
  CALL(treadle_generator_destroy(made));
}

static treadle_batch *make_prompts(caller *c) {
  static const char *const names[] = {"prompt_ids", "prompt_ids", "prompt_ids", "prompt_id"};
  static const int64_t offsets[] = {0, 2, 2, 3}, full[] = {0, 1, 2, 3};
  int32_t ids[] = {(int32_t)below(c, 24), (int32_t)below(c, 24), often(c) ? 5 : (int32_t)number(c)};
  int64_t seeds[] = {number(c), 1, 2};
  const treadle_column column = {.struct_size = sizeof column,
                                 .name = ONE_OF(c, names),
                                 .type = often(c) ? TREADLE_COLUMN_INT32 : TREADLE_COLUMN_FP32,
                                 .offsets = OR_NULL(c, often(c) ? full : offsets),
                                 .data = ids},
                       seed = {.struct_size = sizeof seed,
                               .name = "seed",
                               .type = TREADLE_COLUMN_INT64,
                               .data = seeds};
  treadle_batch *batch;
  assert_ok(treadle_batch_create(3, &batch));
  assert_ok(treadle_batch_add(batch, &column));
  if (below(c, 2)) assert_ok(treadle_batch_add(batch, &seed));
  return batch;
}

static bool stop_at_times(void *context) { return !often(context); }

static void call_generate(caller *c) {
  static const double reals[] = {0, 0.5, 0.9, 1, 1, 1, 2, -1, NAN, INFINITY};
  static const int64_t counts[] = {1, 1, 2, 3, 0, -1, 65537, INT64_MAX, INT64_MIN};
  const int32_t ids[2] = {(int32_t)below(c, 24), often(c) ? 3 : (int32_t)number(c)};
  treadle_sampling sampling = TREADLE_SAMPLING_INIT;
  const treadle_observer observer = {
      .struct_size = struct_size(c, sizeof observer), .context = c, .stop = OR_NULL(c, stop_at_times)};
  treadle_batch *prompts = make_prompts(c), *out = NULL;
  sampling.struct_size = struct_size(c, sizeof sampling);
  sampling.seed = number(c);
  sampling.max_tokens = ONE_OF(c, counts);
  if (!often(c)) sampling.temperature = ONE_OF(c, reals);
  if (below(c, 2)) sampling.top_p = ONE_OF(c, reals);
  if (!often(c)) sampling.top_k = number(c);
  if (!often(c)) sampling.n = ONE_OF(c, counts);
  if (!often(c)) sampling.min_tokens = ONE_OF(c, counts);
  sampling.stop_token_ids = OR_NULL(c, ids);
  sampling.stop_token_id_count = below(c, 3);
  sampling.never = OR_NULL(c, ids);
  sampling.never_count = below(c, 3);
  sampling.logprobs_of = often(c) ? (treadle_logprobs_of)below(c, 3) : (treadle_logprobs_of)any_enum(c);
  sampling.most_kept = often(c) ? 0 : number(c);
  SAID(treadle_generator_generate(OR_NULL(c, c->o.engine), OR_NULL(c, prompts), OR_NULL(c, &sampling),
                                  OR_NULL(c, &observer), OR_NULL(c, &out)));
  treadle_batch_destroy(prompts);
  treadle_batch_destroy(out);
}

static treadle_status score_experts(void *context, size_t text, const unsigned char *experts,
                                    size_t bytes) {
  (void)context;
  return text == 0 && experts && bytes % 2 == 0 ? TREADLE_OK : TREADLE_REFUSED;
}

static void call_engines(caller *c) {
  static const char *const lines[] = {"{\"prompt_token_ids\": [1, 2], \"max_tokens\": 3, \"n\": 2}\n",
                                      "{\"token_ids\": [1, 2, 3]}\n",
                                      "{\"prompt_token_ids\": [99]}",
                                      "{",
                                      "",
                                      "\xff"};
  int32_t ids[3] = {(int32_t)below(c, 24), (int32_t)below(c, 24), often(c) ? 5 : (int32_t)number(c)};
  const treadle_score_text text = {OR_NULL(c, ids), often(c) ? 3 : 0};
  const char *line = ONE_OF(c, lines);
  treadle_generator *engine = OR_NULL(c, c->o.engine);
  treadle_generator_info info = {.struct_size = struct_size(c, sizeof info)};
  treadle_engine_hooks hooks = {.struct_size = struct_size(c, sizeof hooks)};
  treadle_score_options score = {.struct_size = struct_size(c, sizeof score),
                                 .experts = below(c, 2) ? score_experts : NULL,
                                 .temperature = often(c) ? 1 : -1};
  treadle_score_lines_options score_lines = {.struct_size = struct_size(c, sizeof score_lines),
                                             .check = below(c, 2)};
  const int32_t never[2] = {(int32_t)number(c), (int32_t)below(c, 24)};
  treadle_generate_options generate = {.struct_size = struct_size(c, sizeof generate),
                                       .seed = number(c),
                                       .never = OR_NULL(c, never),
                                       .never_count = often(c) ? 0 : below(c, 3),
                                       .drawn = below(c, 2),
                                       .most_kept = number(c)};
  treadle_score_figures scored = {.struct_size = struct_size(c, sizeof scored)};
  treadle_generate_figures generated = {.struct_size = struct_size(c, sizeof generated)};
  switch (below(c, 9)) {
  case 0: make_engine(c); break;
  case 8: call_generate(c); break;
  case 1:
    SAID(treadle_generator_bind(engine, OR_NULL(c, c->o.weights), often(c) ? c->o.weights_bytes : 0));
    break;
  case 2: SAID(treadle_generator_unbind(engine)); break;
  case 3:
    SAID(treadle_generator_get_info(engine, OR_NULL(c, &info)));
    SAID(treadle_generator_hooks_of(engine, OR_NULL(c, &hooks)));
    break;
  case 4:
    SAID(treadle_generator_score(engine, text.ids ? &text : NULL, below(c, 2), OR_NULL(c, &score)));
    break;
  case 5:
    SAID(treadle_generator_score_lines(engine, line, strlen(line), OR_NULL(c, &score_lines),
                                       OR_NULL(c, &scored)));
    break;
  default:
    SAID(treadle_generator_generate_lines(engine, line, strlen(line), OR_NULL(c, &generate),
                                          OR_NULL(c, &generated)));
  }
}

static void call_rows(caller *c) {
  static const char *const lines[] = {"{\"ids\": [1, 2], \"mask\": [0, 1]}\n",
                                      "{\"text\": \"ab\"}",
                                      "{\"ids\": [1, 99], \"mask\": [0, 1]}",
                                      "{\"prompt\": \"a\", \"response\": \"b\"}",
                                      "[{\"messages\": [{\"role\": \"assistant\", \"content\": \"b\"}]}]",
                                      "{",
                                      "",
                                      "\xff"};
  const treadle_train_rows_spec spec = {.struct_size = struct_size(c, sizeof spec),
                                        .tokenizer = OR_NULL(c, c->o.tokenizer),
                                        .layout = OR_NULL(c, c->o.train),
                                        .chat = OR_NULL(c, c->o.chat),
                                        .most_tokens = often(c) ? (int64_t)below(c, 8) : number(c)};
  const char *line = ONE_OF(c, lines);
  treadle_batch *rows = NULL;
  SAID(treadle_train_rows_read(OR_NULL(c, &spec), line, strlen(line), OR_NULL(c, &rows)));
  CALL(treadle_batch_destroy(rows));
}

/* Rows that may be trained on, or not. */
static treadle_batch *batch_of_rows(caller *c) {
  static const uint8_t masks[][3] = {{0, 1, 1}, {0, 1, 1}, {0, 0, 0}, {1, 1, 1}};
  static const char *const names[] = {"advantage",     "advantages",        "ref_log_probs", "kept_counts",
                                      "old_log_probs", "rollout_log_probs", "prompt_ids"};
  const int32_t ids[3] = {(int32_t)below(c, 24), (int32_t)below(c, 24), often(c) ? 5 : (int32_t)number(c)};
  const size_t count = often(c) ? 3 : below(c, 4);
  const rows_row rows[] = {{ids, ONE_OF(c, masks), count, below(c, count + 1)},
                           {ids, ONE_OF(c, masks), 3, below(c, 3)}};
  const double advantages[] = {1, -1};
  treadle_batch *batch;
  assert_ok(rows_batch(rows, below(c, 3), &batch));
  if (often(c)) (void)rows_add_reals(batch, "advantage", advantages);
  if (often(c)) (void)rows_add(batch, "rollout_log_probs", TREADLE_COLUMN_FP32, NULL);
  if (below(c, 2)) (void)rows_add(batch, ONE_OF(c, names), (treadle_column_type)any_enum(c), NULL);
  return batch;
}

static treadle_forward_options forward_options(caller *c) {
  static const int32_t never[] = {3, 7, 24};
  const bool by_rows = below(c, 2);
  return (treadle_forward_options){.struct_size = struct_size(c, sizeof(treadle_forward_options)),
                                   .micro_batch_size = by_rows ? (int64_t)below(c, 3) : 0,
                                   .max_tokens_per_micro = by_rows && often(c) ? 0 : (int64_t)below(c, 9),
                                   .temperature = often(c) ? 1 : -2.5,
                                   .entropies = below(c, 2),
                                   .never = OR_NULL(c, never),
                                   .never_count = often(c) ? 0 : below(c, 4),
                                   .replay_experts = !often(c),
                                   .experts = !often(c)};
}

static treadle_status slope(void *context, const treadle_loss_row *row) {
  (void)context;
  for (int64_t i = 0; i < row->count; i++) {
    row->losses[i] = row->by_log_prob[i] = (double)row->log_probs[i];
    if (row->entropies) row->by_entropy[i] = (double)row->entropies[i];
  }
  return TREADLE_OK;
}

static treadle_loss_options loss_options(caller *c) {
  static const char *const names[] = {"nll", "ppo", "ppo", "value", NULL, "", "\xff"},
                           *const aggregations[] = {NULL, "token-mean", "seq-mean-token-sum-norm", "x"},
                           *const kls[] = {NULL, "kl", "low_var_kl", "x"};
  static const double numbers[] = {0, 0.2, 1, -1, NAN, INFINITY};
  return (treadle_loss_options){.struct_size = struct_size(c, sizeof(treadle_loss_options)),
                                .name = ONE_OF(c, names),
                                .clip_low = 0.2,
                                .clip_high = often(c) ? 0.2 : ONE_OF(c, numbers),
                                .clip_c = 3,
                                .aggregation = ONE_OF(c, aggregations),
                                .norm_length = ONE_OF(c, numbers),
                                .entropy_coeff = often(c) ? 0 : ONE_OF(c, numbers),
                                .kl = often(c) ? NULL : ONE_OF(c, kls),
                                .kl_coef = often(c) ? 0.1 : ONE_OF(c, numbers),
                                .importance_cap = often(c) ? 0 : ONE_OF(c, numbers),
                                .clip_value = often(c) ? 0.5 : ONE_OF(c, numbers),
                                .of_row = often(c) ? slope : NULL};
}

static void call_training(caller *c) {
  static const int32_t counts[] = {0, 1, 2, -1, INT32_MIN, INT32_MAX};
  static const int64_t sizes[] = {0, 1, 8, 64, -1, INT64_MAX};
  const treadle_trainer_options options = {.struct_size = struct_size(c, sizeof options),
                                           .fast = below(c, 2),
                                           .threads = often(c) ? 1 : ONE_OF(c, counts),
                                           .most_rows = often(c) ? 8 : ONE_OF(c, sizes),
                                           .most_tokens = often(c) ? 0 : ONE_OF(c, sizes),
                                           .recompute = below(c, 2),
                                           .sequence_parallel = below(c, 2),
                                           .optimizer = below(c, 2),
                                           .distributed_optimizer = below(c, 2),
                                           .lora_rank = often(c) ? 0 : ONE_OF(c, sizes),
                                           .lora_alpha = often(c) ? 4 : -1,
                                           .lora_modules = often(c) ? NULL : "q_proj, nothing",
                                           .lora_gather = below(c, 2)};
  const treadle_forward_options forward = forward_options(c);
  const treadle_loss_options options_of_loss = loss_options(c);
  const int64_t lengths[] = {3, number(c)};
  treadle_batch *batch, *mine = NULL;
  treadle_row_range ranges[64];
  const treadle_optimizer_step step = {
      .struct_size = struct_size(c, sizeof step), .lr = often(c) ? 1e-3 : -1, .clip_grad = 1};
  treadle_optimizer_figures result = {.struct_size = struct_size(c, sizeof result)};
  treadle_loss loss = {.struct_size = struct_size(c, sizeof loss)};
  treadle_sft_figures figures = {.struct_size = struct_size(c, sizeof figures)};
  int64_t damaged;
  treadle_sequence_figures sequence = {.struct_size = struct_size(c, sizeof sequence)};
  treadle_train_engine engine = {.struct_size = struct_size(c, sizeof engine)};
  treadle_trainer_memory memory, many[64];
  treadle_trainer *trainer = NULL;
  double norm;
  uint64_t digest;
  size_t bytes;
  if (below(c, 2)) {
    call_rows(c);
    return;
  }
  batch = batch_of_rows(c);
  SAID(treadle_trainer_create(NULL, often(c) ? c->o.train : layout(c), &options, OR_NULL(c, &trainer)));
  if (often(c)) SAID(treadle_trainer_load(trainer));
  if (!often(c)) SAID(treadle_trainer_randomise(trainer, 3));
  SAID(treadle_trainer_coordinate_of(trainer, OR_NULL(c, lengths), often(c) ? (int64_t)below(c, 3) : -1,
                                     OR_NULL(c, &forward), OR_NULL(c, ranges)));
  SAID(treadle_trainer_slice(trainer, OR_NULL(c, batch), OR_NULL(c, &forward), OR_NULL(c, ranges),
                             OR_NULL(c, &mine)));
  SAID(treadle_trainer_gradients(trainer, OR_NULL(c, batch), OR_NULL(c, &forward),
                                 OR_NULL(c, &options_of_loss), NULL, OR_NULL(c, &loss)));
  SAID(treadle_trainer_loss(trainer, OR_NULL(c, mine), OR_NULL(c, &forward), OR_NULL(c, &options_of_loss),
                            OR_NULL(c, &loss)));
  CALL(treadle_batch_destroy(mine));
  CALL(treadle_batch_destroy(batch));
  SAID(treadle_trainer_step(trainer, OR_NULL(c, &step), OR_NULL(c, &result)));
  SAID(treadle_trainer_weights_digest(trainer, OR_NULL(c, &digest)));
  SAID(treadle_trainer_gather_adapters(trainer));
  SAID(treadle_trainer_merge_adapters(trainer, layout(c), number(c), NULL));
  SAID(treadle_trainer_save(trainer, often(c) ? "/nowhere/at/all" : NULL));
  SAID(treadle_trainer_norm(trainer, OR_NULL(c, &norm)));
  SAID(treadle_trainer_digest(trainer, OR_NULL(c, &digest)));
  SAID(treadle_trainer_save_gradients(trainer, often(c) ? "/nowhere/at/all" : NULL));
  SAID(treadle_train_experts_read(NULL, NULL, often(c) ? "{\"experts\": [[[0]]]}" : NULL, 20, NULL));
  SAID(treadle_trainer_save_experts(trainer, NULL, often(c) ? "/nowhere/at/all" : NULL));
  CALL(treadle_trainer_grad_layout(trainer));
  CALL(treadle_trainer_grad_window(trainer, OR_NULL(c, &bytes)));
  CALL(treadle_trainer_bytes(trainer));
  SAID(treadle_trainer_resume(trainer, often(c) ? "/nowhere/at/all" : NULL));
  SAID(treadle_sft_run(NULL, NULL, NULL, OR_NULL(c, &figures)));
  SAID(treadle_trainer_open_engine(NULL, NULL, often(c) ? c->o.train : NULL, &options, &engine));
  if (engine.close) engine.close(engine.engine);
  SAID(treadle_sft_foresee(NULL, 1, NULL, OR_NULL(c, &memory)));
  SAID(treadle_trainer_foresee(c->o.train, &options, often(c) ? many : NULL));
  SAID(treadle_checkpoint_verify(often(c) ? "/nowhere/at/all" : NULL, NULL, NULL, NULL,
                                 OR_NULL(c, &damaged)));
  SAID(treadle_data_sequence(often(c) ? "/nowhere/at/all" : NULL, NULL, OR_NULL(c, &sequence)));
  CALL(treadle_trainer_destroy(trainer));
}

static void call_configurations(caller *c) {
  static const char *const files[] = {"/nowhere/at/all", "",
                                      TREADLE_SOURCE_DIR "/tests/fuzz/corpus/train_config/every_key",
                                      TREADLE_SOURCE_DIR "/README.md"},
                           *const words[] = {
                               "actor_config.lr=1", "actor_config.lr", "rl_config.x=1", "=", "a.b=c", NULL};
  const char *overrides[] = {ONE_OF(c, words), ONE_OF(c, words)};
  treadle_train_config *config = NULL;
  char *text = NULL;
  size_t count;
  SAID(treadle_train_config_read(OR_NULL(c, ONE_OF(c, files)), OR_NULL(c, overrides), below(c, 3),
                                 OR_NULL(c, &config)));
  CALL(treadle_train_config_warnings(config, OR_NULL(c, &count)));
  SAID(treadle_train_config_text(config, OR_NULL(c, &text)));
  free(text);
  text = NULL;
  SAID(treadle_train_config_help(below(c, 2), OR_NULL(c, &text)));
  free(text);
  CALL(treadle_train_config_destroy(config));
}

/* ---- Policies, rewards, workers, runs ---- */

static void call_policies(caller *c) {
  const treadle_trainer_options options = {.struct_size = sizeof options, .threads = 1, .most_rows = 8};
  const treadle_forward_options forward = forward_options(c);
  const treadle_loss_options of_loss = loss_options(c);
  treadle_loss loss = {.struct_size = struct_size(c, sizeof loss)};
  treadle_batch *batch = batch_of_rows(c), *out = NULL;
  treadle_trainer *trainer = NULL;
  if (often(c)) assert_ok(rows_out(batch, &out));
  SAID(treadle_trainer_create(NULL, below(c, 2) ? c->o.scores : c->o.train, &options, &trainer));
  if (often(c)) SAID(treadle_trainer_randomise(trainer, 3));
  SAID(treadle_trainer_values(trainer, OR_NULL(c, batch), OR_NULL(c, &forward), out));
  if (out && often(c)) (void)treadle_batch_remove(out, "values");
  SAID(treadle_trainer_scores(trainer, OR_NULL(c, batch), OR_NULL(c, &forward), out));
  SAID(treadle_trainer_logprobs(trainer, OR_NULL(c, batch), OR_NULL(c, &forward), NULL, out));
  if (out && often(c)) (void)treadle_batch_remove(out, "log_probs");
  SAID(treadle_trainer_gradients(trainer, OR_NULL(c, batch), OR_NULL(c, &forward), OR_NULL(c, &of_loss),
                                 OR_NULL(c, out), OR_NULL(c, &loss)));
  CALL(treadle_batch_destroy(batch));
  CALL(treadle_batch_destroy(out));
  if (often(c)) SAID(treadle_trainer_rebind(NULL));
  CALL(treadle_trainer_destroy(trainer));
  CALL(treadle_switch_reference_twin(c->o.sw, NULL));
  SAID(treadle_switch_show_reference(OR_NULL(c, c->o.sw)));
  SAID(treadle_switch_hide_reference(OR_NULL(c, c->o.sw)));
}

static void call_rewards(caller *c) {
  static const char *const names[] = {"length:target=4", "sequence", "gsm8k", "math",
                                      "regex:a+",        "regex:(",  "",      "x"};
  const treadle_reward_options options = {.struct_size = struct_size(c, sizeof options),
                                          .name = ONE_OF(c, names)};
  const treadle_reward_sample sample = {.id = "a",
                                        .completion = often(c) ? "a" : NULL,
                                        .completion_bytes = often(c) ? 1 : 0,
                                        .answer = often(c) ? "1" : NULL,
                                        .tokens = number(c)};
  treadle_reward *reward = NULL;
  char *text = NULL, *pred = NULL;
  double score;
  SAID(treadle_reward_create(OR_NULL(c, &options), OR_NULL(c, &reward)));
  if (sample.completion) SAID(treadle_reward_start(reward, &sample, 1));
  SAID(treadle_reward_wait(reward, OR_NULL(c, &score), &pred));
  free(pred);
  SAID(treadle_reward_help(OR_NULL(c, &text)));
  free(text);
  CALL(treadle_reward_destroy(reward));
}

static void call_pieces(caller *c) {
  static const char *const estimators[] = {"group_norm", "rloo", "reinforce_plus_plus", "gae", "gpo"};
  static const char *const styles[] = {"constant", "linear", "cosine", ""};
  const treadle_prompts_options prompts = {.struct_size = struct_size(c, sizeof prompts),
                                           .path = TREADLE_SOURCE_DIR "/examples/sequence/tokenizer.json",
                                           .tokenizer = OR_NULL(c, c->o.tokenizer),
                                           .vocabulary = number(c),
                                           .most_tokens = number(c)};
  const treadle_draw_options draw = {.struct_size = struct_size(c, sizeof draw),
                                     .step = often(c) ? (int64_t)below(c, 9) : number(c),
                                     .count = often(c) || number(c) > 1000 ? (int64_t)below(c, 9) : -1,
                                     .seed = number(c),
                                     .sampling_seed = number(c),
                                     .in_place = below(c, 2)};
  const treadle_reward_options of_reward = {.struct_size = sizeof of_reward,
                                            .name = below(c, 2) ? "length:target=4" : "math"};
  const treadle_advantage_options advantage = {.struct_size = struct_size(c, sizeof advantage),
                                               .estimator = OR_NULL(c, ONE_OF(c, estimators)),
                                               .keep_scale = below(c, 2),
                                               .gamma = seconds(c),
                                               .lam = seconds(c)};
  const treadle_lr_options lr = {.struct_size = struct_size(c, sizeof lr),
                                 .style = OR_NULL(c, ONE_OF(c, styles)),
                                 .lr = seconds(c),
                                 .warmup_fraction = often(c) ? 0.5 : seconds(c),
                                 .steps = number(c)};
  treadle_batch *batch = batch_of_rows(c), *made = NULL;
  treadle_reward *reward = NULL;
  const int64_t groups[] = {0, often(c) ? 1 : number(c)};
  const treadle_column group = {.struct_size = sizeof group,
                                .name = "group",
                                .type = TREADLE_COLUMN_INT64,
                                .width = 1,
                                .data = (void *)groups};
  double rate;
  SAID(treadle_prompts_read(OR_NULL(c, &prompts), OR_NULL(c, &made)));
  CALL(treadle_batch_destroy(made));
  made = NULL;
  SAID(treadle_prompts_draw(OR_NULL(c, batch), OR_NULL(c, &draw), OR_NULL(c, &made)));
  CALL(treadle_batch_destroy(made));
  made = NULL;
  SAID(treadle_batch_gather(OR_NULL(c, c->o.group), OR_NULL(c, batch), OR_NULL(c, &made)));
  CALL(treadle_batch_destroy(made));
  SAID(treadle_tokenizer_decode_rows(OR_NULL(c, c->o.tokenizer), OR_NULL(c, batch),
                                     often(c) ? "ids" : text(c), often(c) ? "completion" : text(c)));
  assert_ok(treadle_reward_create(&of_reward, &reward));
  SAID(treadle_reward_score(OR_NULL(c, reward), OR_NULL(c, batch)));
  CALL(treadle_reward_destroy(reward));
  if (often(c)) (void)treadle_batch_add(batch, &group);
  SAID(treadle_advantages(OR_NULL(c, batch), OR_NULL(c, &advantage)));
  SAID(treadle_learning_rate(OR_NULL(c, &lr), number(c), OR_NULL(c, &rate)));
  CALL(treadle_batch_destroy(batch));
}

static void call_workers(caller *c) {
  const treadle_actor_options options = {.struct_size = struct_size(c, sizeof options)};
  const treadle_generator_options engine = {.struct_size = struct_size(c, sizeof engine)};
  treadle_infer_engine table = {.struct_size = struct_size(c, sizeof table)};
  treadle_generator_memory memory[64];
  treadle_actor_memory many[64];
  size_t bytes_of_kept;
  treadle_actor_info info = {.struct_size = struct_size(c, sizeof info)};
  treadle_rl_figures figures = {.struct_size = struct_size(c, sizeof figures)};
  treadle_eval_figures found = {.struct_size = struct_size(c, sizeof found)};
  const treadle_eval_options eval = {
      .struct_size = struct_size(c, sizeof eval), .model = "/nothing", .data = "x", .reward = "math"};
  treadle_actor *actor = NULL;
  treadle_train_config *config = NULL;
  char *text = NULL;
  uint64_t digest;
  SAID(treadle_actor_create(NULL, often(c) ? NULL : c->o.train, NULL, &options, OR_NULL(c, &actor)));
  SAID(treadle_actor_load(actor));
  SAID(treadle_actor_randomise(actor, 1));
  SAID(treadle_actor_resume(actor, "/nothing"));
  SAID(treadle_actor_save(actor, "/nothing"));
  SAID(treadle_actor_load_reference(actor));
  SAID(treadle_actor_enter(actor, (treadle_mode)below(c, 9)));
  SAID(treadle_actor_exit(actor, (treadle_mode)below(c, 9)));
  SAID(treadle_actor_slice_prompts(actor, NULL, NULL, NULL, NULL));
  SAID(treadle_actor_generate_sequences(actor, NULL, NULL, NULL, NULL));
  SAID(treadle_actor_slice(actor, NULL, NULL, NULL, NULL));
  SAID(treadle_actor_compute_log_prob(actor, NULL, NULL, NULL));
  SAID(treadle_actor_compute_ref_log_prob(actor, NULL, NULL, NULL));
  SAID(treadle_actor_update(actor, NULL, NULL, NULL, NULL, NULL, NULL));
  SAID(treadle_actor_weights_digest(actor, &digest));
  SAID(treadle_actor_get_info(actor, &info));
  CALL(treadle_actor_switch(actor));
  CALL(treadle_actor_destroy(actor));
  SAID(treadle_actor_foresee(NULL, c->o.infer, &options, many));
  SAID(treadle_generator_foresee(OR_NULL(c, c->o.infer), &engine, OR_NULL(c, memory)));
  SAID(treadle_generator_open_infer(NULL, NULL, NULL, &engine, &table));
  SAID(treadle_rl_config_read(often(c) ? TREADLE_SOURCE_DIR "/examples/grpo-demo.yaml" : "/nothing", NULL,
                              0, OR_NULL(c, &config)));
  const char *from;
  CALL(treadle_rl_config_start(config, OR_NULL(c, &from)));
  CALL(treadle_train_config_destroy(config));
  treadle_switch_config *described = NULL;
  treadle_switch_config_info layouts_of = TREADLE_INIT(treadle_switch_config_info);
  SAID(treadle_switch_config_read(often(c) ? TREADLE_SOURCE_DIR "/tests/data/config/verl-megatron.yaml"
                                           : "/nothing",
                                  NULL, 0, OR_NULL(c, &described)));
  CALL(treadle_switch_config_get_info(described, OR_NULL(c, &layouts_of)));
  CALL(treadle_switch_config_warnings(described, OR_NULL(c, &bytes_of_kept)));
  CALL(treadle_switch_config_destroy(described));
  SAID(treadle_rl_config_help(below(c, 2), OR_NULL(c, &text)));
  free(text);
  SAID(treadle_rl_run(NULL, NULL, NULL, OR_NULL(c, &figures)));
  SAID(treadle_rl_foresee(NULL, 1, NULL, many));
  SAID(treadle_rl_foresee_kept(NULL, NULL, OR_NULL(c, &bytes_of_kept)));
  SAID(treadle_eval(NULL, OR_NULL(c, &eval), OR_NULL(c, &found)));
  treadle_rl_mini_batch *mini = NULL;
  SAID(treadle_rl_mini_batch_read(NULL, c->o.train, "/nothing", number(c), &mini));
  SAID(treadle_rl_mini_batch_measure(mini, 1, NULL));
  SAID(treadle_rl_mini_batch_gradients(mini, NULL, NULL));
  CALL(treadle_rl_mini_batch_destroy(mini));
}

static void call_handles(caller *c) {
  treadle_attached *attached = OR_NULL(c, c->o.attached), *made = NULL;
  treadle_attached_info info = {.struct_size = struct_size(c, sizeof info)};
  treadle_storage_info storage = {.struct_size = struct_size(c, sizeof storage)};
  char handle[TREADLE_HANDLE_BYTES];
  char room[64];
  size_t bytes;
  uint64_t version = 0;
  switch (below(c, 15)) {
  case 12: SAID(treadle_switch_withdraw(often(c) ? NULL : sw(c))); break;
  case 0:
    SAID(treadle_switch_handle(sw(c), often(c) ? TREADLE_INFER_PARAMS : (treadle_class)any_enum(c),
                               OR_NULL(c, handle), often(c) ? sizeof handle : 100, OR_NULL(c, &bytes)));
    break;
  case 1:
    memcpy(handle, c->o.handle, c->o.handle_bytes);
    if (!often(c)) handle[below(c, c->o.handle_bytes)] ^= 4;
    SAID(treadle_attach(OR_NULL(c, handle), often(c) ? c->o.handle_bytes : below(c, c->o.handle_bytes),
                        often(c) ? 5 : seconds(c), OR_NULL(c, &made)));
    CALL(treadle_detach(made));
    break;
  case 2: CALL(treadle_attached_window(attached, OR_NULL(c, &bytes))); break;
  case 3: CALL(treadle_attached_get_info(attached, OR_NULL(c, &info))); break;
  case 13:
    SAID(treadle_attached_read(attached, below(c, 100), below(c, sizeof room), OR_NULL(c, room)));
    break;
  case 4: CALL(treadle_attached_storage_count(attached)); break;
  case 5: SAID(treadle_attached_storage(attached, (int32_t)number(c), OR_NULL(c, &storage))); break;
  case 6: CALL(treadle_attached_find(attached, text(c))); break;
  case 7: CALL(treadle_attached_version(attached)); break;
  case 8: CALL(treadle_attached_is_valid(attached)); break;
  case 9: SAID(treadle_attached_wait(attached, (uint64_t)below(c, 3), seconds(c), NULL, NULL)); break;
  case 10: SAID(treadle_attached_release(attached, (uint64_t)number(c))); break;
  default: /* let go at once: the next arrow would wait for it */
    if (SAID(treadle_attached_hold(attached, OR_NULL(c, &version))) == TREADLE_OK)
      SAID(treadle_attached_release(attached, version));
  }
}

static void iterate_batch(caller *c, const treadle_batch *batch) {
  treadle_batch_iterator *iterator = NULL;
  treadle_batch *mini = NULL;
  SAID(treadle_batch_iterate_open(batch, often(c) ? 1 : number(c), number(c), below(c, 2), below(c, 9),
                                  OR_NULL(c, &iterator)));
  for (size_t i = below(c, 9); i > 0; i--) {
    SAID(treadle_batch_iterate_next(iterator, OR_NULL(c, &mini)));
    treadle_batch_destroy(mini);
    mini = NULL;
  }
  CALL(treadle_batch_iterate_close(iterator));
}

static void call_batches(caller *c) {
  static const char *const names[] = {"ids", "ids", "score", "text", "none", ""};
  static const char *const jsons[] = {"1", "{\"a\": [1]}", "[", ""}, *const keys[] = {"k"};
  const int64_t counts[] = {(int64_t)below(c, 3), 2, often(c) ? 0 : -1};
  int64_t padding = 0;
  int64_t offsets[] = {0, 2, 3, often(c) ? 5 : 1},
          rows[] = {(int64_t)below(c, 3), (int64_t)below(c, 3), often(c) ? 2 : number(c)};
  double values[6] = {0};
  bool mask[] = {below(c, 2), below(c, 2), true};
  const char *texts[] = {text(c), "a", often(c) ? "b" : NULL};
  treadle_column column = {.struct_size = struct_size(c, sizeof column),
                           .name = OR_NULL(c, ONE_OF(c, names)),
                           .type = (treadle_column_type)any_enum(c),
                           .width = often(c) ? (int64_t)below(c, 3) : 0,
                           .offsets = below(c, 2) ? offsets : NULL,
                           .data = often(c) ? NULL : values};
  treadle_batch *batch = NULL, *made = NULL, *parts[2] = {NULL};
  SAID(treadle_batch_create(often(c) ? 3 : number(c), OR_NULL(c, &batch)));
  if (treadle_batch_rows(batch) != 3) {
    CALL(treadle_batch_destroy(batch));
    batch = NULL;
  }
  SAID(treadle_batch_add(batch, OR_NULL(c, &column)));
  SAID(treadle_batch_add_texts(batch, ONE_OF(c, names), OR_NULL(c, texts), NULL));
  SAID(treadle_batch_set_meta(batch, OR_NULL(c, "k"), ONE_OF(c, jsons)));
  CALL(treadle_batch_meta(batch, OR_NULL(c, "k")));
  CALL(treadle_batch_meta_key(batch, (int32_t)number(c)));
  CALL(treadle_batch_rows(batch));
  CALL(treadle_batch_column_count(batch));
  CALL(treadle_batch_has(batch, OR_NULL(c, ONE_OF(c, names))));
  column.struct_size = struct_size(c, sizeof column);
  if (below(c, 2))
    SAID(treadle_batch_column(batch, OR_NULL(c, ONE_OF(c, names)), OR_NULL(c, &column)));
  else
    SAID(treadle_batch_column_at(batch, (int32_t)number(c), OR_NULL(c, &column)));
  switch (below(c, 19)) {
  case 11: iterate_batch(c, batch); break;
  case 12: SAID(treadle_batch_fold(batch, often(c) ? 1 : number(c), OR_NULL(c, &made))); break;
  case 13: SAID(treadle_batch_unfold(batch, often(c) ? 2 : number(c), OR_NULL(c, &made))); break;
  case 14:
    SAID(treadle_batch_unfold_columns(batch, often(c) ? 2 : number(c), OR_NULL(c, names), below(c, 2),
                                      OR_NULL(c, &made)));
    break;
  case 15:
    SAID(treadle_batch_pad_to_divisor(batch,
                                      often(c)      ? 2
                                      : below(c, 2) ? 0
                                                    : 4097,
                                      OR_NULL(c, &made), OR_NULL(c, &padding)));
    SAID(treadle_batch_unpad(made, padding, OR_NULL(c, &parts[0])));
    treadle_batch_destroy(parts[0]);
    break;
  case 16:
    SAID(treadle_batch_sample_level_repeat(batch, OR_NULL(c, counts), below(c, 4), OR_NULL(c, &made)));
    break;
  case 17:
    SAID(treadle_batch_pop(batch, OR_NULL(c, names), below(c, 4), OR_NULL(c, keys), below(c, 2),
                           OR_NULL(c, &made)));
    break;
  case 0: SAID(treadle_batch_select(batch, OR_NULL(c, names), below(c, 4), OR_NULL(c, &made))); break;
  case 1: SAID(treadle_batch_index(batch, OR_NULL(c, rows), below(c, 4), OR_NULL(c, &made))); break;
  case 2: SAID(treadle_batch_index_mask(batch, OR_NULL(c, mask), below(c, 4), OR_NULL(c, &made))); break;
  case 3: SAID(treadle_batch_slice(batch, number(c), number(c), OR_NULL(c, &made))); break;
  case 4:
    if (below(c, 2))
      SAID(treadle_batch_split(batch, OR_NULL(c, rows), below(c, 3), OR_NULL(c, parts)));
    else
      SAID(treadle_batch_chunk(batch, below(c, 3), OR_NULL(c, parts)));
    made = parts[0];
    treadle_batch_destroy(parts[1]);
    break;
  case 5:
    SAID(treadle_batch_concat((const treadle_batch *const[]){batch, OR_NULL(c, batch)}, below(c, 3),
                              OR_NULL(c, &made)));
    break;
  case 6:
    SAID(treadle_batch_repeat(batch, often(c) ? (int64_t)below(c, 4) : number(c), below(c, 2),
                              OR_NULL(c, &made)));
    break;
  case 7: SAID(treadle_batch_union(batch, OR_NULL(c, batch))); break;
  case 8: SAID(treadle_batch_reorder(batch, OR_NULL(c, rows), below(c, 4))); break;
  case 9: SAID(treadle_batch_remove(batch, OR_NULL(c, ONE_OF(c, names)))); break;
  case 10:
    SAID(treadle_batch_rename(batch, OR_NULL(c, ONE_OF(c, names)), OR_NULL(c, ONE_OF(c, names))));
    break;
  default:
    SAID(treadle_batch_save(batch, OR_NULL(c, "/nothing/nothing")));
    SAID(treadle_batch_load(OR_NULL(c, "/nothing/nothing"), OR_NULL(c, &made)));
  }
  CALL(treadle_batch_destroy(made));
  CALL(treadle_batch_destroy(batch));
}

static treadle_meshes *meshes_of(caller *c, int32_t workers) {
  static const char *const names[] = {"actor", "actor", "critic", "", "\xff"};
  treadle_meshes *meshes = NULL;
  int32_t size;
  SAID(treadle_meshes_create(often(c) ? workers : (int32_t)number(c) % 100, OR_NULL(c, &meshes)));
  for (int32_t w = 0; w < workers; w++)
    SAID(treadle_meshes_register(meshes, often(c) ? "actor" : OR_NULL(c, ONE_OF(c, names)),
                                 often(c) ? w : (int32_t)number(c), often(c) ? w / 2 : (int32_t)number(c),
                                 often(c) ? w % 2 == 0 : below(c, 2)));
  SAID(treadle_meshes_dp_size(meshes, OR_NULL(c, ONE_OF(c, names)), OR_NULL(c, &size)));
  return meshes;
}

static treadle_status any_ranges(void *context, int32_t workers, const treadle_dispatch_argument *arguments,
                                 size_t count, treadle_row_range *by_worker) {
  caller *c = context;
  (void)arguments, (void)count;
  for (int32_t w = 0; w < workers && w < 9; w++)
    by_worker[w] = (treadle_row_range){often(c) ? 0 : number(c), often(c) ? 1 : number(c)};
  return often(c) ? TREADLE_OK : treadle_fail(TREADLE_PEER, "planted");
}

static treadle_status none_collected(void *context, const treadle_batch *const *results, int32_t workers,
                                     treadle_batch **collected, int32_t *count_p) {
  caller *c = context;
  (void)results, (void)workers, (void)collected;
  *count_p = 0;
  return often(c) ? TREADLE_OK : treadle_fail(TREADLE_PEER, "planted");
}

static void call_dispatch(caller *c) {
  enum { MOST_WORKERS = 6 };
  int32_t workers = (int32_t)below(c, MOST_WORKERS) + 1, count = 0;
  int64_t rows = (int64_t)below(c, 9);
  const treadle_dispatch_argument arguments[] = {
      {(treadle_argument_kind)(often(c) ? 0 : any_enum(c)), often(c) ? rows : number(c)},
      {(treadle_argument_kind)(often(c) ? 0 : any_enum(c)), often(c) ? rows : number(c)}};
  const treadle_dispatch_functions functions = {.struct_size = struct_size(c, sizeof functions),
                                                .name = OR_NULL(c, "mine"),
                                                .dispatch = OR_NULL(c, any_ranges),
                                                .collect = OR_NULL(c, none_collected),
                                                .context = c};
  treadle_meshes *meshes = meshes_of(c, workers);
  const treadle_dispatch_spec spec = {.struct_size = struct_size(c, sizeof spec),
                                      .kind = (treadle_dispatch_kind)any_enum(c),
                                      .execute = (treadle_execute_kind)(often(c) ? 0 : any_enum(c)),
                                      .workers = workers,
                                      .arguments = OR_NULL(c, arguments),
                                      .argument_count = below(c, 3),
                                      .meshes = OR_NULL(c, meshes),
                                      .mesh = OR_NULL(c, "actor"),
                                      .auto_padding = below(c, 2),
                                      .pad_with_first = below(c, 2),
                                      .functions = OR_NULL(c, &functions)};
  treadle_dispatch_info info = {.struct_size = struct_size(c, sizeof info)};
  treadle_dispatch_share share;
  treadle_dispatch *dispatch = NULL;
  treadle_batch *batch = NULL, *parts[MOST_WORKERS] = {NULL}, *back[MOST_WORKERS] = {NULL};
  assert_ok(treadle_batch_create(rows, &batch));
  SAID(treadle_dispatch_create(OR_NULL(c, &spec), OR_NULL(c, &dispatch)));
  CALL(treadle_meshes_destroy(meshes));
  SAID(treadle_dispatch_get_info(dispatch, OR_NULL(c, &info)));
  SAID(treadle_dispatch_get_share(dispatch, often(c) ? (int32_t)below(c, 7) : (int32_t)number(c),
                                  OR_NULL(c, &share)));
  SAID(treadle_dispatch_batch(dispatch, below(c, 3), OR_NULL(c, batch), OR_NULL(c, parts)));
  SAID(treadle_dispatch_collect(dispatch, (const treadle_batch *const *)parts, OR_NULL(c, back),
                                OR_NULL(c, &count)));
  for (int32_t w = 0; w < MOST_WORKERS; w++) {
    treadle_batch_destroy(parts[w]);
    treadle_batch_destroy(back[w]);
  }
  treadle_batch_destroy(batch);
  CALL(treadle_dispatch_destroy(dispatch));
}

static void call_balance(caller *c) {
  enum { ROWS = 6 };
  int64_t loads[ROWS], groups[ROWS], order[ROWS], counts[ROWS], inverse[ROWS], count = 0;
  const size_t rows = below(c, ROWS + 1), parts = below(c, ROWS + 1);
  for (size_t i = 0; i < ROWS; i++) {
    loads[i] = often(c) ? (int64_t)below(c, 5) : number(c);
    groups[i] = often(c) ? (int64_t)i / 2 : number(c);
    order[i] = often(c) ? (int64_t)i : number(c);
    counts[i] = often(c) ? 1 : number(c);
  }
  const treadle_balance_spec spec = {.struct_size = struct_size(c, sizeof spec),
                                     .kind =
                                         (treadle_balance_kind)(often(c) ? (int)below(c, 2) : any_enum(c)),
                                     .loads = OR_NULL(c, loads),
                                     .count = rows,
                                     .parts = parts,
                                     .equal = below(c, 2),
                                     .groups = below(c, 2) ? groups : NULL,
                                     .ends_small = below(c, 2)};
  const treadle_balance_micro_spec micro = {.struct_size = struct_size(c, sizeof micro),
                                            .lengths = OR_NULL(c, loads),
                                            .count = rows,
                                            .max_tokens = often(c) ? 6 : number(c),
                                            .least = often(c) ? (int64_t)below(c, 4) : number(c),
                                            .multiple = often(c) ? (int64_t)below(c, 4) : number(c),
                                            .dp_most = often(c) ? 0 : number(c)};
  treadle_balance_figures figures = {.struct_size = struct_size(c, sizeof figures)};
  SAID(treadle_balance_get_figures(OR_NULL(c, loads), rows, OR_NULL(c, order), OR_NULL(c, counts), parts,
                                   OR_NULL(c, &figures)));
  SAID(treadle_balance_invert(OR_NULL(c, order), rows, OR_NULL(c, inverse)));
  SAID(treadle_balance_workload(OR_NULL(c, loads), rows, OR_NULL(c, inverse)));
  SAID(treadle_balance_micro_count(OR_NULL(c, &micro), OR_NULL(c, &count)));
  SAID(treadle_balance_micro_divide(OR_NULL(c, &micro), OR_NULL(c, order), OR_NULL(c, counts)));
  SAID(treadle_balance_divide(OR_NULL(c, &spec), OR_NULL(c, order), OR_NULL(c, counts)));
}

static void call_dock(caller *c) {
  static const char *const names[] = {"a", "b", ""};
  const treadle_dock_spec spec = {.struct_size = struct_size(c, sizeof spec),
                                  .rows = often(c) ? 4 : number(c),
                                  .group = often(c) ? 2 : number(c),
                                  .columns = OR_NULL(c, names),
                                  .column_count = often(c) ? 2 : below(c, 4),
                                  .consumers = OR_NULL(c, names),
                                  .consumer_count = often(c) ? 2 : below(c, 4)};
  int64_t rows[16] = {0, 1, 2, (int64_t)below(c, 6)};
  size_t count;
  treadle_dock *dock = NULL;
  SAID(treadle_dock_create(OR_NULL(c, &spec), OR_NULL(c, &dock)));
  const treadle_dock_request ask = {.struct_size = struct_size(c, sizeof ask),
                                    .consumer = names[below(c, 3)],
                                    .columns = OR_NULL(c, names),
                                    .column_count = below(c, 3),
                                    .count = often(c) ? (int64_t)below(c, 5) : number(c),
                                    .groups = below(c, 2),
                                    .in_order = below(c, 2),
                                    .dp_size = (int64_t)below(c, 5),
                                    .pads = below(c, 2)};
  SAID(treadle_dock_put(OR_NULL(c, dock), OR_NULL(c, names), below(c, 3), OR_NULL(c, rows), below(c, 5)));
  /* Room for 16 rows: the dock has no more than 12 then, and dp_size is below 5. */
  if (!dock || spec.rows <= 12)
    SAID(treadle_dock_take(OR_NULL(c, dock), OR_NULL(c, &ask), OR_NULL(c, rows), OR_NULL(c, &count)));
  CALL(treadle_dock_all_consumed(OR_NULL(c, dock), names[below(c, 3)]));
  CALL(treadle_dock_ready(OR_NULL(c, dock), names[below(c, 3)]));
  CALL(treadle_dock_clear(OR_NULL(c, dock)));
  CALL(treadle_dock_destroy(dock));
}

static void call_pools(caller *c) {
  static const char *const names[] = {"a", "", NULL, "b"};
  int32_t node_of[8], counts[2][3];
  treadle_resource_pool_spec specs[2];
  treadle_resource_pool *pools[2] = {NULL}, *parts[8] = {NULL}, *merged = NULL;
  treadle_resource_pool_info info = TREADLE_INIT(treadle_resource_pool_info);
  treadle_slot slot;
  for (size_t i = 0; i < TEST_COUNT(node_of); i++)
    node_of[i] = often(c) ? (int32_t)below(c, 3) : (int32_t)number(c);
  for (size_t i = 0; i < TEST_COUNT(specs); i++) {
    specs[i] = (treadle_resource_pool_spec){.name = often(c) ? names[3 * i] : ONE_OF(c, names),
                                            .counts = OR_NULL(c, counts[i]),
                                            .entries = below(c, 4),
                                            .max_colocate_count = often(c) ? 0 : (int32_t)number(c),
                                            .groups = often(c) ? 1 : (int32_t)number(c)};
    for (int j = 0; j < 3; j++) counts[i][j] = often(c) ? (int32_t)below(c, 3) + 1 : (int32_t)number(c);
  }
  SAID(treadle_resource_pool_create(OR_NULL(c, specs), below(c, 3), OR_NULL(c, node_of), below(c, 9),
                                    OR_NULL(c, pools)));
  CALL(treadle_resource_pool_get_info(pools[0], OR_NULL(c, &info)));
  SAID(treadle_resource_pool_get_slot(pools[0], often(c) ? (int32_t)below(c, 4) : (int32_t)number(c),
                                      OR_NULL(c, &slot)));
  SAID(treadle_resource_pool_merge(pools[0], pools[below(c, 2)], OR_NULL(c, &merged)));
  if (below(c, 2))
    SAID(treadle_resource_pool_split(pools[0], OR_NULL(c, counts[1]), below(c, 4), OR_NULL(c, parts)));
  else
    SAID(treadle_resource_pool_split_evenly(pools[0], often(c) ? (int32_t)below(c, 4) : (int32_t)number(c),
                                            OR_NULL(c, parts)));
  for (size_t i = 0; i < TEST_COUNT(parts); i++) CALL(treadle_resource_pool_destroy(parts[i]));
  CALL(treadle_resource_pool_destroy(merged));
  for (size_t i = 0; i < TEST_COUNT(pools); i++) CALL(treadle_resource_pool_destroy(pools[i]));
  CALL(treadle_pool_role_name((treadle_pool_role)below(c, 9)));
}

static void call_role_pools(caller *c) {
  static const char *const given[] = {"resource_pools={a: [2], b: [1, 1]}",
                                      "resource_pools={a: [0]}",
                                      "mapping={ActorRollout: a, Critic: b}",
                                      "mapping={Actor: a}",
                                      "trainer.nnodes=2",
                                      "cluster.component_placement.actor=0-1"};
  const char *overrides[] = {ONE_OF(c, given), ONE_OF(c, given)};
  int32_t slots[4];
  treadle_train_config *config = NULL;
  treadle_rl_pools *pools = NULL;
  treadle_rl_pools_info info = {.struct_size = struct_size(c, sizeof info)};
  treadle_rl_pool_info one = {.struct_size = struct_size(c, sizeof one)};
  treadle_rl_pool_memory memory = {.struct_size = struct_size(c, sizeof memory)};
  treadle_rl_options options = {.struct_size = struct_size(c, sizeof options)};
  size_t bytes;
  bool known;
  for (size_t i = 0; i < TEST_COUNT(slots); i++)
    slots[i] = often(c) ? (int32_t)below(c, 4) + 1 : (int32_t)number(c);
  SAID(treadle_rl_pools_config_read(often(c) ? "/dev/null" : "/nothing", overrides, below(c, 3),
                                    OR_NULL(c, &config)));
  SAID(treadle_rl_pools_create(config, OR_NULL(c, slots), below(c, 4), OR_NULL(c, &pools)));
  CALL(treadle_rl_pools_get_info(pools, OR_NULL(c, &info)));
  SAID(treadle_rl_pools_get_pool(pools, (int32_t)below(c, 3), OR_NULL(c, &one)));
  SAID(treadle_rl_pools_foresee(pools, config, OR_NULL(c, &options), (int32_t)below(c, 3),
                                OR_NULL(c, &bytes), OR_NULL(c, &known)));
  SAID(treadle_rl_pools_foresee_roles(pools, config, OR_NULL(c, &options), (int32_t)below(c, 3),
                                      OR_NULL(c, &memory)));
  CALL(treadle_rl_pools_destroy(pools));
  CALL(treadle_train_config_destroy(config));
}

static treadle_status any_made(void *worker, const treadle_batch *in, treadle_batch **out_p) {
  caller *c = worker;
  (void)in;
  return often(c) ? treadle_batch_create(1, out_p) : treadle_fail(TREADLE_PEER, "planted");
}

static treadle_status any_worker(const treadle_worker_place *place, const treadle_batch *options,
                                 void **worker_p) {
  (void)options;
  *worker_p = place->context;
  return TREADLE_OK;
}

static void call_crews(caller *c) {
  static const char *const names[] = {"m", "m", "m", "", NULL};
  const treadle_class_method method = {
      .name = "m", .function = any_made, .dispatch = (treadle_dispatch_kind)(often(c) ? 1 : any_enum(c))};
  const treadle_worker_class class = {.struct_size = sizeof class,
                                      .name = OR_NULL(c, "m"),
                                      .methods = OR_NULL(c, &method),
                                      .method_count = 1,
                                      .create = any_worker,
                                      .context = c};
  treadle_group *alone = NULL;
  treadle_crew *crew = NULL;
  treadle_workers *workers = NULL;
  treadle_future *future = NULL, *futures[1];
  treadle_batch *batch = NULL, *list[1];
  treadle_crew_books books;
  int64_t rows;
  size_t count = 0;
  if (below(c, 20)) return; /* it takes a while */
  (void)treadle_group_self(&alone);
  SAID(treadle_crew_open(OR_NULL(c, alone), &class, 1, NULL, OR_NULL(c, &crew)));
  SAID(treadle_crew_serve(crew));
  SAID(treadle_workers_create(crew, (const int32_t[]){often(c) ? 0 : (int32_t)number(c)}, 1,
                              often(c) ? "m" : ONE_OF(c, names), NULL, OR_NULL(c, &workers)));
  static const int32_t one[] = {1}, node_of[] = {0};
  const treadle_resource_pool_spec spec = {.name = "p", .counts = one, .entries = 1};
  treadle_resource_pool *pool = NULL;
  treadle_workers *in_pool = NULL;
  (void)treadle_resource_pool_create(&spec, 1, node_of, 1, &pool);
  SAID(treadle_workers_create_in_pool(crew, OR_NULL(c, pool), often(c) ? 0 : (int32_t)number(c),
                                      often(c) ? "m" : ONE_OF(c, names), NULL, OR_NULL(c, &in_pool)));
  treadle_workers_destroy(in_pool);
  treadle_resource_pool_destroy(pool);
  CALL(treadle_workers_size(workers));
  SAID(treadle_workers_alive(workers));
  SAID(treadle_workers_call(workers, ONE_OF(c, names), NULL, OR_NULL(c, &future)));
  futures[0] = future;
  const treadle_call_input in = {.struct_size = struct_size(c, sizeof in),
                                 .futures = OR_NULL(c, futures),
                                 .future_count = below(c, 2)};
  treadle_future *second = NULL;
  SAID(treadle_workers_call(workers, "m", &in, &second));
  CALL(treadle_future_done(future));
  SAID(treadle_future_wait(OR_NULL(c, future)));
  SAID(treadle_future_rows(future, OR_NULL(c, &rows)));
  SAID(treadle_future_take(future, NULL, below(c, 2), &batch));
  treadle_batch_destroy(batch);
  batch = NULL;
  SAID(treadle_future_take_of(future, often(c) ? 0 : number(c), NULL, 0, &batch));
  treadle_batch_destroy(batch);
  SAID(treadle_future_take_list(future, list, &count));
  for (size_t i = 0; i < count; i++) treadle_batch_destroy(list[i]);
  CALL(treadle_crew_get_books(crew, OR_NULL(c, &books)));
  if (often(c)) CALL(treadle_crew_end(crew, below(c, 2) ? TREADLE_OK : TREADLE_PEER));
  if (often(c)) CALL(treadle_future_destroy(second)), second = NULL;
  CALL(treadle_crew_close(crew));
  CALL(treadle_future_destroy(future));
  CALL(treadle_future_destroy(second));
  CALL(treadle_workers_destroy(workers));
  treadle_group_close(alone);
}

/* Called often enough, each function of the headers has been called. */
static void look_up(void *context, const char *name) {
  (void)context;
  for (size_t i = 0; i < called_count; i++)
    if (strcmp(called[i], name) == 0) return;
  fail_msg("%s is in a public header, and was not called here", name);
}

static void test_random_calls(void **state) {
  (void)state;
  static void (*const parts[])(caller *) = {
      call_words,   call_models,  call_layouts,     call_plans,      call_reports,        call_tools,
      call_files,   call_testing, call_conversions, call_groups,     call_switches,       call_switches,
      call_chats,   call_engines, call_texts,       call_training,   call_configurations, call_policies,
      call_rewards, call_workers, call_handles,     call_batches,    call_pieces,         call_dispatch,
      call_balance, call_dock,    call_pools,       call_role_pools, call_crews};
  const char *calls = getenv("TREADLE_CALLS"), *seed = getenv("TREADLE_SEED");
  long long count = calls ? atoll(calls) : CALLS;
  caller c = {.random.state = seed ? strtoull(seed, NULL, 10) : 20261122};
  printf("%lld calls, TREADLE_SEED=%llu\n", count, (unsigned long long)c.random.state);
  objects_init(&c.o);
  snprintf(c.name, sizeof c.name, "calls%d", (int)getpid());
  c.paper = tmpfile();
  c.window = calloc(1, 1 << 16);
  assert_non_null(c.paper);
  assert_non_null(c.window);
  assert_in_range(treadle_layout_window_bytes(c.o.train, 0), 1, 1 << 16);
  assert_in_range(treadle_layout_window_bytes(c.o.wide, 0), 1, 1 << 16);
  for (long long i = 0; i < count; i++) ONE_OF(&c, parts)(&c);
  fclose(c.paper);
  free(c.window);
  objects_release(&c.o);
  if (count >= CALLS) objects_each_function(look_up, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_calls)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
