/* What the benches share: a model from the text of its config, medians, options, the device that --device names. */
#ifndef TREADLE_BENCH_BENCH_H
#define TREADLE_BENCH_BENCH_H

#include "base/status.h"
#include "cli/device_choice.h"
#include "memory/device.h"
#include "treadle_testing.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Opens a model from the text of a config.json, by way of a file that is gone afterwards. scale_down: to at most this many million parameters, as
 * the command does it; 0: not at all. */
static inline treadle_status bench_open_model(const char *config, int64_t scale_down,
                                              treadle_model **model_p) {
  treadle_status status = TREADLE_OK;
  const treadle_model_options options = {.struct_size = sizeof options, .scale_down = scale_down * 1000000};
  char path[] = "/tmp/treadle-bench-XXXXXX.json";
  int file = mkstemps(path, (int)strlen(".json"));
  if (file < 0) return treadle_fail(TREADLE_SYSTEM, "%s: %s", path, strerror(errno));
  if (write(file, config, strlen(config)) != (ssize_t)strlen(config))
    TRY(treadle_fail(TREADLE_SYSTEM, "%s: %s", path, strerror(errno)));
  TRY(treadle_model_open(path, &options, model_p));
out:
  unlink(path);
  close(file);
  return status;
}

/* With the shapes of Llama-3.2-1B, and this many layers. */
static inline treadle_status bench_open_llama(int64_t layers, int64_t scale_down, treadle_model **model_p) {
  char config[512];
  snprintf(config, sizeof config,
           "{\"model_type\": \"llama\", \"vocab_size\": 128256, \"hidden_size\": 2048, "
           "\"intermediate_size\": 8192, \"num_hidden_layers\": %" PRId64 ", \"num_attention_heads\": 32, "
           "\"num_key_value_heads\": 8, \"head_dim\": 64, \"tie_word_embeddings\": true, "
           "\"torch_dtype\": \"bfloat16\"}",
           layers);
  return bench_open_model(config, scale_down, model_p);
}

static inline int bench_ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The median of `count` values, which are sorted on the way. */
static inline double bench_median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, bench_ascending);
  return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

/* The value of an option "--name VALUE" or "--name=VALUE" at texts[*at], NULL when it is another one; *at
 * moves to the last word used. */
static inline const char *bench_option(char **texts, int *at, const char *name) {
  size_t length = strlen(name);
  if (strncmp(texts[*at], name, length) != 0) return NULL;
  if (texts[*at][length] == '=') return texts[*at] + length + 1;
  if (texts[*at][length] || !texts[*at + 1]) return NULL;
  return texts[++*at];
}

/* ---- Where windows lie: --device, as the command has it ---- */

/* A bench of what the processor does: --device of another memory is refused. what: "bench_rows measures ..." */
static inline treadle_status bench_need_host(const char *device, const char *what) {
  bool cuda;
  const treadle_status status = treadle_device_is_cuda(device, &cuda);
  return status || !cuda ? status : treadle_fail(TREADLE_REFUSED, "--device %s: %s", device, what);
}

/* The device itself, for what a bench does there beside its switch. */
static inline treadle_status bench_open_device(const char *text, treadle_group *group,
                                               treadle_device *device_p) {
  treadle_memory memory;
  const treadle_status status = treadle_device_choose(text, group, &memory);
  return status ? status : treadle_device_open(&memory, device_p);
}

static inline treadle_memory bench_memory_of(const treadle_device *device) {
  return (treadle_memory){.kind = device->kind, .device = device->number};
}

/* Bytes from anywhere to anywhere, done at the next fence: what a switch is compared with. On the host it is memcpy. */
static inline void bench_move(const treadle_device *device, void *to, const void *from, size_t bytes) {
  device->ops->plain->move(device, to, from, bytes);
}

/* Where a window of a switch first differs from these bytes; SIZE_MAX: nowhere. */
static inline treadle_status bench_compare(treadle_switch *sw, treadle_class which, const void *expected,
                                           size_t bytes, size_t *at_p) {
  enum { PART = 4 << 20 };
  treadle_status status = TREADLE_OK;
  const char *wanted = expected;
  char *found = malloc(PART);
  *at_p = SIZE_MAX;
  if (!found) return treadle_fail(TREADLE_NO_MEMORY, "memory is out");
  for (size_t at = 0, part; at < bytes && *at_p == SIZE_MAX; at += part) {
    part = bytes - at < PART ? bytes - at : PART;
    TRY(treadle_switch_read(sw, which, at, part, found));
    for (size_t i = 0; memcmp(found, wanted + at, part) != 0 && *at_p == SIZE_MAX; i++)
      if (found[i] != wanted[at + i]) *at_p = at + i;
  }
out:
  free(found);
  return status;
}

#endif
