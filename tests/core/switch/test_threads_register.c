/* The caller's own memory in place of windows: training state that lies partly there for ten cycles of all modes; memory
 * that is refused; memory that is freed too early. ctest: stage=gcc label=threads timeout=900 */
#include "switch/scene.h"
#include "test.h"
#include "group/ranks.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Two buffers of optimizer state: whoever has one may have several. Freed ones are smaller than what malloc asks the system
 * for, so that nobody else gets their place. */
enum { GRADS = 40000, OPTIMIZER = 60016, MORE = 6160, SCRIBBLE = 0x5a };

typedef struct act {
  scene s;
  treadle_layout *infer;
  treadle_switch_options options;
  treadle_class freed;
  bool in_infer;
} act;

static void act_init(act *a, bool alias) {
  memset(a, 0, sizeof *a);
  scene_init(&a->s);
  a->infer = alias ? a->s.alike : a->s.infer;
  a->options = (treadle_switch_options){.struct_size = sizeof(treadle_switch_options),
                                        .page_bytes = SCENE_PAGE,
                                        .timeout_seconds = 60,
                                        .alias = alias};
}

/* ---- Buffers ---- */

typedef struct buffer {
  treadle_class which;
  size_t offset, bytes; /* offset: in the window of params */
  uint8_t *memory;
  uint8_t *wanted; /* what it should hold */
} buffer;

enum { BUFFERS = 5 }; /* a stretch of params, one tensor, gradients, optimizer state twice */

/* Far from where memory is taken by itself, so that nobody takes what is freed early. */
static _Atomic(uintptr_t) place = (uintptr_t)0x7e9000000000;

static bool buffer_init(buffer *b, treadle_class which, size_t offset, size_t bytes) {
  void *hint = (void *)atomic_fetch_add(&place, (uintptr_t)1 << 20);
  *b = (buffer){.which = which, .offset = offset, .bytes = bytes, .wanted = calloc(bytes, 1)};
  b->memory = mmap(hint, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return b->wanted && b->memory != MAP_FAILED;
}

/* Registers them; params lie in them as the layout says, all else by a hash. */
static int register_all(treadle_switch *sw, buffer *buffers) {
  treadle_storage_info first = TREADLE_INIT(treadle_storage_info),
                       last = TREADLE_INIT(treadle_storage_info), one = TREADLE_INIT(treadle_storage_info);
  const treadle_layout *layout = sw->layouts[TREADLE_TRAIN];
  int rank = sw->group->rank;
  RANK_OK(treadle_layout_storage(layout, rank, 1, &first));
  RANK_OK(treadle_layout_storage(layout, rank, 6, &last));
  RANK_OK(treadle_layout_storage(layout, rank, 9, &one));
  RANK_TRUE(buffer_init(&buffers[0], TREADLE_PARAMS, first.offset_bytes,
                        last.offset_bytes + last.bytes - first.offset_bytes));
  RANK_TRUE(buffer_init(&buffers[1], TREADLE_PARAMS, one.offset_bytes, one.bytes));
  RANK_TRUE(buffer_init(&buffers[2], TREADLE_GRADS, 0, GRADS));
  RANK_TRUE(buffer_init(&buffers[3], TREADLE_OPTIMIZER, 0, OPTIMIZER));
  RANK_TRUE(buffer_init(&buffers[4], TREADLE_OPTIMIZER, 0, MORE));
  uint8_t *window = treadle_switch_train_window(sw);
  size_t sum = 0;
  for (int i = 0; i < BUFFERS; i++) {
    buffer *b = &buffers[i];
    for (size_t k = 0; k < b->bytes; k++)
      b->wanted[k] = b->which == TREADLE_PARAMS ? window[b->offset + k] : (uint8_t)((size_t)rank + k * 37);
    memcpy(b->memory, b->wanted, b->bytes);
    if (b->which == TREADLE_PARAMS) memset(window + b->offset, SCRIBBLE, b->bytes); /* nobody's now */
    RANK_OK(treadle_switch_register(sw, b->which, b->offset, b->memory, b->bytes));
    sum += b->bytes;
  }
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  treadle_switch_get_stats(sw, &stats);
  RANK_TRUE(stats.foreign_bytes == sum); /* nothing of it can be reclaimed */
  return 0;
}

static void free_all(buffer *buffers) {
  for (int i = 0; i < BUFFERS; i++) {
    munmap(buffers[i].memory, buffers[i].bytes);
    free(buffers[i].wanted);
  }
}

/* Do all hold what they should? */
static bool all_hold(const buffer *buffers) {
  bool same = true;
  for (int i = 0; i < BUFFERS; i++) {
    bool holds = memcmp(buffers[i].memory, buffers[i].wanted, buffers[i].bytes) == 0;
    if (!holds) fprintf(stderr, "buffer %d does not hold what it should\n", i);
    same = same && holds;
  }
  return same;
}

/* While the switch keeps a class elsewhere, its memory may be anything. Params that stay are the caller's in mode INFER. */
static void scribble(const treadle_switch *sw, buffer *buffers, bool infer) {
  for (int i = 0; i < BUFFERS; i++) {
    treadle_class which = buffers[i].which;
    bool away = sw->terms.leaves[which] ? sw->terms.copied[which] : !infer;
    if (which == TREADLE_PARAMS) away = sw->terms.leaves[which] || !infer;
    if (away) memset(buffers[i].memory, SCRIBBLE, buffers[i].bytes);
  }
}

/* ---- Ten cycles ---- */

/* A step that copies of a value take alike, and that leaves padding zero. */
static void step(uint8_t *bytes, size_t count, uint32_t number) {
  for (size_t i = 0; i < count; i++) bytes[i] = (uint8_t)(bytes[i] * (2 * number + 3));
}

/* The window of params with what lies in buffers, against `wanted`. */
static bool params_hold(const treadle_switch *sw, const buffer *buffers, const uint8_t *wanted) {
  const uint8_t *window = treadle_switch_train_window(sw);
  int rank = sw->group->rank;
  for (int32_t i = 0; i < treadle_layout_storage_count(sw->layouts[TREADLE_TRAIN], rank); i++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    bool foreign = false;
    if (treadle_layout_storage(sw->layouts[TREADLE_TRAIN], rank, i, &info)) return false;
    for (int k = 0; k < 2; k++)
      if (info.offset_bytes >= buffers[k].offset &&
          info.offset_bytes < buffers[k].offset + buffers[k].bytes) {
        const uint8_t *there = buffers[k].memory + (info.offset_bytes - buffers[k].offset);
        foreign = true;
        if (memcmp(there, wanted + info.offset_bytes, info.bytes) != 0) return false;
      }
    if (!foreign && info.bytes &&
        memcmp(window + info.offset_bytes, wanted + info.offset_bytes, info.bytes) != 0)
      return false;
  }
  return true;
}

static int train(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats), second = stats;
  buffer buffers[BUFFERS];
  uint64_t digest, before, after;
  size_t bytes = treadle_layout_window_bytes(a->s.train, group->rank);
  uint8_t *params = calloc(bytes + 1, 1);
  RANK_OK(treadle_switch_create(group, a->s.train, a->infer, &a->options, &sw));
  sw->device = *treadle_device_plain();
  uint8_t *window = treadle_switch_train_window(sw);
  RANK_OK(treadle_layout_load(a->s.train, group->rank, window));
  RANK_OK(treadle_switch_digest(sw, &digest));
  memcpy(params, window, bytes);
  if (register_all(sw, buffers)) return 1;
  RANK_OK(treadle_switch_digest(sw, &before)); /* of what the caller has, not of what the window had */
  RANK_TRUE(before == digest);
  for (uint32_t cycle = 0; cycle < 10; cycle++) {
    for (int i = 0; i < BUFFERS; i++) {
      step(buffers[i].wanted, buffers[i].bytes, cycle);
      step(buffers[i].memory, buffers[i].bytes, cycle);
    }
    step(params, bytes, cycle);
    step(window, bytes, cycle);
    RANK_OK(treadle_switch_digest(sw, &before));
    if (a->options.host && cycle % 2) {
      RANK_OK(treadle_switch_to_host(sw));
      scribble(sw, buffers, false);
      if (cycle % 4 == 3) RANK_OK(treadle_switch_to_train(sw));
      RANK_TRUE(cycle % 4 != 3 || all_hold(buffers));
    }
    RANK_OK(treadle_switch_to_infer(sw));
    treadle_switch_get_stats(sw, &stats);
    RANK_TRUE(cycle % 2 || stats.offloaded_bytes >= buffers[0].bytes + buffers[1].bytes);
    scribble(sw, buffers, true);
    RANK_OK(treadle_switch_digest(sw, &after));
    RANK_TRUE(after == before);
    if (cycle % 3 != 2) {
      RANK_OK(treadle_switch_to_forward(sw));
      RANK_TRUE(params_hold(sw, buffers, params)); /* there already, for reading */
      if (a->options.host && cycle == 4) RANK_OK(treadle_switch_to_host(sw));
    }
    RANK_OK(treadle_switch_to_train(sw));
    RANK_TRUE(all_hold(buffers));
    RANK_TRUE(params_hold(sw, buffers, params));
    treadle_switch_get_stats(sw, &stats);
    if (cycle == 1) second = stats;
  }
  RANK_TRUE(stats.pool_bytes == second.pool_bytes && stats.host_bytes == second.host_bytes);
  RANK_TRUE(stats.peak_bytes == second.peak_bytes && stats.foreign_bytes == second.foreign_bytes);
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  free_all(buffers);
  free(params);
  return 0;
}

static void try_cycles(bool alias) {
  act a;
  act_init(&a, alias);
  for (int combination = 0; combination < 8; combination++)
    for (int how = 0; how < 8; how++) {
      treadle_switch_options *o = &a.options;
      if (alias && combination > 1 && combination < 7) continue; /* only params are shared */
      if ((!(combination & 1) && (how & 1)) || (!(combination & 2) && (how & 2))) continue; /* refused */
      o->offload_train_param = combination & 1 ? TREADLE_ON : TREADLE_OFF;
      o->offload_train_grad = combination & 2 ? TREADLE_ON : TREADLE_OFF;
      o->offload_train_optimizer = combination & 4 ? TREADLE_ON : TREADLE_OFF;
      o->keep = how & 1 ? TREADLE_KEEP_HOST : TREADLE_KEEP_INFER;
      o->keep_grads = how & 2;
      o->host = how & 4;
      o->guard_pages = combination == 5;
      ranks_as_threads(SCENE_RANKS, 60, 0, train, &a);
    }
  scene_release(&a.s);
}

static void test_ten_cycles(void **state) {
  (void)state;
  try_cycles(false);
}

static void test_ten_cycles_alias(void **state) {
  (void)state;
  try_cycles(true);
}

/* ---- Refusals ---- */

static int refuse(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  treadle_storage_info one = TREADLE_INIT(treadle_storage_info), next = TREADLE_INIT(treadle_storage_info);
  enum { ROOM = 1 << 20, PAGE = 4096 };
  RANK_OK(treadle_switch_create(group, a->s.train, a->infer, &a->options, &sw));
  sw->device = *treadle_device_plain();
  RANK_OK(treadle_layout_load(a->s.train, group->rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_layout_storage(a->s.train, group->rank, 1, &one));
  RANK_OK(treadle_layout_storage(a->s.train, group->rank, 2, &next));
  size_t window_bytes, bytes = one.bytes, offset = one.offset_bytes;
  char *window = treadle_switch_window(sw, TREADLE_PARAMS, &window_bytes);
  char *room = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  RANK_TRUE(room != MAP_FAILED && bytes >= 64 && bytes < ROOM / 4);
  memcpy(room, window + offset, bytes);

  RANK_FAILS(TREADLE_REFUSED, "class 4", treadle_switch_register(sw, TREADLE_KV, 0, room, GRADS));
  RANK_FAILS(TREADLE_REFUSED, "class 3", treadle_switch_register(sw, TREADLE_INFER_PARAMS, 0, room, GRADS));
  RANK_FAILS(TREADLE_REFUSED, "not a range of memory",
             treadle_switch_register(sw, TREADLE_GRADS, 0, NULL, GRADS));
  RANK_FAILS(TREADLE_REFUSED, "not a range of memory",
             treadle_switch_register(sw, TREADLE_GRADS, 0, room, 0));
  RANK_FAILS(TREADLE_REFUSED, "not a range of memory",
             treadle_switch_register(sw, TREADLE_GRADS, 0, room, SIZE_MAX - 5));
  RANK_FAILS(TREADLE_REFUSED, "aligned", treadle_switch_register(sw, TREADLE_GRADS, 0, room + 8, GRADS));
  RANK_FAILS(TREADLE_REFUSED, "no window", treadle_switch_register(sw, TREADLE_GRADS, 64, room, GRADS));
  RANK_FAILS(TREADLE_REFUSED, "in a window of the pool",
             treadle_switch_register(sw, TREADLE_PARAMS, offset, window + offset, bytes));
  RANK_FAILS(TREADLE_REFUSED, "in a window of the pool",
             treadle_switch_register(sw, TREADLE_GRADS, 0, treadle_switch_infer_window(sw), 64));
  RANK_FAILS(TREADLE_REFUSED, "lie in the pool",
             treadle_switch_register(sw, TREADLE_GRADS, 0, treadle_pool_base(sw->space.pool), 64));

  RANK_FAILS(TREADLE_REFUSED, "only a part of", /* too small */
             treadle_switch_register(sw, TREADLE_PARAMS, offset, room, bytes - 16));
  RANK_FAILS(TREADLE_REFUSED, one.name,
             treadle_switch_register(sw, TREADLE_PARAMS, offset, room, bytes - 16));
  RANK_FAILS(TREADLE_REFUSED, "only a part of",
             treadle_switch_register(sw, TREADLE_PARAMS, offset + 16, room, bytes - 16));
  RANK_FAILS(TREADLE_REFUSED, next.name,
             treadle_switch_register(sw, TREADLE_PARAMS, offset, room, next.offset_bytes + 16 - offset));
  RANK_FAILS(
      TREADLE_REFUSED, "of a window of parameters of",
      treadle_switch_register(sw, TREADLE_PARAMS, offset, room + ROOM / 2, window_bytes - offset + 16));
  RANK_FAILS(TREADLE_REFUSED, "of a window of parameters of",
             treadle_switch_register(sw, TREADLE_PARAMS, SIZE_MAX - 15, room, 64));

  munmap(room + 8 * PAGE, PAGE); /* one page of it is not there */
  RANK_FAILS(TREADLE_REFUSED, "not all of that memory is there",
             treadle_switch_register(sw, TREADLE_GRADS, 0, room, 9 * PAGE));
  RANK_FAILS(TREADLE_REFUSED, "not all of that memory is there",
             treadle_switch_register(sw, TREADLE_GRADS, 0, room + 7 * PAGE, PAGE + 1));
  RANK_TRUE(mprotect(room + 2 * PAGE, PAGE, PROT_READ) == 0); /* one may not be written */
  RANK_FAILS(TREADLE_REFUSED, "that memory may not be written",
             treadle_switch_register(sw, TREADLE_GRADS, 0, room, 8 * PAGE));
  RANK_FAILS(TREADLE_REFUSED, "that memory may not be written",
             treadle_switch_register(sw, TREADLE_OPTIMIZER, 0, room + PAGE, PAGE + 1));
  RANK_TRUE(mprotect(room + 2 * PAGE, PAGE, PROT_NONE) == 0); /* nor read */
  RANK_FAILS(TREADLE_REFUSED, "that memory may not be",
             treadle_switch_register(sw, TREADLE_GRADS, 0, room, 8 * PAGE));
  RANK_TRUE(mprotect(room + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
  treadle_switch_get_stats(sw, &stats);
  RANK_TRUE(stats.foreign_bytes == 0 && sw->foreign.count == 0);

  RANK_OK(treadle_helm_take(sw->helm, "another thread"));
  RANK_FAILS(TREADLE_STATE, "a switch is running",
             treadle_switch_register(sw, TREADLE_GRADS, 0, room, 8 * PAGE));
  treadle_helm_leave(sw->helm);
  char *params = room + ROOM / 2, *grads = room + 9 * PAGE;
  memcpy(params, window + offset, bytes);
  RANK_OK(treadle_switch_register(sw, TREADLE_PARAMS, offset, params, bytes));
  RANK_OK(treadle_switch_register(sw, TREADLE_GRADS, 0, grads, PAGE));
  RANK_FAILS(TREADLE_REFUSED, "the parameters overlap", /* a second home */
             treadle_switch_register(sw, TREADLE_PARAMS, offset, room + ROOM / 4, bytes));
  RANK_FAILS(TREADLE_REFUSED, "overlap gradients of 4096 bytes",
             treadle_switch_register(sw, TREADLE_OPTIMIZER, 0, grads + PAGE - 16, PAGE));
  RANK_FAILS(TREADLE_REFUSED, "overlap parameters of",
             treadle_switch_register(sw, TREADLE_GRADS, 0, params - 16, 32));
  RANK_OK(treadle_switch_register(sw, TREADLE_OPTIMIZER, 0, grads + PAGE, PAGE)); /* next to it */
  treadle_switch_get_stats(sw, &stats);
  RANK_TRUE(stats.foreign_bytes == bytes + 2 * PAGE);

  /* Addresses cost nothing, their host copy would: more than any machine has, and before its first page. */
  enum { HUGE_SHIFT = 44 };
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  char *huge = mmap(NULL, (size_t)1 << HUGE_SHIFT, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (huge != MAP_FAILED) {
    RANK_FAILS(TREADLE_NO_MEMORY, "register: the host copy takes 16.00 TiB of memory, and ",
               treadle_switch_register(sw, TREADLE_OPTIMIZER, 0, huge, (size_t)1 << HUGE_SHIFT));
    munmap(huge, (size_t)1 << HUGE_SHIFT);
  }

  RANK_OK(treadle_switch_to_infer(sw));
  RANK_FAILS(TREADLE_STATE, "in mode infer",
             treadle_switch_register(sw, TREADLE_OPTIMIZER, 0, grads + 2 * PAGE, PAGE));
  RANK_TRUE(scene_infers(sw));
  RANK_OK(treadle_switch_to_train(sw));
  RANK_TRUE(memcmp(params, window + offset, bytes) == 0);
  RANK_TRUE(scene_holds(a->s.train, group->rank, window));
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  munmap(room, ROOM);
  return 0;
}

static void test_refusals(void **state) {
  act a;
  (void)state;
  for (int alias = 0; alias < 2; alias++) {
    act_init(&a, alias);
    a.options.offload_train_optimizer = TREADLE_ON;
    ranks_as_threads(SCENE_RANKS, 60, 0, refuse, &a);
    scene_release(&a.s);
  }
}

/* ---- Freed early ---- */

static buffer *buffer_of(buffer *buffers, treadle_class which) {
  int i = 0;
  while (buffers[i].which != which) i++;
  return &buffers[i];
}

/* It is there again, with what the caller puts in it. */
static bool put_back(buffer *b) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  if (mmap(b->memory, b->bytes, PROT_READ | PROT_WRITE, flags, -1, 0) != b->memory) return false;
  memcpy(b->memory, b->wanted, b->bytes);
  return true;
}

static int free_early(treadle_group *group, void *context) {
  act *a = context;
  treadle_switch *sw;
  buffer buffers[BUFFERS];
  uint64_t digest, again;
  enum { GUILTY = 2 };
  bool guilty = group->rank == GUILTY;
  const char *words = "that memory is not there any more";
  RANK_OK(treadle_switch_create(group, a->s.train, a->infer, &a->options, &sw));
  sw->device = *treadle_device_plain();
  RANK_OK(treadle_layout_load(a->s.train, group->rank, treadle_switch_train_window(sw)));
  RANK_OK(treadle_switch_digest(sw, &digest));
  if (register_all(sw, buffers)) return 1;
  buffer *freed = buffer_of(buffers, a->freed);
  if (a->in_infer) RANK_OK(treadle_switch_to_infer(sw));
  RANK_OK(treadle_group_barrier(group)); /* all have theirs: nobody maps memory at that place */
  if (guilty) munmap(freed->memory, freed->bytes);

  treadle_mode old = treadle_switch_mode(sw);
  for (int i = 0; i < 3; i++) { /* to where it came from, and to a mode between */
    treadle_status status = !a->in_infer ? treadle_switch_to_infer(sw)
                            : i == 1     ? treadle_switch_to_forward(sw)
                                         : treadle_switch_to_train(sw);
    RANK_TRUE(status == (guilty ? TREADLE_STATE : TREADLE_PEER));
    const char *message = treadle_error_message();
    if (!strstr(message, words)) fprintf(stderr, "%s\n", message);
    RANK_TRUE(strstr(message, "rank 2: registered ") && strstr(message, words));
    RANK_TRUE(strstr(message, "stand as they were"));
    RANK_TRUE(treadle_switch_mode(sw) == old);
    RANK_TRUE(treadle_switch_version(sw) == (a->in_infer ? 1u : 0u));
  }
  if (a->in_infer) RANK_TRUE(scene_infers(sw));
  if (!guilty) RANK_TRUE(all_hold(buffers));
  if (guilty && !a->in_infer) RANK_FAILS(TREADLE_STATE, words, treadle_caller_memory_check(sw));
  if (guilty && !a->in_infer && a->options.host)
    RANK_FAILS(TREADLE_STATE, words, treadle_switch_to_host(sw));
  RANK_TRUE(treadle_switch_mode(sw) == old);
  treadle_status status = treadle_switch_digest(sw, &again);
  RANK_TRUE(a->in_infer ? status == TREADLE_OK && again == digest
                        : status == (guilty ? TREADLE_STATE : TREADLE_PEER) || status == TREADLE_STATE);

  if (guilty) RANK_TRUE(put_back(freed));
  RANK_OK(treadle_group_barrier(group));
  if (!a->in_infer) RANK_OK(treadle_switch_to_infer(sw));
  RANK_TRUE(scene_infers(sw));
  RANK_OK(treadle_switch_to_train(sw));
  RANK_TRUE(all_hold(buffers));
  RANK_OK(treadle_switch_digest(sw, &again));
  RANK_TRUE(again == digest);
  RANK_OK(treadle_group_barrier(group));
  treadle_switch_destroy(sw);
  free_all(buffers);
  return 0;
}

static void test_freed_early(void **state) {
  act a;
  (void)state;
  for (int how = 0; how < 24; how++) {
    act_init(&a, how & 1);
    a.freed = (treadle_class)(how / 8);
    a.in_infer = how & 2;
    a.options.host = how & 4;
    a.options.offload_train_grad = a.options.offload_train_optimizer = TREADLE_ON;
    a.options.keep = how & 4 ? TREADLE_KEEP_HOST : TREADLE_KEEP_INFER;
    a.options.keep_grads = true;
    ranks_as_threads(SCENE_RANKS, 60, 0, free_early, &a);
    scene_release(&a.s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ten_cycles),
                                     cmocka_unit_test(test_ten_cycles_alias),
                                     cmocka_unit_test(test_refusals), cmocka_unit_test(test_freed_early)};
  const struct CMUnitTest over_nodes[] = {cmocka_unit_test(test_ten_cycles),
                                          cmocka_unit_test(test_freed_early)};
  return cmocka_run_group_tests(tests, NULL, NULL) + RANKS_OVER_NODES(over_nodes);
}
