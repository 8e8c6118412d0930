/* gpu_check: what a CUDA device must do for treadle, tried on the device itself. tools/gpu-check runs it, a stage a
 * process:
 *
 *   gpu_check driver    what the driver promises, and refuses         gpu_driver.c
 *   gpu_check boxes     the kernels against the plain twins           gpu_boxes.c
 *   gpu_check rates     copies beside those of the driver             gpu_rates.c
 *   gpu_check pages     what calls for pages take                     gpu_pages.c
 *
 * A stage prints one JSON object on one line, and ends with status 0, 1 if it failed, 2 if there is no device. */
#ifndef TREADLE_TESTS_GPU_H
#define TREADLE_TESTS_GPU_H

#include "base/status.h"
#include "cli/json_out.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gpu {
  int number;
  bool is_stand_in; /* of the driver: numbers are small, and rates mean nothing */
  size_t left_bytes, page_bytes;
  int64_t boxes;
  uint64_t seed;
  treadle_json_out out; /* an open object */
  bool failed;          /* what was looked at is not as it must be: words say what */
  char words[200];      /* a line about the stage */
} gpu;

void gpu_say(gpu *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The first failure's words stay. */
void gpu_fault(gpu *g, const char *format, ...) __attribute__((format(printf, 2, 3)));

treadle_status gpu_driver(gpu *g);
treadle_status gpu_boxes(gpu *g);
treadle_status gpu_rates(gpu *g);
treadle_status gpu_pages(gpu *g);

#endif
