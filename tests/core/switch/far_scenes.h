/* Switches on a device that the processor cannot touch, and that does its work late and in changing order: random pairs of layouts, aliases, own
 * tensors, updates, offload, files, failures of the device; and messages between nodes, by a net that takes host memory alone: pairs, fp8 blocks,
 * own tensors with relays, deltas. The device is that of the kind TREADLE_MEMORY_CUDA which the program has registered, or the library's own. */
#ifndef TREADLE_TESTS_FAR_SCENES_H
#define TREADLE_TESTS_FAR_SCENES_H

#include "switch/switch.h"

typedef struct far_device {
  bool is_one;           /* all ranks have number 0; else each has one of its own */
  bool guards, two;      /* guard_pages, and two versions (double_infer), are not refused */
  const char *fails[12]; /* the calls that can fail, up to NULL */
  const char *words;     /* of the message of a failure, on its rank; NULL: the name of the call */
  const char
      *renewing; /* the call that `renew` makes, too: what fails there is forgotten; NULL: there is none */
  bool fails_anywhere; /* planted for whichever rank comes first; else for rank 1 */
  /* The n-th such call from now on fails, from 1; 0: none does. calls: how many there were. */
  void (*fail_at)(treadle_switch *sw, const char *call, int64_t n);
  int64_t (*calls)(const treadle_switch *sw, const char *call);
  /* Memory for own tensors, and bytes in and out of it; NULL: it is the host's. */
  void *(*take)(size_t bytes);
  void (*give_back)(void *memory);
  void (*move)(void *to, const void *from, size_t bytes);
} far_device;

/* The tests, as cmocka counts them: on one node, and over several. only_seed: of random pairs; 0: all. */
int far_scenes(const far_device *device, uint64_t only_seed);

#endif
