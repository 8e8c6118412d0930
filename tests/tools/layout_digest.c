/* layout_digest [-v] [FILE...]: one number for each golden file, and one for 2,000 random layouts, over every storage
 * tensor of every rank and where each of its elements lies. Two builds that lay everything out alike print the same
 * lines: run it before and after a change that must change nothing. With -v each layout is a line.
 *
 * Golden cases are opened by the checkers (golden_support), which tell this subject what they ask the library. A layout
 * that is refused counts by its text alone: messages may become better. */
#include "golden_support/golden.h"
#include "plan/draw.h"

#include "base/hash.h"
#include "test.h"

#include <inttypes.h>

enum { LAYOUTS = 2000, MOST_ELEMS = 12000 };

static uint64_t sum; /* of the layouts so far, in order */
static bool verbose;

static void hash_bytes(uint64_t *hash, const void *bytes, size_t count) {
  *hash = treadle_hash_bytes(bytes, count, *hash);
}

static void hash_text(uint64_t *hash, const char *text) {
  hash_bytes(hash, text ? text : "", strlen(text ? text : ""));
}

/* One storage tensor: name, shape, place and runs. Fields one by one: structs have holes. */
static void digest_storage(const void *layout, int64_t rank, int32_t number, uint64_t *hash) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  treadle_run *runs = NULL;
  size_t count = 0;
  if (!golden_library.storage(layout, rank, number, &info) ||
      !golden_library.runs(layout, rank, number, &runs, &count)) {
    hash_text(hash, "refused");
    return;
  }
  const int64_t numbers[] = {info.chunk,          info.derived,        info.ndim,
                             (int64_t)info.dtype, (int64_t)info.bytes, (int64_t)count};
  hash_text(hash, info.name);
  hash_bytes(hash, numbers, sizeof numbers);
  hash_bytes(hash, info.shape, (size_t)info.ndim * sizeof *info.shape);
  for (size_t i = 0; i < count; i++) {
    treadle_tensor_info tensor = {0};
    if (runs[i].tensor >= 0) golden_library.tensor(layout, runs[i].tensor, &tensor);
    const int64_t run[] = {runs[i].local_start, runs[i].start, runs[i].stride, runs[i].count, runs[i].add};
    hash_text(hash, tensor.name);
    hash_bytes(hash, run, sizeof run);
  }
  free(runs);
}

static void *open_layout(json_t *config, const char *text, int64_t ranks) {
  void *layout = golden_library.open(config, text, ranks);
  uint64_t hash = 0;
  const char *at = strstr(text, "map=@"); /* a file of another name each time */
  hash_bytes(&hash, text, at ? (size_t)(at - text) : strlen(text));
  for (int64_t rank = 0; layout && rank < ranks; rank++)
    for (int32_t i = 0; i < golden_library.storage_count(layout, rank); i++)
      digest_storage(layout, rank, i, &hash);
  if (verbose)
    printf("%016" PRIx64 " %s, %" PRId64 " ranks, %s%s%s\n", hash, text, ranks,
           json_string_value(json_object_get(config, "model_type")), layout ? "" : ": ",
           layout ? "" : treadle_error_message());
  hash_bytes(&sum, &hash, sizeof hash);
  return layout;
}

static void digest_random(void) {
  int families = 0, types = 0;
  while (draw_families[families]) families++;
  while (strcmp(draw_kinds[types], "placements") != 0) types++;
  for (uint64_t seed = 0; seed < LAYOUTS; seed++) {
    treadle_random random = {seed * 104729 + 7};
    char config[DRAW_CONFIG], text[DRAW_TEXT], why[256];
    draw_config(&random, (int)treadle_random_below(&random, families), MOST_ELEMS, config);
    int64_t ranks = treadle_random_between(&random, 1, 16);
    json_t *json = json_loads(config, 0, NULL);
    oracle_model *oracle = oracle_model_new(json, why);
    int type;
    do type = (int)treadle_random_below(&random, types);
    while (!draw_fits(oracle, draw_kinds[type]));
    draw_layout(&random, oracle, draw_kinds[type], ranks, text);
    void *layout = open_layout(json, text, ranks);
    if (layout) golden_library.close(layout);
    oracle_model_free(oracle);
    json_decref(json);
  }
}

int main(int argc, char **argv) {
  golden_subject subject = golden_library;
  FILE *nowhere = fopen("/dev/null", "w");
  int first = 1, status = 0;
  subject.open = open_layout;
  if (argc > 1 && strcmp(argv[1], "-v") == 0) verbose = true, first++;
  for (int i = first; i < argc; i++) {
    golden_counts counts;
    const char *slash = strrchr(argv[i], '/');
    sum = 0;
    status |= !golden_check_file(argv[i], &subject, nowhere, &counts);
    printf("%016" PRIx64 " %s\n", sum, slash ? slash + 1 : argv[i]);
  }
  sum = 0;
  digest_random();
  printf("%016" PRIx64 " %d random layouts\n", sum, LAYOUTS);
  fclose(nowhere);
  return status;
}
