/* The task of verl's end-to-end test: go on with a sequence of numbers modulo 9. A prompt "a,b:9,n" has the first two numbers and says
 * how many follow; its answer is these, with commas between, each the last plus (b - a), modulo 9.
 *
 * The 900 prompts are shuffled by the seed alone; the first 720 are to train with. Rows for supervised training are of these, drawn at
 * random, and each number of their answers is with probability `noise` a random digit: what is learned is right more often than wrong,
 * and there is something left for RL. */
#include "treadle_loop.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/random.h"
#include "base/sized.h"
#include "base/text.h"
#include "io/file.h"
#include "io/file_look.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

enum { MODULUS = 9, DIGITS = 10, PROMPTS = DIGITS * MODULUS * DIGITS, TRAIN = 720, ROWS = 40000 };

typedef struct problem {
  int a, b, n;
} problem;

static problem problem_of(int number) {
  problem p = {.a = number / (MODULUS * DIGITS), .n = number % DIGITS};
  p.b = (p.a + number / DIGITS % MODULUS) % MODULUS;
  return p;
}

static void shuffle(int order[PROMPTS], uint64_t seed) {
  treadle_random random = {treadle_mix64(seed + 1)};
  for (int i = 0; i < PROMPTS; i++) order[i] = i;
  for (int i = PROMPTS; i-- > 1;) {
    int other = (int)treadle_random_below(&random, i + 1), kept = order[i];
    order[i] = order[other];
    order[other] = kept;
  }
}

/* random: NULL: without noise. */
static void add_answer(treadle_builder *text, problem p, treadle_random *random, double noise) {
  int step = (p.b - p.a + DIGITS * MODULUS) % MODULUS, last = p.b;
  for (int i = 0; i < p.n; i++) {
    last = (last + step) % MODULUS;
    int said = last;
    if (random && (double)(treadle_random_next(random) >> 11) / 9007199254740992.0 < noise)
      said = (int)treadle_random_below(random, DIGITS);
    treadle_builder_add(text, "%s%d", i ? "," : "", said);
  }
}

static void add_problem(treadle_builder *text, problem p) {
  treadle_builder_add(text, "{\"prompt\": \"%d,%d:%d,%d\", ", p.a, p.b, MODULUS, p.n);
}

static void add_questions(treadle_builder *text, const int *order, int count) {
  for (int i = 0; i < count; i++) {
    add_problem(text, problem_of(order[i]));
    treadle_builder_add(text, "\"answer\": \"");
    add_answer(text, problem_of(order[i]), NULL, 0);
    treadle_builder_add(text, "\", \"data_source\": \"sequence\"}\n");
  }
}

static void add_rows(treadle_builder *text, const int *order, double noise, uint64_t seed) {
  treadle_random random = {treadle_mix64(seed + 2)};
  for (int i = 0; i < ROWS; i++) {
    problem p = problem_of(order[treadle_random_below(&random, TRAIN)]);
    add_problem(text, p);
    treadle_builder_add(text, "\"response\": \"");
    add_answer(text, p, &random, noise);
    treadle_builder_add(text, "\"}\n");
  }
}

/* Are these bytes there already? Others are left as they are: rows of another seed, or somebody's own. */
static treadle_status find_same(const char *path, const treadle_builder *text, bool *same_p) {
  treadle_file_type type;
  struct stat about;
  char *there = NULL;
  size_t bytes = 0;
  treadle_status status;
  *same_p = false;
  TRY(treadle_file_look(path, &type));
  if (type != TREADLE_FILE_PLAIN) return TREADLE_OK; /* nothing, or what the writer refuses */
  if (stat(path, &about) == 0 && (size_t)about.st_size == text->length) {
    TRY(treadle_file_read(path, text->length, &there, &bytes));
    *same_p = bytes == text->length && memcmp(there, text->text, bytes) == 0;
  }
  if (!*same_p)
    status = treadle_fail(TREADLE_REFUSED,
                          "%s: is there, with other content than this seed and noise give; choose another "
                          "folder, or remove it",
                          path);
out:
  treadle_free(there);
  return status;
}

static treadle_status path_of(const char *folder, const char *name, char path[PATH_MAX]) {
  if (snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "%s: too long for a path", folder);
}

static treadle_status write_file(const char *folder, const char *name, const treadle_builder *text) {
  char path[PATH_MAX];
  if (text->failed) return treadle_fail(TREADLE_NO_MEMORY, "%s/%s: no memory for it", folder, name);
  bool same;
  treadle_status status = path_of(folder, name, path);
  if (!status) status = find_same(path, text, &same);
  return status || same ? status : treadle_file_write(path, text->text, text->length);
}

/* Nothing but plain files has the names of what will be written. */
static treadle_status check_places(const char *folder) {
  static const char *const names[] = {"train.jsonl", "test.jsonl", "sft.jsonl"};
  char path[PATH_MAX];
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    TRY(path_of(folder, names[i], path));
    TRY(treadle_file_check_plain(path));
  }
out:
  return status;
}

static treadle_status write_all(const char *folder, const treadle_sequence_options *o) {
  treadle_builder train = {0}, test = {0}, sft = {0};
  int order[PROMPTS];
  treadle_status status;
  shuffle(order, o->seed);
  add_questions(&train, order, TRAIN);
  add_questions(&test, order + TRAIN, PROMPTS - TRAIN);
  add_rows(&sft, order, o->noise, o->seed);
  TRY(write_file(folder, "train.jsonl", &train));
  TRY(write_file(folder, "test.jsonl", &test));
  TRY(write_file(folder, "sft.jsonl", &sft));
out:
  treadle_builder_release(&train);
  treadle_builder_release(&test);
  treadle_builder_release(&sft);
  return status;
}

treadle_status treadle_data_sequence(const char *folder, const treadle_sequence_options *options,
                                     treadle_sequence_figures *figures_p) {
  treadle_sequence_figures figures = TREADLE_INIT(treadle_sequence_figures);
  treadle_sequence_options o;
  treadle_status status;
  TREADLE_NEED(folder);
  TREADLE_NEED_SIZED(figures_p);
  TRY(TREADLE_TAKE(options, &o));
  if (!(o.noise >= 0 && o.noise <= 1)) REFUSE("noise %g: 0 to 1", o.noise);
  TRY(treadle_file_check_folder(folder));
  if (mkdir(folder, 0777) != 0 && errno != EEXIST)
    return treadle_fail(TREADLE_SYSTEM, "%s cannot be made: %s", folder, strerror(errno));
  TRY(check_places(folder));
  TRY(write_all(folder, &o));
  figures.train = TRAIN;
  figures.test = PROMPTS - TRAIN;
  figures.sft = ROWS;
  TREADLE_GIVE(figures_p, &figures);
out:
  return status;
}
