/* Elements, run by run of those whose canonical indices follow each other. */
#include "memory/elements.h"

#include "memory/value.h"

#include <string.h>

/* ---- The walk ---- */

void treadle_elements_each(const treadle_elements *e, treadle_elements_visit visit, void *context) {
  int64_t index = e->index, offset = e->at;
  for (int a = 0; a < e->ndim; a++)
    if (e->size[a] <= 0) return;
  /* The run: the last axis, and those in front of it that continue it in the tensor and in memory. */
  int outer = e->ndim - 1;
  int64_t count = e->size[outer], step = e->stride[outer];
  for (; outer > 0 && e->weight[outer - 1] == count &&
         (e->stride[outer - 1] == count * step || e->size[outer - 1] == 1);
       outer--)
    count *= e->size[outer - 1];

  int64_t at[TREADLE_MAX_AXES] = {0};
  for (;;) {
    visit(context, index, offset, step, count);
    int a = outer - 1;
    for (; a >= 0; a--) {
      index += e->weight[a];
      offset += e->stride[a];
      if (++at[a] < e->size[a]) break;
      index -= at[a] * e->weight[a];
      offset -= at[a] * e->stride[a];
      at[a] = 0;
    }
    if (a < 0) break;
  }
}

/* ---- Generated values ---- */

typedef struct generator {
  char *window;
  uint64_t tensor;
  treadle_dtype dtype;
  int8_t add;
  bool near_one;
} generator;

static uint16_t value_at(const generator *g, int64_t index) {
  return g->near_one ? treadle_value_near_one(g->tensor, index) : treadle_value_bf16(g->tensor, index);
}

static void put(const generator *g, char *at, uint16_t bf16) {
  treadle_dtype dtype = g->dtype;
  if (dtype == TREADLE_INT32) { /* a number of an expert, which are 8 or more */
    const int32_t number = bf16 & 7;
    memcpy(at, &number, sizeof number);
    return;
  }
  if (g->add) {
    float value;
    uint32_t wide = (uint32_t)bf16 << 16;
    memcpy(&value, &wide, sizeof value);
    value += (float)g->add;
    treadle_dtype_convert(at, dtype, &value, TREADLE_FP32, 1);
    return;
  }
  if (dtype == TREADLE_FP32) {
    uint32_t bits = (uint32_t)bf16 << 16;
    memcpy(at, &bits, sizeof bits);
    return;
  }
  if (dtype == TREADLE_FP8_E4M3) { /* rounded: 3 bits of fraction */
    uint8_t fp8 = treadle_fp8_of_float(treadle_bf16_to_float(bf16));
    memcpy(at, &fp8, sizeof fp8);
    return;
  }
  if (dtype ==
      TREADLE_FP16) /* 5 bits of exponent with a bias of 15 instead of 127, 10 of fraction instead of 7 */
    bf16 = (uint16_t)((bf16 & 0x8000) | ((bf16 >> 7 & 0xff) - 112) << 10 | (bf16 & 0x7f) << 3);
  memcpy(at, &bf16, sizeof bf16);
}

/* Runs of bf16 without gaps, which are nearly all, go four at a time. */
static void generate_run(void *context, int64_t index, int64_t at, int64_t step, int64_t count) {
  const generator *g = context;
  char *to = g->window + at;
  int64_t i = 0;
  bool by_four = g->dtype == TREADLE_BF16 && step == 2 && !g->add && !g->near_one;
  for (; i < count && (!by_four || (index + i) % 4 != 0); i++)
    put(g, to + i * step, value_at(g, index + i));
  for (; i + 4 <= count; i += 4) {
    uint64_t lanes = treadle_value_lanes(g->tensor, (index + i) >> 2);
    memcpy(to + i * 2, &lanes, sizeof lanes);
  }
  for (; i < count; i++) put(g, to + i * step, value_at(g, index + i));
}

void treadle_elements_generate(const treadle_elements *elements, void *window) {
  generator g = {window, elements->tensor, elements->dtype, elements->add, elements->near_one};
  treadle_elements_each(elements, generate_run, &g);
}

/* ---- Hashes ---- */

typedef struct adder {
  const char *window;
  uint64_t tensor;
  treadle_dtype dtype;
  int8_t add; /* what is stored is the value plus this */
  uint64_t sum;
} adder;

static uint32_t bits_of_half(treadle_dtype dtype, const char *at) {
  uint16_t half;
  memcpy(&half, at, sizeof half);
  if (dtype == TREADLE_BF16) return (uint32_t)half << 16;
  float value = treadle_fp16_to_float(half);
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static uint32_t bits_of_fp8(const char *at) {
  float value = treadle_fp8_to_float((uint8_t)*at);
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline uint32_t bits_at(treadle_dtype dtype, const char *at) {
  if (dtype == TREADLE_FP8_E4M3) return bits_of_fp8(at);
  if (dtype != TREADLE_FP32 && dtype != TREADLE_INT32) return bits_of_half(dtype, at);
  uint32_t bits;
  memcpy(&bits, at, sizeof bits);
  return bits;
}

static inline uint64_t add_elems(const adder *a, const char *from, int64_t step, int64_t index,
                                 int64_t count, treadle_dtype dtype) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; i++)
    sum += treadle_value_hash(a->tensor, index + i, bits_at(dtype, from + i * step));
  return sum;
}

/* Values are hashed as the tensor has them. */
static void add_shifted(adder *a, const char *from, int64_t step, int64_t index, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    uint32_t bits = bits_at(a->dtype, from + i * step);
    float value;
    memcpy(&value, &bits, sizeof value);
    value -= (float)a->add;
    memcpy(&bits, &value, sizeof bits);
    a->sum += treadle_value_hash(a->tensor, index + i, bits);
  }
}

/* The same loop with type and step fixed for the compiler where it matters. */
static void add_run(void *context, int64_t index, int64_t at, int64_t step, int64_t count) {
  adder *a = context;
  const char *from = a->window + at;
  if (a->add) {
    add_shifted(a, from, step, index, count);
    return;
  }
  if (a->dtype == TREADLE_BF16 && step == 2)
    a->sum += add_elems(a, from, 2, index, count, TREADLE_BF16);
  else if (a->dtype == TREADLE_FP32 && step == 4)
    a->sum += add_elems(a, from, 4, index, count, TREADLE_FP32);
  else
    a->sum += add_elems(a, from, step, index, count, a->dtype);
}

uint64_t treadle_elements_hash(const treadle_elements *elements, const void *window) {
  adder a = {window, elements->tensor, elements->dtype, elements->add, 0};
  treadle_elements_each(elements, add_run, &a);
  return a.sum;
}
