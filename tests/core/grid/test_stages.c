/* What a refused layout says to give instead is taken. */
#include "grid/stages.h"

#include "base/divisor.h"
#include "test.h"

static treadle_status stages(int64_t layers, const treadle_megatron_stages *given) {
  treadle_arena arena = {0};
  treadle_chunks chunks;
  treadle_megatron_stages options = *given;
  treadle_status status = treadle_stages_megatron("megatron", layers, &options, &arena, &chunks);
  treadle_arena_release(&arena);
  return status;
}

/* The number behind `key` in the message; 0: it is not there. */
static int64_t number_after(const char *key) {
  const char *at = strstr(treadle_error_message(), key);
  return at ? strtoll(at + strlen(key), NULL, 10) : 0;
}

static void test_first_that_is_named_is_taken(void **state) {
  int named = 0, searched = 0;
  (void)state;
  for (int64_t layers = 1; layers <= 14; layers++)
    for (int64_t pp = 2; pp <= 6; pp++)
      for (int64_t vpp = 1; vpp <= 3; vpp++)
        for (int64_t last = 0; last <= 4; last++) {
          treadle_megatron_stages options = {.pp = pp, .vpp = vpp, .last = last};
          if (stages(layers, &options) == TREADLE_OK) continue;
          const bool by_vpp = strstr(treadle_error_message(), "vpp=") != NULL;
          options.first = number_after("with first=");
          if (options.first) {
            assert_ok(stages(layers, &options));
            named++;
            continue;
          }
          /* None is named: there is none. */
          for (options.first = 1; options.first <= layers && !by_vpp; options.first++)
            assert_int_not_equal(stages(layers, &options), TREADLE_OK);
          searched++;
        }
  assert_true(named > 100 && searched > 50);
}

static void test_nearest_to_an_even_share(void **state) {
  (void)state;
  assert_refused("5 layers are not divisible by pp=2; give the first stage its own count with first=3",
                 stages(5, &(treadle_megatron_stages){.pp = 2}));
  assert_refused("first=16", stages(61, &(treadle_megatron_stages){.pp = 4}));
  assert_refused("pp is at most the number of layers", stages(3, &(treadle_megatron_stages){.pp = 4}));
  assert_refused("vpp=2 and vpp=4 do", stages(8, &(treadle_megatron_stages){.pp = 2, .vpp = 3}));
}

static void test_divisors(void **state) {
  char text[TREADLE_DIVISORS_ROOM];
  (void)state;
  assert_string_equal(treadle_divisors_near("tp", 12, 8, 1, text), "tp=6 and tp=12 do");
  assert_string_equal(treadle_divisors_near("tp", 12, 13, 1, text), "tp=12 does");
  assert_string_equal(treadle_divisors_near("tp", 1, 2, 1, text), "tp=1 does");
  assert_string_equal(treadle_divisors_near("tp", 7, 2, 1, text), "tp=1 and tp=7 do");
  /* 12 heads, 4 of keys and values: 3 and 6 divide 12, but not 4, nor 4 them. */
  assert_string_equal(treadle_divisors_near("tp", 12, 5, 4, text), "tp=4 and tp=12 do");
  /* a prime of 41 bits ends soon */
  assert_string_equal(treadle_divisors_near("tp", 1099511627791, 1099511627000, 1, text),
                      "tp=1 and tp=1099511627791 do");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_first_that_is_named_is_taken),
      cmocka_unit_test(test_nearest_to_an_even_share),
      cmocka_unit_test(test_divisors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
