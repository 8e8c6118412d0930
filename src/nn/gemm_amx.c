/* AMX with bf16: tiles of 16 rows of weights and 16 rows of x.
 *
 * Order of additions, of one element of y and one leaf: the leaf is cut into steps of 32 elements; where 32 does not divide it, the
 * last step is the last 32 elements of the leaf, of which those that an earlier step had count as 0. The sum begins with +0. In each
 * step the even elements are added in ascending order, beginning with +0, by fused multiply-add, and the odd ones in the same way;
 * the two sums are added, and that is added to the sum. Every number that is read or made there and is subnormal becomes 0 (Intel's
 * manual, TDPBF16PS). Leaves, and only they as usual numbers: nn/leaf_tree.h. Leaves shorter than 32 are not taken.
 *
 * Weights are the first operand of the tile product, which wants them row by row as they lie. x is the second one, which wants pairs
 * of elements of 16 rows side by side: that is the packed form. So tiles are those of y turned, and are turned when they are
 * done. Two tiles of weights and two of x make four of y, each read being used twice. */
#include "nn/gemm_parts.h"

#if defined(__x86_64__)

#include "nn/gemm_turn.h"

#include <cpuid.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AMX_CODE __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw")))
#define AMX_PART AMX_CODE __attribute__((always_inline)) static inline

enum {
  STEP = 32,        /* elements of the inner dimension in a tile */
  SIDE = 16,        /* rows of a tile */
  LINE = 64,        /* bytes of a row of a full tile */
  PANEL = 2 * SIDE, /* rows of weights at once */
  NEAR = 768 << 10, /* bytes of packed x that are to stay in the second-level cache */
};

/* ---- Can it run here? ---- */

static const char *ask(void) {
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw"))
    return "the processor has no AVX-512";
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & AMX_BF16) || !(d & AMX_TILE))
    return "the processor has no AMX with bf16";
  if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA))
    return "the system does not allow AMX";
  return NULL;
}

/* Asked once: a virtual machine leaves its processor to answer cpuid. */
static const char *lacks(void) {
  static const char *_Atomic known;
  const char *answer = atomic_load_explicit(&known, memory_order_relaxed);
  if (!answer) {
    answer = ask();
    if (!answer) answer = "";
    atomic_store_explicit(&known, answer, memory_order_relaxed);
  }
  return *answer ? answer : NULL;
}

static bool takes(treadle_dtype dtype, int32_t leaf) { return dtype == TREADLE_BF16 && leaf >= STEP; }

/* ---- Packed x ----
 *
 * Rows are taken in blocks of 16, or all in one where there are fewer. [block][leaf][step][16 pairs][row of the block][2]; rows of the
 * last block that x does not have are 0, and so are elements that an earlier step had. */

typedef struct form {
  int64_t width;  /* rows of a block, 1 to 16 */
  int64_t blocks; /* of rows */
  int64_t steps;  /* of a leaf */
  int64_t tile_bytes, leaf_bytes, block_bytes;
} form;

static form form_of(treadle_gemm_inner inner, int64_t rows) {
  form f = {.width = treadle_gemm_least(rows, SIDE), .steps = (inner.leaf + STEP - 1) / STEP};
  f.blocks = rows ? (rows + f.width - 1) / f.width : 0;
  f.tile_bytes = f.width * LINE;
  f.leaf_bytes = f.tile_bytes * f.steps;
  f.block_bytes = f.leaf_bytes * inner.range.leaves;
  return f;
}

/* Where a step begins in its leaf. */
static int64_t step_at(treadle_gemm_inner inner, int64_t step) {
  return treadle_gemm_least(step * STEP, inner.leaf - STEP);
}

static size_t packed_bytes(treadle_gemm_inner inner, int64_t rows) {
  form f = form_of(inner, rows);
  return (size_t)(f.block_bytes * f.blocks);
}

/* 32 elements as 16 pairs; the first `skipped` are 0. */
AMX_PART __m512i pairs_of(const float *x, int64_t skipped) {
  static const uint16_t upper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                     33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  uint32_t taken = UINT32_MAX << skipped;
  __m512i low = treadle_gemm_round(_mm512_maskz_loadu_ps((__mmask16)taken, x));
  __m512i high = treadle_gemm_round(_mm512_maskz_loadu_ps((__mmask16)(taken >> 16), x + 16));
  return _mm512_permutex2var_epi16(low, _mm512_loadu_si512(upper), high);
}

AMX_CODE static void pack_tile(char *to, const float *x, int64_t stride, int64_t rows, int64_t width,
                               int64_t skipped) {
  __m512i row[SIDE];
  if (width == 1) {
    _mm512_storeu_si512(to, pairs_of(x, skipped));
    return;
  }
#pragma GCC unroll 16
  for (int i = 0; i < SIDE; i++)
    row[i] = i < rows ? pairs_of(x + i * stride, skipped) : _mm512_setzero_si512();
  treadle_gemm_turn(row);
  __mmask16 written = (__mmask16)((1u << width) - 1);
#pragma GCC unroll 16
  for (int pair = 0; pair < SIDE; pair++)
    _mm512_mask_storeu_epi32(to + pair * width * (int64_t)sizeof(float), written, row[pair]);
}

/* Parts are cut between leaves of blocks. */
AMX_CODE static void pack(const treadle_gemm_source *source, void *packed, int32_t index, int32_t count) {
  form f = form_of(source->inner, source->rows);
  int64_t leaves = source->inner.range.leaves, unit;
  int64_t end = treadle_gemm_part(f.blocks * leaves, index, count, &unit);
  for (; unit < end; unit++) {
    int64_t row = unit / leaves * f.width, rows = treadle_gemm_least(source->rows - row, f.width);
    const float *x = source->x + row * source->stride + unit % leaves * source->inner.leaf;
    char *to = (char *)packed + unit * f.leaf_bytes;
    for (int64_t step = 0; step < f.steps; step++, to += f.tile_bytes) {
      int64_t at = step_at(source->inner, step);
      pack_tile(to, x + at, source->stride, rows, f.width, step * STEP - at);
    }
  }
}

/* ---- Tiles ----
 *
 * y: 0 and 1 of the first 16 rows of weights, 2 and 3 of the others; 4 and 5 weights; 6 and 7 x. */

typedef struct shape {
  uint8_t palette, start, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} shape;

/* Rows of the two tiles of weights, and of a block of x. */
AMX_CODE static void set_shape(int64_t first, int64_t second, int64_t width) {
  shape s = {.palette = 1};
  for (int tile = 0; tile < 8; tile++) {
    bool is_x = tile >= 6, is_second = tile == 2 || tile == 3 || tile == 5;
    int64_t rows = is_x ? SIDE : is_second ? second : first;
    s.rows[tile] = (uint8_t)(rows ? rows : 1);
    s.row_bytes[tile] = (uint16_t)(tile == 4 || tile == 5 ? LINE : width * (int64_t)sizeof(float));
  }
  _tile_loadconfig(&s);
}

/* ---- Sums ---- */

typedef struct sums {
  float of[4][SIDE][SIDE]; /* [tile of y][row of weights][row of x] */
} sums;

/* Sums that are done and go to y, tile by tile, while others are computed. */
typedef struct pending {
  sums *sums;
  float *y;
  int64_t rows, columns; /* of y, up to 32 each */
  int tile;              /* the next one, 4: none is left */
} pending;

typedef sums stack[TREADLE_LEAF_HEIGHT_MAX];

/* What one part of a product has to do: where it is. */
typedef struct job {
  const treadle_gemm_product *p;
  form f;
  treadle_gemm_panel panel;
  int64_t ahead,
      ahead_rows;      /* bytes to the rows of the next panel that are fetched in this turn; how many */
  int64_t block, rows; /* of x, the first of one or two blocks; rows in them */
  bool two_tiles, two_blocks; /* of weights; of x */
  int32_t leaf;               /* of the range */
  float *y;                   /* of the node, the first row and column */
  stack *stacks;              /* two, used by turns, since what is pending lies in the other one */
  int which;
  pending pending;
} job;

/* A tile of y, turned, to `rows` rows and `columns` columns. */
AMX_CODE static void write_tile(float *y, int64_t stride, float tile[SIDE][SIDE], int64_t rows,
                                int64_t columns) {
  __m512i row[SIDE];
  __mmask16 written = (__mmask16)((1u << columns) - 1);
#pragma GCC unroll 16
  for (int i = 0; i < SIDE; i++) row[i] = _mm512_load_si512(tile[i]);
  treadle_gemm_turn(row);
#pragma GCC unroll 16
  for (int i = 0; i < SIDE; i++)
    if (i < rows) _mm512_mask_storeu_epi32(y + i * stride, written, row[i]);
}

static void write_pending(pending *w, int64_t stride) {
  int64_t row = w->tile % 2 * SIDE, column = w->tile / 2 * SIDE;
  int64_t rows = treadle_gemm_least(w->rows - row, SIDE);
  int64_t columns = treadle_gemm_least(w->columns - column, SIDE);
  if (rows > 0 && columns > 0)
    write_tile(w->y + row * stride + column, stride, w->sums->of[w->tile], rows, columns);
  w->tile++;
}

static void write_all_pending(job *j) {
  while (j->pending.tile < 4) write_pending(&j->pending, j->p->stride);
}

AMX_CODE static void add_tile(float top[SIDE][SIDE], float sum[SIDE][SIDE]) {
  for (int row = 0; row < SIDE; row++)
    _mm512_store_ps(top[row], _mm512_add_ps(_mm512_load_ps(top[row]), _mm512_load_ps(sum[row])));
}

/* Tiles that are not in use are not added: they hold anything. */
AMX_CODE static void add_sums(sums *top, sums *sum, const job *j) {
  add_tile(top->of[0], sum->of[0]);
  if (j->two_blocks) add_tile(top->of[1], sum->of[1]);
  if (j->two_tiles) add_tile(top->of[2], sum->of[2]);
  if (j->two_tiles && j->two_blocks) add_tile(top->of[3], sum->of[3]);
}

/* ---- A leaf of a panel and one or two blocks of x ---- */

/* What is not arithmetic: a line of each of the rows to come, and sums that are done. */
AMX_PART void do_beside(job *j, int64_t step, const char *ahead) {
  for (int64_t row = 0; row < j->ahead_rows; row++)
    _mm_prefetch(ahead + row * j->panel.stride, _MM_HINT_T1);
  if (j->pending.tile < 4 && step * 4 >= j->pending.tile * j->f.steps)
    write_pending(&j->pending, j->p->stride);
}

AMX_PART void multiply(job *j, sums *to, bool two_tiles, bool two_blocks) {
  const char *x = (const char *)j->p->packed + j->block * j->f.block_bytes + j->leaf * j->f.leaf_bytes;
  const char *x2 = x + j->f.block_bytes;
  const char *w = j->panel.weights + (int64_t)j->leaf * j->p->inner.leaf * (int64_t)sizeof(uint16_t);
  const char *w2 = w + SIDE * j->panel.stride;
  const size_t w_row = (size_t)j->panel.stride, x_row = (size_t)j->f.width * sizeof(float);
  const int64_t last = ((int64_t)j->p->inner.leaf - STEP) * (int64_t)sizeof(uint16_t);
  _tile_zero(0);
  if (two_blocks) _tile_zero(1);
  if (two_tiles) _tile_zero(2);
  if (two_tiles && two_blocks) _tile_zero(3);
  for (int64_t step = 0; step < j->f.steps; step++) {
    int64_t at = treadle_gemm_least(step * LINE, last), x_at = step * j->f.tile_bytes;
    _tile_loadd(4, w + at, w_row);
    _tile_loadd(6, x + x_at, x_row);
    _tile_dpbf16ps(0, 4, 6);
    if (two_blocks) _tile_loadd(7, x2 + x_at, x_row);
    if (two_blocks) _tile_dpbf16ps(1, 4, 7);
    if (two_tiles) _tile_loadd(5, w2 + at, w_row);
    if (two_tiles) _tile_dpbf16ps(2, 5, 6);
    if (two_tiles && two_blocks) _tile_dpbf16ps(3, 5, 7);
    do_beside(j, step, w + j->ahead + at);
  }
  _tile_stored(0, to->of[0], LINE);
  if (two_blocks) _tile_stored(1, to->of[1], LINE);
  if (two_tiles) _tile_stored(2, to->of[2], LINE);
  if (two_tiles && two_blocks) _tile_stored(3, to->of[3], LINE);
}

AMX_CODE static void multiply_leaf(job *j, sums *to) {
  if (j->two_tiles && j->two_blocks)
    multiply(j, to, true, true);
  else if (j->two_tiles)
    multiply(j, to, true, false);
  else if (j->two_blocks)
    multiply(j, to, false, true);
  else
    multiply(j, to, false, false);
}

/* ---- The product ---- */

/* The panel and one or two blocks of x. */
AMX_CODE static void run_blocks(job *j) {
  const treadle_gemm_product *p = j->p;
  int32_t height = 0;
  j->y = p->y + j->block * j->f.width * p->stride + j->panel.column;
  j->rows = treadle_gemm_least(p->rows - j->block * j->f.width, 2 * j->f.width);
  j->two_tiles = j->panel.rows > SIDE;
  j->two_blocks = j->rows > j->f.width;
  for (j->leaf = 0; j->leaf < p->inner.range.leaves; j->leaf++) {
    treadle_leaf_step step = treadle_leaf_step_of(p->inner.range, p->inner.range.first + j->leaf);
    sums *top = j->stacks[j->which] + height;
    multiply_leaf(j, top);
    for (; step.merges > 0; step.merges--, height--, top--) add_sums(top - 1, top, j);
    height++;
    if (!step.ends) continue;
    write_all_pending(j);
    j->pending = (pending){.sums = top, .y = j->y, .rows = j->rows, .columns = j->panel.rows};
    j->which = !j->which;
    j->y += p->node_stride;
    height = 0;
  }
}

/* The panels of one part, for blocks [begin, end) of x. */
AMX_CODE static void run_pass(job *j, treadle_gemm_walk walk, int64_t begin, int64_t end) {
  int64_t shaped = 0, turns = (end - begin + 1) / 2; /* rows of weights that tiles are set for */
  while (treadle_gemm_next(&walk, &j->panel)) {
    if (shaped != j->panel.rows) {
      int64_t first = treadle_gemm_least(j->panel.rows, SIDE);
      set_shape(first, j->panel.rows - first, j->f.width);
      shaped = j->panel.rows;
    }
    for (int64_t turn = 0; turn < turns; turn++) {
      int64_t next = treadle_gemm_least(j->panel.next, PANEL), from = next * turn / turns;
      j->ahead = (PANEL + from) * j->panel.stride;
      j->ahead_rows = next * (turn + 1) / turns - from;
      j->block = begin + 2 * turn;
      run_blocks(j);
    }
  }
}

AMX_CODE static void run(const treadle_gemm_product *p, int32_t index, int32_t count) {
  _Alignas(64) stack stacks[2];
  job j = {.p = p, .f = form_of(p->inner, p->rows), .pending.tile = 4, .stacks = stacks};
  if (j.f.blocks == 0) return;
  int64_t each = NEAR / j.f.block_bytes / 2 * 2;
  if (each < 2) each = 2;
  for (int64_t block = 0; block < j.f.blocks; block += each)
    run_pass(&j, treadle_gemm_panels(p, PANEL, index, count), block,
             treadle_gemm_least(block + each, j.f.blocks));
  write_all_pending(&j);
  _tile_release();
}

const treadle_gemm_kernel treadle_gemm_amx = {
    .name = "amx",
    .about = "AMX with bf16",
    .lacks = lacks,
    .takes = takes,
    .packed_bytes = packed_bytes,
    .pack = pack,
    .run = run,
};

#endif
