/* Runs a fuzz target without libFuzzer: every file of a corpus folder, then seeded mutations of them.
 *
 *   fuzz_yaml CORPUS [MUTATIONS [SEED]]
 *
 * Each mutation is made from its own number, so that a failure is found again by seed and number; both are
 * printed when the program dies. */
#include "base/random.h"
#include "seeds.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

enum { MOST_INPUTS = 256, MOST_BYTES = 1 << 16 };

typedef struct input {
  char name[256];
  uint8_t *bytes;
  size_t count;
} input;

static input inputs[MOST_INPUTS];
static int input_count;
static char running[400]; /* what runs now, for died() */

/* Numbers, brackets and words that readers of JSON, YAML and safetensors stumble over. */
static const char *const splices[] = {"0",
                                      "-1",
                                      "9223372036854775807",
                                      "9223372036854775808",
                                      "1e999",
                                      "1.0",
                                      "[",
                                      "]",
                                      "{",
                                      "}",
                                      "\"",
                                      "null",
                                      "true",
                                      ":",
                                      ",",
                                      "\n",
                                      "  ",
                                      "&a",
                                      "*a",
                                      "!!str",
                                      "---\n",
                                      "- ",
                                      "\\u0000",
                                      "\xff",
                                      "\xc3\xa9",
                                      "[0,0]",
                                      "??",
                                      "{l}",
                                      "\0\0\0\0\0\0\0\x80",
                                      "\377\377\377\377\377\377\377\377"};

static void died(int number) {
  ssize_t written = write(STDERR_FILENO, running, strlen(running));
  (void)written;
  signal(number, SIG_DFL);
  raise(number);
}

static int compare_inputs(const void *a, const void *b) {
  return strcmp(((const input *)a)->name, ((const input *)b)->name);
}

static void read_corpus(const char *folder) {
  DIR *dir = opendir(folder);
  if (!dir) return;
  for (struct dirent *entry; (entry = readdir(dir)) && input_count < MOST_INPUTS;) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "rb");
    if (!file) continue;
    input *one = &inputs[input_count++];
    snprintf(one->name, sizeof one->name, "%s", entry->d_name);
    one->bytes = malloc(MOST_BYTES);
    one->count = one->bytes ? fread(one->bytes, 1, MOST_BYTES, file) : 0;
    fclose(file);
  }
  closedir(dir);
  qsort(inputs, (size_t)input_count, sizeof *inputs, compare_inputs); /* the same order on every machine */
}

/* Runs a copy in a block of its exact size, so that the sanitizer sees a read beyond it. */
static void run(const uint8_t *bytes, size_t count) {
  uint8_t *exact = malloc(count + !count);
  if (!exact) abort();
  memcpy(exact, bytes, count);
  LLVMFuzzerTestOneInput(exact, count);
  free(exact);
}

/* Replaces `drop` bytes at `at` by others. */
static size_t replace(uint8_t *bytes, size_t count, size_t at, size_t drop, const uint8_t *with,
                      size_t more) {
  if (count - drop + more > MOST_BYTES) return count;
  memmove(bytes + at + more, bytes + at + drop, count - at - drop);
  memcpy(bytes + at, with, more);
  return count - drop + more;
}

static size_t mutate(uint8_t *bytes, size_t count, treadle_random *random) {
  size_t at = (size_t)treadle_random_below(random, (int64_t)count + 1);
  size_t left = count - at, some = (size_t)treadle_random_below(random, left < 16 ? (int64_t)left + 1 : 16);
  switch (treadle_random_below(random, 6)) {
  case 0: /* flip a bit */
    if (left) bytes[at] ^= (uint8_t)(1 << treadle_random_below(random, 8));
    return count;
  case 1: /* drop some */ return replace(bytes, count, at, some, bytes, 0);
  case 2: /* say some twice */ {
    uint8_t copy[16];
    memcpy(copy, bytes + at, some);
    return replace(bytes, count, at, 0, copy, some);
  }
  case 3: /* cut off */ return at;
  case 4: /* a stumbling block in place of some */ {
    size_t which = (size_t)treadle_random_below(random, (int64_t)(sizeof splices / sizeof *splices));
    size_t length = splices[which][0] ? strlen(splices[which]) : 8;
    return replace(bytes, count, at, some, (const uint8_t *)splices[which], length);
  }
  default: /* a part of another input */ {
    const input *other = &inputs[treadle_random_below(random, input_count)];
    size_t from = (size_t)treadle_random_below(random, (int64_t)other->count + 1);
    size_t length = (size_t)treadle_random_below(random, (int64_t)(other->count - from) + 1);
    return replace(bytes, count, at, some, other->bytes + from, length < 200 ? length : 200);
  }
  }
}

int main(int argc, char **argv) {
  static uint8_t bytes[MOST_BYTES];
  long mutations = argc > 2 ? atol(argv[2]) : (long)test_seeds(1000), seed = argc > 3 ? atol(argv[3]) : 1;
  static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) signal(signals[i], died);
  if (argc > 1) read_corpus(argv[1]);
  if (input_count == 0) {
    fprintf(stderr, "no inputs in %s\n", argc > 1 ? argv[1] : "(no folder given)");
    return 1;
  }
  printf("%d inputs, %ld mutations, seed %ld\n", input_count, mutations, seed);
  for (int i = 0; i < input_count; i++) {
    snprintf(running, sizeof running, "died on %.255s\n", inputs[i].name);
    alarm(20);
    run(inputs[i].bytes, inputs[i].count);
  }
  for (long i = 0; i < mutations; i++) {
    treadle_random random = {treadle_hash_more((uint64_t)seed, (uint64_t)i)};
    const input *from = &inputs[treadle_random_below(&random, input_count)];
    size_t count = from->count;
    memcpy(bytes, from->bytes, count);
    for (int64_t times = treadle_random_between(&random, 1, 4); times > 0; times--)
      count = mutate(bytes, count, &random);
    snprintf(running, sizeof running, "died on mutation %ld of seed %ld, made from %s\n", i, seed,
             from->name);
    alarm(20);
    run(bytes, count);
  }
  for (int i = 0; i < input_count; i++) free(inputs[i].bytes);
  return 0;
}
