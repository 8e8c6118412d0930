/* treadle convert from torch_dist checkpoints. */
#include "cli/conversion.h"

#include "io/file.h"
#include "test.h"

#define RECORDED TREADLE_SOURCE_DIR "/tests/data/convert"

static void same_tensors(const char *one, const char *other) {
  treadle_checkpoint *a, *b;
  assert_ok(treadle_checkpoint_open(one, &a));
  assert_ok(treadle_checkpoint_open(other, &b));
  assert_int_equal(a->count, b->count);
  for (int32_t i = 0; i < a->count; i++) {
    assert_string_equal(a->tensors[i].name, b->tensors[i].name);
    assert_int_equal(a->tensors[i].dtype, b->tensors[i].dtype);
    assert_int_equal(a->tensors[i].bytes, b->tensors[i].bytes);
    if (memcmp(a->tensors[i].data, b->tensors[i].data, a->tensors[i].bytes))
      fail_msg("%s differs", a->tensors[i].name);
  }
  treadle_checkpoint_close(a);
  treadle_checkpoint_close(b);
}

/* Recorded by code that shares nothing with treadle (tests/data/convert/record.py): layers and experts as axes, keys by
 * layer, MLA, MTP, chunks of tp 2 and ep 2. */
static void distributed_checkpoints_are_read(void **state) {
  (void)state;
  static const char *const names[] = {"moe", "latent"};
  for (size_t i = 0; i < TEST_COUNT(names); i++) {
    char config[300], *text;
    size_t length;
    snprintf(config, sizeof config, "%s/%s.json", RECORDED, names[i]);
    assert_ok(treadle_file_read(config, 1 << 16, &text, &length));
    conversion_make("hf", text, 0, false);
    treadle_free(text);
    for (int way = 0; way < 2; way++) { /* straight, and by way of Megatron's other format */
      const char *to = way ? "megatron:tp=2,ep=2" : "hf";
      conversion_remove("there");
      conversion_remove("back");
      command_result result =
          command_run("convert --from torch_dist --to %s --model %s '%s/%s' '%s'", to, config, RECORDED,
                      names[i], conversion_at(way ? "there" : "back"));
      command_expect(&result, 0, "", 0);
      command_release(&result);
      if (way) conversion_run(to, "hf", "there", "back");
      same_tensors(conversion_at("hf"), conversion_at("back"));
    }
    command_result result = command_run("convert --from torch_dist --to hf --model %s/%s.json '%s/%s' '%s'",
                                        RECORDED, names[!i], RECORDED, names[i], conversion_at("result"));
    command_expect(&result, 2, i ? "is [8, 8], and the model says [8, 16]" : "has no key for", 1);
    command_release(&result);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(distributed_checkpoints_are_read)};
  return cmocka_run_group_tests(tests, NULL, conversion_end);
}
