/* Tables and rotation. */
#include "nn/rope.h"

#include "base/alloc.h"

static int64_t width_of(const treadle_rope *rope) {
  return rope->interleaved ? 2 * rope->pairs : rope->pairs;
}

static void fill_position(treadle_rope *rope, int64_t position) {
  float *cosine = rope->cosine + position * width_of(rope), *sine = rope->sine + position * width_of(rope);
  for (int64_t i = 0; i < rope->pairs; i++) {
    float angle = (float)position * rope->inverse[i];
    double wide_sine, wide_cosine;
    treadle_sine((double)angle, &wide_sine, &wide_cosine);
    float c = (float)wide_cosine * rope->attention_factor, s = (float)wide_sine * rope->attention_factor;
    if (rope->interleaved) {
      cosine[2 * i] = cosine[2 * i + 1] = c;
      sine[2 * i] = -s;
      sine[2 * i + 1] = s;
    } else {
      cosine[i] = c;
      sine[i] = s;
    }
  }
}

int64_t treadle_rope_bytes(const treadle_rope *rope, int64_t positions) {
  return 2 * positions * width_of(rope) * (int64_t)sizeof(float);
}

treadle_status treadle_rope_extend(treadle_rope *rope, int64_t positions) {
  if (positions <= rope->positions) return TREADLE_OK;
  if (positions > TREADLE_ROPE_MAX_POSITIONS)
    REFUSE("%lld positions: rope has at most %lld", (long long)positions,
           (long long)TREADLE_ROPE_MAX_POSITIONS);
  size_t bytes = (size_t)treadle_rope_bytes(rope, positions) / 2;
  float *cosine = treadle_realloc(rope->cosine, bytes);
  if (cosine) rope->cosine = cosine;
  float *sine = cosine ? treadle_realloc(rope->sine, bytes) : NULL;
  if (!sine)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for rope of %lld positions", (long long)positions);
  rope->sine = sine;
  for (int64_t position = rope->positions; position < positions; position++) fill_position(rope, position);
  rope->positions = positions;
  return TREADLE_OK;
}

void treadle_rope_apply(const treadle_rope *rope, const treadle_row_ops *ops, float *heads, int64_t stride,
                        int64_t count, int64_t position) {
  const float *cosine = rope->cosine + position * width_of(rope),
              *sine = rope->sine + position * width_of(rope);
  for (int64_t i = 0; i < count; i++, heads += stride)
    (rope->interleaved ? ops->rotate_neighbours : ops->rotate_halves)(heads, cosine, sine, rope->pairs);
}

void treadle_rope_undo(const treadle_rope *rope, const treadle_row_ops *ops, float *heads, int64_t stride,
                       int64_t count, int64_t position) {
  const float *cosine = rope->cosine + position * width_of(rope),
              *sine = rope->sine + position * width_of(rope);
  float opposite[TREADLE_ROPE_WIDTH_MOST];
  for (int64_t i = 0; i < width_of(rope); i++) opposite[i] = -sine[i];
  for (int64_t i = 0; i < count; i++, heads += stride)
    (rope->interleaved ? ops->rotate_neighbours : ops->rotate_halves)(heads, cosine, opposite, rope->pairs);
}

void treadle_rope_release(treadle_rope *rope) {
  if (!rope) return;
  treadle_free(rope->inverse);
  treadle_free(rope->cosine);
  treadle_free(rope->sine);
  *rope = (treadle_rope){0};
}
