/* src/core/grid/slots.c: which expert lies where. */
#include "test.h"

#include "grid/slots.h"
#include "io/json.h"

enum { LAYERS = 2 };

/* The experts of each rank: "0 1 2/3 4 5/6 7". */
static const char *shown(const treadle_slots *slots) {
  static char text[400];
  char *end = text;
  *end = 0;
  for (int64_t r = 0; r < slots->ep; r++) {
    int64_t first = treadle_slots_first(slots, r);
    if (r) end += sprintf(end, "/");
    for (int64_t s = first; s < first + treadle_slots_on(slots, r); s++) {
      assert_int_equal(treadle_slots_rank(slots, s), r);
      end += sprintf(end, "%s%d", s > first ? " " : "", slots->logical ? (int)slots->logical[s] : (int)s);
    }
  }
  return text;
}

/* first and places say the same as logical. */
static void check_inverse(const treadle_slots *slots) {
  assert_int_equal(slots->first[slots->experts], slots->count);
  for (int64_t e = 0; e < slots->experts; e++) {
    assert_true(slots->first[e] < slots->first[e + 1]);
    for (int32_t i = slots->first[e]; i < slots->first[e + 1]; i++) {
      assert_int_equal(slots->logical[slots->places[i]], e);
      if (i > slots->first[e]) assert_true(slots->places[i] > slots->places[i - 1]);
    }
  }
}

static void in_order(void **state) {
  (void)state;
  static const struct {
    int64_t experts, ep;
    const char *shown;
  } rows[] = {
      {10, 4, "0 1 2/3 4 5/6 7/8 9"}, {8, 4, "0 1/2 3/4 5/6 7"}, {3, 5, "0/1/2//"}, {4, 1, "0 1 2 3"}};
  treadle_arena arena = {0};
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    const treadle_slots *slots;
    assert_ok(treadle_slots_linear(rows[i].experts, rows[i].ep, &arena, &slots));
    assert_string_equal(shown(slots), rows[i].shown);
    assert_null(slots->logical);
    assert_int_equal(slots->hash, 0);
  }
  const treadle_slots **all;
  assert_ok(treadle_slots_for_all(8, 2, 3, &arena, &all));
  assert_ptr_equal(all[0], all[2]);
  assert_ok(treadle_slots_for_all(0, 2, 3, &arena, &all));
  assert_null(all);
  treadle_arena_release(&arena);
}

static void round_robin(void **state) {
  (void)state;
  static const struct {
    int64_t experts, ep;
    const char *shown;
  } rows[] = {{8, 4, "0 4/1 5/2 6/3 7"}, {7, 3, "0 3 6/1 4/2 5"}, {4, 4, "0/1/2/3"}, {3, 1, "0 1 2"}};
  treadle_arena arena = {0};
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    const treadle_slots *slots;
    assert_ok(treadle_slots_round_robin(rows[i].experts, rows[i].ep, &arena, &slots));
    assert_string_equal(shown(slots), rows[i].shown);
    check_inverse(slots);
  }
  treadle_arena_release(&arena);
}

static void maps(void **state) {
  (void)state;
  const treadle_slots_spec spec = {.what = "x", .experts = 3, .ep = 2};
  treadle_arena arena = {0};
  const treadle_slots *slots, *other;
  const int32_t twice[] = {2, 0, 1, 2, 2, 0}, hole[] = {0, 1, 0, 1}, high[] = {0, 1, 2, 3},
                low[] = {0, -1, 1, 2};
  assert_ok(treadle_slots_map(&spec, 0, twice, 6, &arena, &slots));
  assert_string_equal(shown(slots), "2 0 1/2 2 0");
  check_inverse(slots);
  assert_int_equal(slots->first[3] - slots->first[2], 3);
  assert_refused("the expert map of layer 5 has no slot for expert 2",
                 treadle_slots_map(&spec, 5, hole, 4, &arena, &other));
  assert_refused("layer 5 gives slot 3 expert 3, which is none of the 3 experts",
                 treadle_slots_map(&spec, 5, high, 4, &arena, &other));
  assert_refused("gives slot 1 expert -1", treadle_slots_map(&spec, 0, low, 4, &arena, &other));
  const int32_t moved[] = {2, 0, 1, 2, 0, 2};
  assert_ok(treadle_slots_map(&spec, 0, moved, 6, &arena, &other));
  assert_true(other->hash != slots->hash);
  treadle_arena_release(&arena);
}

/* ---- Files ---- */

static treadle_slots_spec of_files(int64_t layers, int64_t mtp, int64_t count) {
  return (treadle_slots_spec){"vllm", 4, 2, layers, mtp, count};
}

static treadle_status parse(const char *text, int64_t mtp, int64_t wanted, treadle_arena *arena,
                            const treadle_slots **slots, uint64_t *digest_p) {
  const treadle_slots_spec spec = of_files(LAYERS, mtp, wanted);
  json_t *root = NULL;
  treadle_status status;
  *digest_p = 0;
  TRY(treadle_json_parse("map", text, strlen(text), &root));
  TRY(treadle_slots_parse(&spec, "map", root, arena, slots, digest_p));
out:
  json_decref(root);
  return status;
}

static void files(void **state) {
  (void)state;
  static const struct {
    const char *text, *first, *second;
  } rows[] = {
      {"[3,2,1,0]", "3 2/1 0", "3 2/1 0"},
      {"[[3,2,1,0]]", "3 2/1 0", "3 2/1 0"},
      {"[[3,2,1,0],[0,1,2,3]]", "3 2/1 0", "0 1/2 3"},
      {"[[3,2,1,0],[0,1,2,3],[9]]", "3 2/1 0", "0 1/2 3"}, /* of MTP layers that the model leaves out */
      {"{\"physical_to_logical_map\": [[0,0,1,1,2,2,3,3],[3,3,3,3,3,2,1,0]]}", "0 0 1 1/2 2 3 3",
       "3 3 3 3/3 2 1 0"},
      {"{\"physical_to_logical_map\": [1,0,3,2], \"more\": 1}", "1 0/3 2", "1 0/3 2"}};
  treadle_arena arena = {0};
  uint64_t digests[TEST_COUNT(rows)];
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    const treadle_slots *slots[LAYERS];
    assert_ok(parse(rows[i].text, 0, 0, &arena, slots, &digests[i]));
    assert_string_equal(shown(slots[0]), rows[i].first);
    assert_string_equal(shown(slots[1]), rows[i].second);
  }
  assert_true(digests[0] == digests[1] && digests[2] == digests[3]);
  assert_true(digests[0] != digests[2] && digests[0] != digests[4] && digests[0] != digests[5]);
  treadle_arena_release(&arena);
}

/* A map of the decoder layers alone: there is one more, of MTP. */
static void decoder_layers(void **state) {
  (void)state;
  treadle_arena arena = {0};
  const treadle_slots *slots[LAYERS];
  uint64_t digest;
  assert_ok(parse("[[3,2,1,0,3,3]]", 1, 6, &arena, slots, &digest)); /* of all layers */
  assert_string_equal(shown(slots[1]), "3 2 1/0 3 3");
  json_t *root = NULL;
  static const char text[] = "[[3,2,1,0,3,3],[0,1,2,3,3,3]]";
  const treadle_slots *more[LAYERS + 1];
  assert_ok(treadle_json_parse("map", text, sizeof text - 1, &root));
  const treadle_slots_spec one = of_files(LAYERS + 1, 1, 6), none = of_files(LAYERS + 1, 0, 6);
  assert_ok(treadle_slots_parse(&one, "map", root, &arena, more, &digest));
  assert_string_equal(shown(more[1]), "0 1 2/3 3 3");
  assert_string_equal(shown(more[2]), "0 1 2/3 0 1");
  check_inverse(more[2]);
  assert_refused("map has expert maps of 2 layers, and the model has 3 and 0 of MTP",
                 treadle_slots_parse(&none, "map", root, &arena, more, &digest));
  json_decref(root);
  treadle_arena_release(&arena);
}

static void refused_files(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t wanted;
    const char *words;
  } rows[] = {{"[]", 0, "map has expert maps of 0 layers, and the model has 2"},
              {"{}", 0, "map: has no list physical_to_logical_map"},
              {"{\"physical_to_logical_map\": 3}", 0, "map: has no list physical_to_logical_map"},
              {"[[0,1,2,3],[0,1,2]]", 0, "layer 1 has 3 slots; a multiple of ep = 2 is needed"},
              {"[[0,1,2,3],[0,1,2,3,0,1]]", 0, "layer 1 has 6 slots, layer 0 has 4"},
              {"[[0,1,2,3],4]", 0, "layer 1 is not a list"},
              {"[[0,1,2,3],[]]", 0, "layer 1 has 0 slots"},
              {"[0,1,2,3]", 6, "layer 0 has 4 slots; 6 is needed"},
              {"[0,1,2,4]", 0, "gives slot 3 expert 4, which is none of the 4 experts"},
              {"[0,1,2,-7]", 0, "slot 3 of layer 0 holds expert -7, which is none of the 4 experts"},
              {"[0,1,2,2.5]", 0, "slot 3 of layer 0 holds no whole number"},
              {"[0,1,2,4294967296]", 0,
               "slot 3 of layer 0 holds expert 4294967296, which is none of the 4 experts"},
              {"[0,1,2,2]", 0, "has no slot for expert 3"},
              {"[0.5]", 0, "layer 0 is not a list"}};
  treadle_arena arena = {0};
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    const treadle_slots *slots[LAYERS];
    uint64_t digest;
    assert_refused(rows[i].words, parse(rows[i].text, 0, rows[i].wanted, &arena, slots, &digest));
  }
  const treadle_slots *slots[LAYERS];
  uint64_t digest = 0;
  const treadle_slots_spec spec = of_files(LAYERS, 0, 0);
  assert_fails(TREADLE_SYSTEM, "/nowhere/map.json",
               treadle_slots_read(&spec, "/nowhere/map.json", &arena, slots, &digest));
  treadle_arena_release(&arena);
}

static treadle_status parse_once(void) {
  treadle_arena arena = {0};
  const treadle_slots *slots[LAYERS];
  uint64_t digest;
  treadle_status status = parse("[[3,2,1,0],[0,1,2,3]]", 0, 0, &arena, slots, &digest);
  if (status == TREADLE_OK) status = treadle_slots_round_robin(8, 4, &arena, slots);
  treadle_arena_release(&arena);
  return status;
}

static void failing_allocations(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(parse_once());
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(in_order),
                                     cmocka_unit_test(round_robin),
                                     cmocka_unit_test(maps),
                                     cmocka_unit_test(files),
                                     cmocka_unit_test(decoder_layers),
                                     cmocka_unit_test(refused_files),
                                     cmocka_unit_test(failing_allocations)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
