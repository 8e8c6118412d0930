/* Handles of a window on a device that the processor cannot touch, whose pool has more descriptors than a message can: readers in this process and
 * in others, who read by the functions of the device. Versions, holds, a reader without such a device, descriptors that fail. The device is that of
 * the kind TREADLE_MEMORY_CUDA. */
#ifndef TREADLE_TESTS_FAR_HANDLES_H
#define TREADLE_TESTS_FAR_HANDLES_H

#include <stdint.h>

typedef struct far_handles_device {
  const char *name;
  int number;
  void (*start)(void); /* what the first device of a process opens for good; NULL */
  /* Before and after a reader is started that has no such device. */
  void (*hide)(void);
  void (*show)(void);
  /* The n-th descriptor from now on fails; 0: none does. */
  void (*fail_export)(int64_t n);
  void (*fail_import)(int64_t n);
  int64_t late_import; /* one that is imported late: a device may leave out pages that the window has not */
  const char *no_export, *no_import; /* what is said of it then */
} far_handles_device;

/* The tests, as cmocka counts them. It starts processes by fork, before it uses the device. */
int far_handles(const far_handles_device *device);

#endif
