/* treadle convert from torch_dist checkpoints, and to them. */
#include "cli/conversion.h"

#include "base/alloc.h"
#include "base/crc.h"
#include "base/dtype.h"
#include "io/file.h"
#include "io/torch_dist.h"
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

/* A recorded checkpoint as this layout, into a folder. */
static command_result read_recorded(const char *checkpoint, const char *model, const char *to,
                                    const char *out) {
  conversion_remove(out);
  return command_run("convert --from torch_dist --to %s --model %s/%s.json '%s/%s' '%s'", to, RECORDED,
                     model, RECORDED, checkpoint, conversion_at(out));
}

/* Recorded by code that shares nothing with treadle (tests/data/convert/record.py and record_gdn.py): layers and experts
 * as axes, keys by layer, MLA, linear attention in six and three keys, MTP, chunks of several ranks. */
static void distributed_checkpoints_are_read(void **state) {
  (void)state;
  static const char *const names[] = {"moe", "latent", "gdn"};
  for (size_t i = 0; i < TEST_COUNT(names); i++) {
    char config[300], *text;
    size_t length;
    snprintf(config, sizeof config, "%s/%s.json", RECORDED, names[i]);
    assert_ok(treadle_file_read(config, 1 << 16, &text, &length));
    conversion_make("hf", text, 0, false);
    treadle_free(text);
    for (int way = 0; way < 2; way++) { /* straight, and by way of Megatron's other format */
      const char *to = way ? "megatron:tp=2,ep=2" : "hf";
      conversion_remove("back");
      command_result result = read_recorded(names[i], names[i], to, way ? "there" : "back");
      command_expect(&result, 0, "", 0);
      command_release(&result);
      if (way) conversion_run(to, "hf", "there", "back");
      same_tensors(conversion_at("hf"), conversion_at("back"));
    }
  }
}

static void another_models_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *checkpoint, *model, *words;
  } cases[] = {
      {"moe", "latent", "has no key for"},
      {"latent", "moe", "is [8, 8], and the model says [8, 16]"},
      {"moe", "gdn", "has no key for decoder.layers.0.self_attention.dt_bias"},
      {"gdn", "moe", "has no key for decoder.layers.0.self_attention.linear_proj.weight"},
  };
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    command_result result = read_recorded(cases[i].checkpoint, cases[i].model, "hf", "result");
    command_expect(&result, 2, cases[i].words, 1);
    command_release(&result);
  }
}

/* One of the six keys of a projection is not there. */
static void parts_must_be_complete(void **state) {
  (void)state;
  conversion_remove("dist");
  assert_int_equal(
      conversion_shell("cp -r '%s/gdn' '%s'; sed -i s/weight.alpha/weight.alphb/g '%s/.metadata'", RECORDED,
                       conversion_at("dist"), conversion_at("dist")),
      0);
  command_result result = command_run("convert --from torch_dist --to hf --model %s/gdn.json '%s' '%s'",
                                      RECORDED, conversion_at("dist"), conversion_at("result"));
  command_expect(&result, 2,
                 "decoder.layers.0.self_attention.in_proj.weight.query and 4 others have 28 rows together, "
                 "and the model says 32 for decoder.layers.0.self_attention.in_proj.weight",
                 1);
  command_release(&result);
}

/* All of a global tensor, row-major, chunk by chunk. */
static uint32_t sum_tensor(const treadle_dist_tensor *tensor) {
  size_t each = treadle_dtype_bytes(tensor->dtype);
  char *all = treadle_alloc(tensor->bytes + 1);
  assert_non_null(all);
  for (int32_t c = 0; c < tensor->chunk_count; c++) {
    const treadle_dist_box *chunk = &tensor->chunks[c];
    for (size_t i = 0; i < chunk->bytes / each; i++) {
      int64_t left = (int64_t)i, from = 0, to = 0, stride = 1;
      for (int d = tensor->ndim - 1; d >= 0; d--) {
        int64_t at = left % chunk->size[d];
        from += at * chunk->strides[d];
        to += (chunk->offset[d] + at) * stride;
        stride *= tensor->shape[d];
        left /= chunk->size[d];
      }
      memcpy(all + (size_t)to * each, (const char *)chunk->data + (size_t)from * each, each);
    }
  }
  uint32_t sum = treadle_crc32(0, all, tensor->bytes);
  treadle_free(all);
  return sum;
}

/* What is written has the keys, shapes and values of the recorded checkpoint, but for how the tensors are cut. */
static void distributed_checkpoints_are_written(void **state) {
  (void)state;
  static const char *const names[] = {"moe", "latent"};
  for (size_t i = 0; i < TEST_COUNT(names); i++) {
    char path[400];
    treadle_torch_dist *wanted, *written;
    snprintf(path, sizeof path, "%s/%s", RECORDED, names[i]);
    conversion_remove("dist");
    command_result result = read_recorded(names[i], names[i], "torch_dist", "dist");
    command_expect(&result, 0, "", 0);
    command_release(&result);
    conversion_run("torch_dist", "hf", "dist", "back");
    result = read_recorded(names[i], names[i], "hf", "hf");
    command_expect(&result, 0, "", 0);
    command_release(&result);
    same_tensors(conversion_at("hf"), conversion_at("back"));
    assert_ok(treadle_torch_dist_open(path, "_extra_state", &wanted));
    snprintf(path, sizeof path, "%s/release", conversion_at("dist"));
    assert_ok(treadle_torch_dist_open(path, NULL, &written));
    int32_t compared = 0;
    for (int32_t k = 0; k < wanted->count; k++) {
      const treadle_dist_tensor *a = &wanted->tensors[k], *b = NULL;
      if (strncmp(a->key, "optimizer.", 10) == 0) continue;
      for (int32_t n = 0; n < written->count && !b; n++)
        if (strcmp(written->tensors[n].key, a->key) == 0) b = &written->tensors[n];
      if (!b) fail_msg("%s: %s is not written", names[i], a->key);
      assert_int_equal(a->dtype, b->dtype);
      assert_int_equal(a->ndim, b->ndim);
      assert_memory_equal(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape);
      if (sum_tensor(a) != sum_tensor(b)) fail_msg("%s: %s differs", names[i], a->key);
      compared++;
    }
    assert_int_equal(compared, written->count);
    treadle_torch_dist_close(wanted);
    treadle_torch_dist_close(written);
  }
}

static void parts_are_not_written(void **state) {
  (void)state;
  command_result result = read_recorded("gdn", "gdn", "torch_dist", "result");
  command_expect(&result, 2,
                 "experts one by one and linear attention are read from torch_dist, and not written", 1);
  command_release(&result);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(distributed_checkpoints_are_read),
      cmocka_unit_test(distributed_checkpoints_are_written), cmocka_unit_test(parts_are_not_written),
      cmocka_unit_test(another_models_are_refused), cmocka_unit_test(parts_must_be_complete)};
  return cmocka_run_group_tests(tests, NULL, command_teardown);
}
