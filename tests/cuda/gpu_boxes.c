/* Random boxes on the device, against the plain twin: bit by bit, bytes outside of the box too, and what the
 * kernels say that they have written. Many ops run in one launch, each into a room of its own; of the others each
 * is asked for alone. Sources and destinations lie on the device or in pinned memory; what is asked for alone may
 * come from any host memory. A failure names its seed: gpu_check boxes --boxes 1 --seed S. */
#include "cuda/gpu.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "cuda/random_boxes.h"
#include "memory/copy.h"
#include "memory/device.h"
#include "memory/host.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = 64, UNTOUCHED = 0xee };
enum { DEVICE, PINNED, HOST, PLACES }; /* of the source */

typedef struct box_case {
  uint64_t seed;
  bool alone; /* by copy, not by run */
  int place;
  bool to_pinned;
  random_side from, to;
  treadle_op op;
} box_case;

typedef struct scene {
  gpu *g;
  treadle_device device;
  char *source[PLACES]; /* RANDOM_ROOM_BYTES each, of equal bytes */
  char *rooms, *pinned; /* [BATCH] of the device, and of the host */
  char *seen;           /* [BATCH] what came back */
  char *wanted;
  box_case *cases; /* [BATCH] */
  int64_t alone, wrong;
  double seconds;
} scene;

static char *room_of(char *rooms, int i) { return rooms + (size_t)i * RANDOM_ROOM_BYTES; }

/* A sixteenth of the words are NaNs of fp32, of any payload; as two values of bf16 or fp16 they are NaNs now and
 * then. */
static void fill_source(char *source) {
  treadle_random random = {1};
  for (size_t i = 0; i + 4 <= RANDOM_ROOM_BYTES; i += 4) {
    uint32_t word = (uint32_t)treadle_random_next(&random);
    if (treadle_random_below(&random, 16) == 0) word |= 0x7f800000;
    memcpy(source + i, &word, sizeof word);
  }
}

/* Numbers of experts are never converted, and the host's fast casts cannot. */
static bool converts_int32(const treadle_op *op) {
  return (op->from_dtype == TREADLE_INT32 || op->to_dtype == TREADLE_INT32) &&
         (op->from_dtype != op->to_dtype || op->add != 0);
}

static void draw(scene *s, box_case *c, int i, uint64_t seed) {
  treadle_random random = {seed};
  c->seed = seed;
  c->alone = treadle_random_below(&random, 4) == 0;
  c->place = (int)treadle_random_below(&random, c->alone ? PLACES : PLACES - 1);
  c->to_pinned = treadle_random_below(&random, 4) == 0;
  do {
    random_side_draw(&c->from, &random, s->source[c->place]);
    random_side_draw(&c->to, &random, room_of(c->to_pinned ? s->pinned : s->rooms, i));
    c->op = random_op_draw(&random, &c->from, &c->to);
  } while (c->place == HOST && c->op.source >= 0 && converts_int32(&c->op));
}

static const treadle_paged *source_of(const box_case *c) {
  return c->op.source < 0 ? NULL : &c->from.paged;
}

static void check(scene *s, const box_case *c, int i, const treadle_written *written) {
  char *room = room_of(c->to_pinned ? s->pinned : s->rooms, i);
  const char *seen = room_of(c->to_pinned ? s->pinned : s->seen, i);
  treadle_paged from = c->from.paged, wanted = c->to.paged;
  from.base = s->source[HOST] + (c->from.base - s->source[c->place]);
  wanted.base = wanted.into = s->wanted + (c->to.base - room);
  memset(s->wanted, UNTOUCHED, RANDOM_ROOM_BYTES);
  treadle_copy_op(&c->op, source_of(c) ? &from : NULL, &wanted, TREADLE_MOVER_PLAIN);
  const bool same = memcmp(s->wanted, seen, RANDOM_ROOM_BYTES) == 0;
  const bool counted =
      c->alone ||
      (written->bytes == c->op.elems * (int64_t)treadle_dtype_bytes((treadle_dtype)c->op.to_dtype) &&
       written->mark == treadle_op_mark(&c->op) && written->times == 1);
  s->alone += c->alone;
  if (same && counted) return;
  s->wrong++;
  gpu_fault(s->g, "seed %llu: %s of %d axes, %lld elements, types %d to %d, %+d, %s, source %d: %s",
            (unsigned long long)c->seed, c->op.source < 0 ? "fill" : "copy", c->op.ndim,
            (long long)c->op.elems, c->op.from_dtype, c->op.to_dtype, c->op.add,
            c->alone ? "alone" : "among others", c->place,
            same ? "the bits are right, the counts are not" : "the bits differ");
}

static treadle_status run_batch(scene *s, uint64_t seed, int count) {
  treadle_status status = TREADLE_OK;
  const treadle_device_ops *ops = s->device.ops;
  treadle_op many[BATCH];
  treadle_paged from[BATCH], to[BATCH];
  treadle_written written[BATCH] = {0};
  treadle_work *work = NULL;
  ops->fill(&s->device, s->rooms, UNTOUCHED, BATCH * (size_t)RANDOM_ROOM_BYTES);
  TRY(ops->fence(&s->device));
  memset(s->pinned, UNTOUCHED, BATCH * (size_t)RANDOM_ROOM_BYTES);
  for (int i = 0; i < count; i++) {
    box_case *c = &s->cases[i];
    draw(s, c, i, seed + (uint64_t)i);
    many[i] = c->op;
    from[i] = c->op.source < 0 ? (treadle_paged){0} : c->from.paged;
    to[i] = c->alone ? (treadle_paged){0} : c->to.paged; /* without a base it is never run */
  }
  TRY(ops->prepare(&s->device, many, from, to, (size_t)count, &work));
  const double begun = treadle_clock_seconds();
  ops->run(&s->device, work, 0, (size_t)count, written);
  for (int i = 0; i < count; i++)
    if (s->cases[i].alone)
      ops->copy(&s->device, &s->cases[i].op, source_of(&s->cases[i]), &s->cases[i].to.paged, 1);
  TRY(ops->fence(&s->device));
  s->seconds += treadle_clock_seconds() - begun;
  ops->move(&s->device, s->seen, s->rooms, BATCH * (size_t)RANDOM_ROOM_BYTES);
  TRY(ops->fence(&s->device));
  for (int i = 0; i < count; i++) check(s, &s->cases[i], i, &written[i]);
out:
  ops->work_release(work);
  return status;
}

static treadle_status prepare(scene *s) {
  treadle_status status = TREADLE_OK;
  const treadle_device_ops *ops = s->device.ops;
  const size_t room = RANDOM_ROOM_BYTES, many = BATCH * room;
  s->source[HOST] = treadle_alloc(room);
  s->source[PINNED] = treadle_host_create(room, "a pinned source");
  s->source[DEVICE] = ops->scratch(&s->device, room);
  s->rooms = ops->scratch(&s->device, many);
  s->pinned = treadle_host_create(many, "pinned rooms");
  s->seen = treadle_alloc(many);
  s->wanted = treadle_alloc(room);
  s->cases = treadle_alloc_array(BATCH, sizeof *s->cases);
  if (!s->source[HOST] || !s->source[PINNED] || !s->source[DEVICE] || !s->rooms || !s->pinned || !s->seen ||
      !s->wanted || !s->cases)
    return treadle_fail(TREADLE_NO_MEMORY, "memory is out");
  TRY(ops->pin(&s->device, s->source[PINNED], room));
  TRY(ops->pin(&s->device, s->pinned, many));
  fill_source(s->source[HOST]);
  memcpy(s->source[PINNED], s->source[HOST], room);
  ops->move(&s->device, s->source[DEVICE], s->source[HOST], room);
  TRY(ops->fence(&s->device));
out:
  return status;
}

static void release(scene *s) {
  const treadle_device_ops *ops = s->device.ops;
  ops->unpin(&s->device, s->source[PINNED]);
  ops->unpin(&s->device, s->pinned);
  ops->scratch_release(&s->device, s->source[DEVICE]);
  ops->scratch_release(&s->device, s->rooms);
  treadle_host_destroy(s->source[PINNED], RANDOM_ROOM_BYTES);
  treadle_host_destroy(s->pinned, BATCH * (size_t)RANDOM_ROOM_BYTES);
  char *all[] = {s->source[HOST], s->seen, s->wanted};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) treadle_free(all[i]);
  treadle_free(s->cases);
  treadle_device_close(&s->device);
}

/* ---- Blocks of fp8: codes, scales, and the way back ---- */

enum { BLOCKS = 200, SIDE = 128, BLOCK_VALUES = SIDE * SIDE };

typedef struct block_room {
  float values[BLOCK_VALUES], back[BLOCK_VALUES];
  uint8_t codes[BLOCK_VALUES];
  float scale;
} block_room;

static void draw_block(treadle_random *random, block_room *room) {
  const uint32_t exponent = (uint32_t)treadle_random_below(random, 255) << 23;
  memset(room, 0, sizeof *room);
  for (int i = 0; i < BLOCK_VALUES; i++) {
    const uint32_t bits = (uint32_t)treadle_random_next(random), value = (bits & 0x807fffff) | exponent;
    memcpy(&room->values[i], &value, sizeof value);
  }
  const uint32_t special =
      0x7f800000 | (uint32_t)treadle_random_below(random, 2) * 0x2345; /* infinity or NaN */
  if (treadle_random_below(random, 4) == 0)
    memcpy(&room->values[treadle_random_below(random, BLOCK_VALUES)], &special, sizeof special);
}

static treadle_matrix matrix_of(void *memory, size_t each) {
  return (treadle_matrix){memory, memory, (int64_t)(SIDE * each), (int64_t)each};
}

static void make_blocks(const treadle_device *device, block_room *room, int64_t rows, int64_t columns) {
  const treadle_matrix values = matrix_of(room->values, sizeof(float)), codes = matrix_of(room->codes, 1);
  treadle_strip strip = {.values = values,
                         .codes = codes,
                         .scales = matrix_of(&room->scale, sizeof(float)),
                         .rows = rows,
                         .columns = columns,
                         .width = (int32_t)columns,
                         .dtype = TREADLE_FP32};
  device->ops->blocks(device, &strip, 1);
  strip.values = matrix_of(room->back, sizeof(float));
  strip.back = true;
  device->ops->blocks(device, &strip, 1);
}

static treadle_status compare_blocks(scene *s) {
  static block_room given, wanted, seen;
  treadle_status status = TREADLE_OK;
  treadle_random random = {s->g->seed};
  const treadle_device_ops *ops = s->device.ops;
  const int count = s->g->is_stand_in ? BLOCKS / 10 : BLOCKS;
  block_room *there = (block_room *)(void *)s->rooms;
  _Static_assert(sizeof given <= BATCH * (size_t)RANDOM_ROOM_BYTES, "a block fits the rooms");
  for (int i = 0; i < count; i++) {
    const int64_t rows = i % 3 ? SIDE : treadle_random_between(&random, 1, SIDE),
                  columns = i % 3 ? SIDE : treadle_random_between(&random, 1, SIDE);
    draw_block(&random, &given);
    wanted = given;
    make_blocks(treadle_device_plain(), &wanted, rows, columns);
    ops->move(&s->device, there, &given, sizeof given);
    make_blocks(&s->device, there, rows, columns);
    ops->move(&s->device, &seen, there, sizeof seen);
    TRY(ops->fence(&s->device));
    if (memcmp(&seen, &wanted, sizeof seen) == 0) continue;
    s->wrong++;
    gpu_fault(s->g, "fp8 block %d of %lld rows and %lld columns: the bits differ", i, (long long)rows,
              (long long)columns);
  }
  treadle_json_out_int(&s->g->out, "blocks", count);
out:
  return status;
}

/* ---- Values that are generated, and hashes ---- */

enum { TABLE = 1000 };

static treadle_status compare_values(scene *s) {
  static char wanted[TABLE * 8], seen[TABLE * 8];
  static const treadle_dtype types[] = {TREADLE_FP32, TREADLE_BF16, TREADLE_FP16, TREADLE_FP8_E4M3};
  treadle_status status = TREADLE_OK;
  const treadle_device *plain = treadle_device_plain();
  const treadle_device_ops *ops = s->device.ops;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    const int64_t each = (int64_t)treadle_dtype_bytes(types[i]);
    const treadle_elements elements = {.tensor = 7 + i,
                                       .dtype = types[i],
                                       .near_one = i % 2,
                                       .ndim = 2,
                                       .index = 11,
                                       .size = {TABLE / 8, 8},
                                       .stride = {8 * each, each},
                                       .weight = {9, 1}};
    const void *here = wanted, *there = s->rooms;
    uint64_t sums[2];
    memset(wanted, 0, sizeof wanted);
    ops->fill(&s->device, s->rooms, 0, sizeof seen);
    plain->ops->generate(plain, &elements, wanted);
    ops->generate(&s->device, &elements, s->rooms);
    ops->move(&s->device, seen, s->rooms, sizeof seen);
    TRY(plain->ops->hash(plain, &elements, &here, 1, &sums[0]));
    TRY(ops->hash(&s->device, &elements, &there, 1, &sums[1]));
    TRY(ops->fence(&s->device));
    if (memcmp(seen, wanted, sizeof seen) == 0 && sums[0] == sums[1]) continue;
    s->wrong++;
    gpu_fault(s->g, "generated values of type %d: %s", (int)types[i],
              sums[0] == sums[1] ? "the bits differ" : "the hashes differ");
  }
out:
  return status;
}

treadle_status gpu_boxes(gpu *g) {
  treadle_status status;
  scene s = {.g = g};
  const treadle_memory memory = {.kind = TREADLE_MEMORY_CUDA, .device = g->number};
  TRY(treadle_device_open(&memory, &s.device));
  status = prepare(&s);
  for (int64_t done = 0; status == TREADLE_OK && done < g->boxes; done += BATCH)
    status =
        run_batch(&s, g->seed + (uint64_t)done, (int)(g->boxes - done < BATCH ? g->boxes - done : BATCH));
  if (status == TREADLE_OK) status = compare_blocks(&s);
  if (status == TREADLE_OK) status = compare_values(&s);
  treadle_json_out_int(&g->out, "boxes", g->boxes);
  treadle_json_out_int(&g->out, "boxes_alone", s.alone);
  treadle_json_out_int(&g->out, "wrong", s.wrong);
  treadle_json_out_real(&g->out, "seconds_of_copies", s.seconds);
  gpu_say(g, "%lld boxes, fp8 blocks, values and hashes have the twin's bits", (long long)g->boxes);
  release(&s);
out:
  return status;
}
