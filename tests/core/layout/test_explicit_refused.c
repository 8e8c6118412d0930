/* Explicit pieces that cannot be, from a program and from a file: each is refused by what is wrong in it.
 */
#include "test.h"

#include "plan/small.h"

#include <inttypes.h>

static const char *const head = "lm_head.weight";
static const small_config eight_by_four = {.V = 8, .H = 4, .dtype = "float32"};

typedef struct wrong_piece { /* what is wrong, in a piece of head [8, 4] that was right */
  treadle_explicit_piece piece;
  const char *part;
} wrong_piece;

#define HEAD .storage = "lm_head.weight", .tensor = "lm_head.weight"

static void wrong_pieces(void **state) {
  (void)state;
  static const wrong_piece wrong[] = {
      {{HEAD, .rank = 2, .storage_ndim = 2, .storage_shape = {8, 4}, .size = {8, 4}, .stride = {4, 1}},
       "rank 2 is not one of 2"},
      {{HEAD, .rank = -1, .storage_ndim = 2, .storage_shape = {8, 4}, .size = {8, 4}, .stride = {4, 1}},
       "rank -1"},
      {{.storage = "x",
        .tensor = "lm_haed.weight",
        .storage_ndim = 1,
        .storage_shape = {1},
        .size = {1, 1}},
       "no tensor 'lm_haed.weight'"},
      {{.storage = "x", .storage_ndim = 1, .storage_shape = {1}, .size = {1, 1}}, "no tensor ''"},
      {{.tensor = "lm_head.weight", .storage_ndim = 1, .storage_shape = {1}, .size = {1, 1}},
       "names no storage"},
      {{HEAD, .storage_ndim = 0, .size = {8, 4}, .stride = {4, 1}}, "0 dimensions"},
      {{HEAD, .storage_ndim = 5, .storage_shape = {8, 4, 1, 1}, .size = {8, 4}, .stride = {4, 1}},
       "5 dimensions"},
      {{HEAD, .storage_ndim = 2, .storage_shape = {8, 0}, .size = {8, 4}, .stride = {4, 1}},
       "no element or too many"},
      {{HEAD, .storage_ndim = 2, .storage_shape = {-8, -4}, .size = {8, 4}, .stride = {4, 1}},
       "no element or too many"},
      {{HEAD, .storage_ndim = 2, .storage_shape = {INT64_MAX, 4}, .size = {8, 4}, .stride = {4, 1}},
       "no element or too many"},
      {{HEAD, .storage_ndim = 2, .storage_shape = {8, 4}, .start = {1, 0}, .size = {8, 4},
        .stride = {4, 1}},
       "dimension 0 of lm_head.weight: start 1 and size 8 leave [0, 8)"},
      {{HEAD, .storage_ndim = 2, .storage_shape = {8, 4}, .start = {0, -1}, .size = {8, 4},
        .stride = {4, 1}},
       "dimension 1"},
      {{HEAD, .storage_ndim = 2, .storage_shape = {8, 4}, .size = {8, 0}, .stride = {4, 1}}, "dimension 1"},
      {{HEAD, .storage_ndim = 2, .storage_shape = {8, 4}, .size = {8, INT64_MAX}, .stride = {4, 1}},
       "dimension 1"},
      {{HEAD, .storage_ndim = 2, .storage_shape = {8, 4}, .start = {INT64_MAX, 0}, .size = {1, 4},
        .stride = {4, 1}},
       "dimension 0"},
      {{HEAD, .storage_ndim = 2, .storage_shape = {8, 4}, .size = {8, 4}, .stride = {0, 1}}, "stride of 0"},
      {{HEAD, .storage_ndim = 2, .storage_shape = {8, 4}, .size = {8, 4}, .stride = {-4, 1}},
       "stride of -4"},
      {{HEAD, .storage_ndim = 2, .storage_shape = {8, 4}, .size = {8, 4}, .stride = {INT64_MAX, 1}},
       "stride of 9223372036854775807"},
      {{HEAD, .storage_ndim = 2, .storage_shape = {8, 4}, .start = {7, 0}, .size = {1, 4},
        .stride = {INT64_MAX, 1}},
       "stride of 9223372036854775807"},
      {{HEAD, .storage_ndim = 2, .storage_shape = {8, 4}, .size = {8, 4}, .stride = {5, 1}},
       "from element 0 to 38 of storage 'lm_head.weight', which has 32"},
      {{HEAD, .storage_ndim = 2, .storage_shape = {8, 4}, .size = {8, 4}, .offset = 1, .stride = {4, 1}},
       "to 32 of storage"},
      {{HEAD, .storage_ndim = 2, .storage_shape = {8, 4}, .size = {8, 4}, .offset = -1, .stride = {4, 1}},
       "from element -1"},
      {{HEAD, .storage_ndim = 2, .storage_shape = {8, 4}, .size = {8, 4}, .offset = INT64_MAX,
        .stride = {4, 1}},
       "lm_head.weight"},
      {{HEAD, .storage_ndim = 2, .storage_shape = {8, 4}, .size = {8, 4}, .stride = {1, 1}},
       "share element"},
      {{HEAD, .storage_ndim = 2, .storage_shape = {7, 4}, .size = {7, 4}, .stride = {4, 1}},
       "no rank holds all elements of lm_head.weight"},
      {{HEAD, .storage_ndim = 2, .storage_shape = {8, 4}, .start = {0, 1}, .size = {8, 3},
        .stride = {4, 1}},
       "no rank holds all elements"},
  };
  treadle_model *model = small_model(&eight_by_four);
  int failed = 0;
  for (size_t i = 0; i < TEST_COUNT(wrong); i++) {
    small_pieces pieces = {0};
    treadle_layout *layout;
    small_give_rest(&pieces, model);
    for (size_t k = 0; k < pieces.count; k++)
      if (strcmp(pieces.items[k].tensor, head) == 0) pieces.items[k] = wrong[i].piece;
    treadle_status status = treadle_layout_from_pieces(model, 2, pieces.items, pieces.count, &layout);
    if (status != TREADLE_REFUSED || layout || !strstr(treadle_error_message(), wrong[i].part)) {
      print_error("%zu: wanted '%s', got %s: %s\n", i, wrong[i].part, treadle_status_text(status),
                  treadle_error_message());
      failed++;
    }
    treadle_layout_destroy(layout);
    treadle_array_release(&pieces);
  }
  assert_int_equal(failed, 0);
  treadle_layout *layout;
  assert_refused("no rank holds", treadle_layout_from_pieces(model, 2, NULL, 0, &layout));
  treadle_model_close(model);
}

/* Pieces that are right one by one and wrong together. */
static void wrong_together(void **state) {
  (void)state;
  treadle_model *model = small_model(&eight_by_four);
  treadle_layout *layout;
  small_pieces pieces = {0};
  small_give(&pieces, 0, head, 0, 4, 0, 4);
  small_give(&pieces, 1, head, 4, 8, 0, 4);
  small_give_rest(&pieces, model);
  assert_ok(treadle_layout_from_pieces(model, 2, pieces.items, pieces.count, &layout));
  treadle_layout_destroy(layout);
  const treadle_explicit_piece kept = pieces.items[1];

  /* T7: two stages publish colliding local names: one storage, two tensors at one place */
  pieces.items[1].rank = 0;
  assert_refused("rank 0: two pieces of storage 'lm_head.weight' share element 0",
                 treadle_layout_from_pieces(model, 2, pieces.items, pieces.count, &layout));
  pieces.items[1].storage_shape[0] = 5; /* and of another shape */
  assert_refused("rank 0: two pieces give storage 'lm_head.weight' different shapes or dtypes",
                 treadle_layout_from_pieces(model, 2, pieces.items, pieces.count, &layout));
  pieces.items[1] = kept;
  pieces.items[1].dtype = TREADLE_BF16; /* mixed dtypes */
  assert_refused("lm_head.weight is given in fp32 and in bf16",
                 treadle_layout_from_pieces(model, 2, pieces.items, pieces.count, &layout));
  pieces.items[1] = kept;
  pieces.items[1].start[0] = 3; /* a hole at row 7, row 3 twice but on two ranks */
  assert_refused("no rank holds all elements of lm_head.weight",
                 treadle_layout_from_pieces(model, 2, pieces.items, pieces.count, &layout));
  pieces.items[1] = kept;
  pieces.count--; /* T6: a missing publisher is an error */
  assert_refused("no rank holds model.norm.weight",
                 treadle_layout_from_pieces(model, 2, pieces.items, pieces.count, &layout));
  pieces.count++;
  assert_refused("0 ranks", treadle_layout_from_pieces(model, 0, pieces.items, pieces.count, &layout));
  assert_null(layout);
  treadle_array_release(&pieces);
  treadle_model_close(model);
}

typedef struct wrong_file {
  const char *json, *part;
} wrong_file;

static const wrong_file wrong_files[] = {
    {"", "pieces.json"},
    {"{", "pieces.json"},
    {"[]", "not an object with a list 'pieces'"},
    {"3", "pieces.json"},
    {"{}", "not an object with a list 'pieces'"},
    {"{\"pieces\": {}}", "not an object with a list 'pieces'"},
    {"{\"pieces\": []}", "no rank holds"},
    {"{\"pieces\": [3]}", "piece 0: tensor and storage must be texts"},
    {"{\"pieces\": [{}]}", "piece 0: tensor and storage must be texts"},
    {"{\"pieces\": [{\"tensor\": 1, \"storage\": \"s\"}]}", "must be texts"},
    {"{\"pieces\": [{\"tensor\": \"lm_head.weight\"}]}", "must be texts"},
    {"{\"pieces\": [{\"tensor\": \"lm_head.weight\", \"storage\": \"s\"}]}", "rank must be a whole number"},
    {"{\"pieces\": [{\"tensor\": \"lm_head.weight\", \"storage\": \"s\", \"rank\": \"0\"}]}",
     "rank must be a whole number"},
    {"{\"pieces\": [{\"tensor\": \"lm_head.weight\", \"storage\": \"s\", \"rank\": 0.5}]}",
     "rank must be a whole number"},
    {"{\"pieces\": [{\"tensor\": \"lm_head.weight\", \"storage\": \"s\", \"rank\": 0, \"offset\": \"0\"}]}",
     "offset must be"},
    {"{\"pieces\": [{\"tensor\": \"lm_head.weight\", \"storage\": \"s\", \"rank\": 0, \"dtype\": "
     "\"int4\"}]}",
     "dtype is none of"},
    {"{\"pieces\": [{\"tensor\": \"lm_head.weight\", \"storage\": \"s\", \"rank\": 0, \"dtype\": 16}]}",
     "dtype is none of"},
    {"{\"pieces\": [{\"tensor\": \"nothing\", \"storage\": \"s\", \"rank\": 0}]}", "no tensor 'nothing'"},
    {"{\"pieces\": [{\"tensor\": \"lm_head.weight\", \"storage\": \"s\", \"rank\": 0}]}",
     "shape is not a list"},
    {"{\"pieces\": [{\"tensor\": \"lm_head.weight\", \"storage\": \"s\", \"rank\": 0, \"shape\": []}]}",
     "shape is not a list of 1 to"},
    {"{\"pieces\": [{\"tensor\": \"lm_head.weight\", \"storage\": \"s\", \"rank\": 0, \"shape\": "
     "[1,1,1,1,1]}]}",
     "shape is not a list of 1 to"},
    {"{\"pieces\": [{\"tensor\": \"lm_head.weight\", \"storage\": \"s\", \"rank\": 0, \"shape\": [8, "
     "\"4\"]}]}",
     "shape is not a list of whole numbers"},
    {"{\"pieces\": [{\"tensor\": \"lm_head.weight\", \"storage\": \"s\", \"rank\": 0, \"shape\": [8, 4], "
     "\"start\": [0]}]}",
     "start has 1 numbers, not 2"}, /* wrong rank */
    {"{\"pieces\": [{\"tensor\": \"lm_head.weight\", \"storage\": \"s\", \"rank\": 0, \"shape\": [8, 4], "
     "\"start\": [0, 0], "
     "\"size\": [8, 4, 1]}]}",
     "size has 3 numbers, not 2"},
    {"{\"pieces\": [{\"tensor\": \"lm_head.weight\", \"storage\": \"s\", \"rank\": 0, \"shape\": [8, 4], "
     "\"start\": [0, 0], "
     "\"size\": [8, 4]}]}",
     "stride is not a list"},
    {"{\"pieces\": [{\"tensor\": \"lm_head.weight\", \"storage\": \"s\", \"rank\": 0, \"shape\": [8, 4], "
     "\"start\": [0, 0], "
     "\"size\": [9, 4], \"stride\": [4, 1]}]}",
     "start 0 and size 9 leave [0, 8)"},
    {"{\"pieces\": [{\"tensor\": \"lm_head.weight\", \"storage\": \"s\", \"rank\": 0, \"shape\": [8, 4], "
     "\"start\": [0, 0], "
     "\"size\": [8, 4], \"stride\": [4, 1]}]}",
     "no rank holds model.embed_tokens.weight"},
    {"{\"pieces\": [{\"tensor\": \"lm_head.weight\", \"storage\": \"s\", \"rank\": 2, \"shape\": [8, 4], "
     "\"start\": [0, 0], "
     "\"size\": [8, 4], \"stride\": [4, 1]}]}",
     "rank 2 is not one of 2"},
    {"{\"pieces\": [{\"tensor\": \"lm_head.weight\", \"storage\": \"\", \"rank\": 1, \"shape\": [8, 4], "
     "\"start\": [0, 0], "
     "\"size\": [8, 4], \"stride\": [4, 1]}]}",
     "names no storage"},
};

static void files_that_are_wrong(void **state) {
  (void)state;
  treadle_model *model = small_model(&eight_by_four);
  const char *folder = test_folder();
  char text[160];
  int failed = 0;
  for (size_t i = 0; i < TEST_COUNT(wrong_files); i++) {
    treadle_layout *layout;
    snprintf(text, sizeof text, "pieces:@%s", test_write(folder, "pieces.json", wrong_files[i].json));
    treadle_status status = treadle_layout_create(model, text, 2, NULL, &layout);
    if (status != TREADLE_REFUSED || layout || !strstr(treadle_error_message(), wrong_files[i].part)) {
      print_error("%s: wanted '%s', got %s: %s\n", wrong_files[i].json, wrong_files[i].part,
                  treadle_status_text(status), treadle_error_message());
      failed++;
    }
    treadle_layout_destroy(layout);
  }
  test_remove(folder);
  assert_int_equal(failed, 0);
  treadle_model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(wrong_pieces),
      cmocka_unit_test(wrong_together),
      cmocka_unit_test(files_that_are_wrong),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
