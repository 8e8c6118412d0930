/* src/core/io/checkpoint.c: what a folder has, an index and its shards that agree, and those that do not. */
#include "test.h"

#include "io/file.h"
#include "io/safetensors.h"

#include <sys/stat.h>

static char path[256];
static const char *folder;

static const char *in(const char *name) {
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

/* A shard with one tensor of 4 bytes for each letter of `names`; its value is the letter. */
static void write_shard(const char *file, const char *names) {
  treadle_stored tensors[8] = {0};
  char texts[8][2] = {{0}};
  float values[8];
  int32_t count = (int32_t)strlen(names);
  for (int32_t i = 0; i < count; i++) {
    texts[i][0] = names[i];
    values[i] = (float)names[i];
    tensors[i] = (treadle_stored){
        .name = texts[i], .dtype = TREADLE_FP32, .ndim = 1, .shape = {1}, .data = &values[i]};
  }
  assert_ok(treadle_safetensors_write(in(file), tensors, count));
}

static void write_text(const char *file, const char *text) {
  assert_ok(treadle_file_write(in(file), text, strlen(text)));
}

static void write_index(const char *weight_map) {
  char text[1024];
  snprintf(text, sizeof text, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": %s}", weight_map);
  write_text("model.safetensors.index.json", text);
}

static const char GOOD_MAP[] =
    "{\"c\": \"2.safetensors\", \"a\": \"1.safetensors\", \"b\": \"2.safetensors\"}";

/* Two shards, a in the first, b and c in the second, with their index. */
static int make_sharded(void **state) {
  (void)state;
  folder = test_folder();
  write_shard("1.safetensors", "a");
  write_shard("2.safetensors", "bc");
  write_index(GOOD_MAP);
  return 0;
}

static int remove_folder(void **state) {
  (void)state;
  test_remove(folder);
  return 0;
}

static treadle_status open_only(void) {
  treadle_checkpoint *checkpoint = NULL;
  treadle_status status = treadle_checkpoint_open(folder, &checkpoint);
  assert_int_equal(checkpoint != NULL, status == TREADLE_OK);
  treadle_checkpoint_close(checkpoint);
  return status;
}

static void opens_shards(void **state) {
  (void)state;
  treadle_checkpoint *checkpoint = NULL;
  assert_ok(treadle_checkpoint_open(folder, &checkpoint));
  assert_int_equal(checkpoint->count, 3);
  assert_int_equal(checkpoint->file_count, 2);
  assert_int_equal(checkpoint->total_bytes, 12);
  assert_false(checkpoint->index_only);
  for (int i = 0; i < 3; i++) {
    const treadle_stored *tensor = &checkpoint->tensors[i];
    float value;
    assert_int_equal(tensor->name[0], 'a' + i); /* sorted */
    memcpy(&value, tensor->data, sizeof value);
    assert_true(value == (float)tensor->name[0]);
    assert_ptr_equal(treadle_checkpoint_find(checkpoint, tensor->name), tensor);
    assert_string_equal(checkpoint->files[tensor->file], in(i ? "2.safetensors" : "1.safetensors"));
  }
  assert_null(treadle_checkpoint_find(checkpoint, "d"));
  treadle_checkpoint_close(checkpoint);
  treadle_checkpoint_close(NULL);
}

static void opens_index_alone(void **state) {
  (void)state;
  treadle_checkpoint *checkpoint = NULL;
  assert_int_equal(unlink(in("1.safetensors")), 0);
  assert_ok(treadle_checkpoint_open_index(in("model.safetensors.index.json"), &checkpoint));
  assert_true(checkpoint->index_only);
  assert_int_equal(checkpoint->count, 3);
  assert_int_equal(checkpoint->total_bytes, 0);
  assert_string_equal(checkpoint->tensors[0].name, "a");
  assert_int_equal(checkpoint->tensors[0].ndim, -1);
  assert_null(checkpoint->tensors[0].data);
  assert_string_equal(checkpoint->files[checkpoint->tensors[0].file], in("1.safetensors"));
  treadle_checkpoint_close(checkpoint);
}

static void opens_what_is_there(void **state) {
  (void)state;
  treadle_checkpoint *checkpoint = NULL;
  assert_ok(treadle_checkpoint_open(in("2.safetensors"), &checkpoint)); /* one file by name */
  assert_int_equal(checkpoint->count, 2);
  treadle_checkpoint_close(checkpoint);

  write_shard("model.safetensors", "xyz"); /* goes before the index, as in the transformers library */
  assert_ok(treadle_checkpoint_open(folder, &checkpoint));
  assert_int_equal(checkpoint->count, 3);
  assert_string_equal(checkpoint->tensors[0].name, "x");
  treadle_checkpoint_close(checkpoint);

  assert_int_equal(unlink(in("model.safetensors")) | unlink(in("model.safetensors.index.json")), 0);
  assert_ok(treadle_checkpoint_open(folder, &checkpoint)); /* no weights */
  assert_null(checkpoint);
}

static void refuses_disagreement(void **state) {
  (void)state;
  static const struct {
    const char *weight_map, *part;
  } bad[] = {
      {"{\"a\": \"1.safetensors\", \"b\": \"2.safetensors\"}", "2.safetensors: has tensor 'c', which "},
      {"{\"a\": \"1.safetensors\", \"b\": \"1.safetensors\", \"c\": \"2.safetensors\"}",
       "2.safetensors: has tensor 'b', which "},
      {"{\"a\": \"1.safetensors\", \"b\": \"2.safetensors\", \"c\": \"2.safetensors\", \"d\": "
       "\"1.safetensors\"}",
       "1.safetensors: lacks tensor 'd', which "},
      {"{\"a\": \"1.safetensors\", \"b\": \"2.safetensors\", \"c\": \"2.safetensors\", \"a\": "
       "\"1.safetensors\"}",
       "stands twice in one object"},
      {"{\"a\": 1}", "tensor 'a': its shard is not a text"},
      {"[]", "has no object weight_map"},
      {"{\"a\": \"../1.safetensors\"}", "tensor 'a': shard '../1.safetensors' is not a plain file name"},
      {"{\"a\": \"/etc/passwd\"}", "shard '/etc/passwd' is not a plain file name"},
      {"{\"a\": \"sub/1.safetensors\"}", "is not a plain file name"},
      {"{\"a\": \"..\"}", "is not a plain file name"},
      {"{\"a\": \".\"}", "is not a plain file name"},
      {"{\"a\": \"\"}", "is not a plain file name"},
      {"{\"a\": \"1.safetensors\\u0000\"}", "\\u0000"},
  };
  for (size_t i = 0; i < TEST_COUNT(bad); i++) {
    write_index(bad[i].weight_map);
    assert_refused(bad[i].part, open_only());
  }
  write_text("model.safetensors.index.json", "{\"metadata\": {}}");
  assert_refused("has no object weight_map", open_only());
  write_text("model.safetensors.index.json", "[1]");
  assert_refused("has no object weight_map", open_only());
  write_index("{}"); /* no tensors: no shards to disagree with */
  assert_ok(open_only());
}

static void refuses_bad_files(void **state) {
  (void)state;
  treadle_checkpoint *checkpoint = NULL;
  write_text("2.safetensors", "");
  assert_refused("2.safetensors: has 0 bytes", open_only());
  write_text("2.safetensors", "123456789");
  assert_refused("2.safetensors: a header of ", open_only());
  assert_int_equal(unlink(in("2.safetensors")), 0);
  assert_fails(TREADLE_SYSTEM, "2.safetensors: cannot open: No such file", open_only());
  assert_int_equal(mkdir(in("2.safetensors"), 0755), 0);
  assert_refused("2.safetensors: is a folder", open_only());
  assert_int_equal(rmdir(in("2.safetensors")), 0);
  write_shard("2.safetensors", "bc");
  assert_ok(open_only());

  assert_int_equal(mkdir(in("model.safetensors"), 0755), 0);
  assert_refused("model.safetensors: is a folder", open_only());
  assert_int_equal(rmdir(in("model.safetensors")), 0);
  assert_int_equal(symlink("blobs/absent", in("model.safetensors")), 0); /* downloaded by half */
  assert_fails(TREADLE_SYSTEM, "model.safetensors: cannot open: No such file", open_only());
  assert_int_equal(unlink(in("model.safetensors")), 0);
  assert_fails(TREADLE_SYSTEM, "none: cannot open", treadle_checkpoint_open(in("none"), &checkpoint));
  assert_fails(TREADLE_SYSTEM, "none: cannot open", treadle_checkpoint_open_index(in("none"), &checkpoint));
  assert_refused("is a folder", treadle_checkpoint_open_index(folder, &checkpoint));
  assert_null(checkpoint);

  /* Without permission, which root has to give away. */
  bool root = geteuid() == 0;
  assert_int_equal(chmod(in("1.safetensors"), 0) | chmod(folder, 0755), 0);
  if (root) assert_int_equal(seteuid(65534), 0);
  assert_fails(TREADLE_SYSTEM, "1.safetensors: cannot open: Permission denied", open_only());
  if (root) assert_int_equal(seteuid(0) | chmod(folder, 0700) | seteuid(65534), 0);
  if (root) assert_fails(TREADLE_SYSTEM, "Permission denied", open_only());
  if (root) assert_int_equal(seteuid(0), 0);
}

static void memory_is_out(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(open_only());
  write_shard("model.safetensors", "xyz");
  TEST_EACH_ALLOCATION(open_only());
}

/* A real file: MiniMind2-Small as it was published. */
static void opens_real_model(void **state) {
  (void)state;
  static const char real[] = TREADLE_SOURCE_DIR "/../shared/data/minimind2-small";
  treadle_checkpoint *checkpoint = NULL;
  if (!treadle_file_exists(real)) {
    print_message("skipped: %s is not here\n", real);
    skip();
  }
  assert_ok(treadle_checkpoint_open(real, &checkpoint));
  const treadle_stored *embed = treadle_checkpoint_find(checkpoint, "model.embed_tokens.weight");
  assert_non_null(embed);
  assert_int_equal(embed->ndim, 2);
  assert_int_equal(embed->shape[0], 6400);
  treadle_checkpoint_close(checkpoint);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(opens_shards, make_sharded, remove_folder),
      cmocka_unit_test_setup_teardown(opens_index_alone, make_sharded, remove_folder),
      cmocka_unit_test_setup_teardown(opens_what_is_there, make_sharded, remove_folder),
      cmocka_unit_test_setup_teardown(refuses_disagreement, make_sharded, remove_folder),
      cmocka_unit_test_setup_teardown(refuses_bad_files, make_sharded, remove_folder),
      cmocka_unit_test_setup_teardown(memory_is_out, make_sharded, remove_folder),
      cmocka_unit_test(opens_real_model)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
