/* Switches between processes on a device that the processor cannot touch: each rank imports the pools of the others, and views their windows. A
 * device that does not export or import: the switch is not made, and nothing is left open. The device is that of the kind TREADLE_MEMORY_CUDA. */
#ifndef TREADLE_TESTS_FAR_PROCESSES_H
#define TREADLE_TESTS_FAR_PROCESSES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct far_processes_device {
  bool is_one, two;    /* as in far_scenes.h */
  void (*start)(void); /* in a rank: what the first device of a process opens for good; NULL */
  /* In a rank: its n-th descriptor from now on fails; 0: none does. */
  void (*fail_export)(int64_t n);
  void (*fail_import)(int64_t n);
  const char *no_export, *no_import; /* what is said of it then */
} far_processes_device;

/* The tests, as cmocka counts them. */
int far_processes(const far_processes_device *device);

#endif
