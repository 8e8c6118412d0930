/* AMX with bf16: tiles of 16 rows of weights and 16 rows of x.
 *
 * Order of additions, of one element of y and one leaf: the leaf is cut into steps of 32 elements; where 32 does not divide it, the
 * last step is the last 32 elements of the leaf, of which those that an earlier step had count as 0. The sum begins with +0. In each
 * step the even elements are added in ascending order, beginning with +0, by fused multiply-add, and the odd ones in the same way;
 * the two sums are added, and that is added to the sum. Every number that is read or made there and is subnormal becomes 0 (Intel's
 * manual, TDPBF16PS). Leaves, and only they as usual numbers: nn/leaf_tree.h. Leaves shorter than 32 are not taken. In a fine product
 * x is the sum of x rounded to bf16 and of what that leaves, rounded, too: the sum of a leaf is that with the first, plus that with the
 * second, which take the places of two blocks of x.
 *
 * Weights are the first operand of the tile product, which wants them row by row as they lie. x is the second one, which wants pairs
 * of elements of 16 rows side by side: that is the packed form. So tiles are those of y turned, and are turned when they are
 * done. Two tiles of weights and two of x make four of y, each read being used twice. */
#include "base/processor.h"
#include "nn/gemm_parts.h"

#if defined(__x86_64__)

#include "nn/gemm_amx_form.h"
#include "nn/lanes_avx512.h"

#include "nn/lanes_silu.h"

#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- Can it run here? ---- */

static const char *ask(void) {
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
  if (!lanes_supported()) return "the processor has no AVX-512";
  if (!treadle_processor_has(TREADLE_PROCESSOR_AMX)) return "the processor has no AMX with bf16";
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
  int done, parts;       /* of the work: parts of the tiles */
  bool gated;        /* then tiles 0 and 1 are multiplied by the gates 2 and 3, and there are no others */
  bool turned, adds; /* y lies as tiles do; sums are added to it */
} pending;

typedef sums stack[TREADLE_LEAF_HEIGHT_MAX];

/* What one part of a product has to do: where it is. */
typedef struct job {
  const treadle_gemm_product *p;
  form f;
  treadle_gemm_panel panel;
  const char *second; /* weights of the second tile: of the panel's other rows, or the gates */
  int64_t ahead, ahead_rows,
      ahead_gates;     /* bytes to the rows of the next panel that are fetched in this turn; how many */
  int64_t block, rows; /* of x, the first of one or two blocks; rows in them */
  bool two_tiles, two_blocks; /* of weights; of x, or the two parts of one */
  int32_t leaf;               /* of the range */
  int64_t from, to;           /* steps of the leaf; those before are in the sums already */
  float *y;                   /* of the node, the first row and column */
  stack *stacks;              /* two, used by turns, since what is pending lies in the other one */
  int which;
  pending pending;
} job;

/* A tile of y, turned, to `rows` rows and `columns` columns. */
AMX_CODE static void write_tile(float *y, int64_t stride, float tile[SIDE][SIDE], int64_t rows,
                                int64_t columns, bool adds) {
  __m512i row[SIDE];
  __mmask16 written = (__mmask16)((1u << columns) - 1);
#pragma GCC unroll 16
  for (int i = 0; i < SIDE; i++) row[i] = _mm512_load_si512(tile[i]);
  treadle_gemm_turn(row);
#pragma GCC unroll 16
  for (int i = 0; i < SIDE; i++)
    if (i < rows) {
      __m512 sum = _mm512_castsi512_ps(row[i]);
      if (adds) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(written, y + i * stride), sum);
      _mm512_mask_storeu_ps(y + i * stride, written, sum);
    }
}

/* A tile as it is, to `rows` rows of weights and `columns` rows of x. */
AMX_CODE static void write_straight(const pending *w, int64_t stride, int tile) {
  int64_t first = tile / 2 * SIDE, column = tile % 2 * SIDE;
  int64_t rows = treadle_smaller(w->columns - first, SIDE),
          columns = treadle_smaller(w->rows - column, SIDE);
  if (rows <= 0 || columns <= 0) return;
  __mmask16 written = (__mmask16)((1u << columns) - 1);
  for (int64_t i = 0; i < rows; i++) {
    float *y = w->y + (first + i) * stride + column;
    __m512 sum = _mm512_load_ps(w->sums->of[tile][i]);
    if (w->adds) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(written, y), sum);
    _mm512_mask_storeu_ps(y, written, sum);
  }
}

/* Half of a tile is multiplied by the silu of its gates. */
AMX_CODE static void gate_half(float tile[SIDE][SIDE], float gates[SIDE][SIDE], int half) {
  for (int i = half * SIDE / 2; i < (half + 1) * SIDE / 2; i++)
    _mm512_store_ps(tile[i], lanes_silu(_mm512_load_ps(gates[i]), _mm512_load_ps(tile[i])));
}

/* One part of what is pending: a tile is written; where it is gated, it is multiplied by its gates in two parts before. */
static void write_pending(pending *w, int64_t stride) {
  int part = w->done++, tile = w->gated ? part / GATED_PARTS : part;
  if (w->turned) {
    write_straight(w, stride, tile);
    return;
  }
  int64_t row = tile % 2 * SIDE, column = tile / 2 * SIDE;
  int64_t rows = treadle_smaller(w->rows - row, SIDE);
  int64_t columns = treadle_smaller(w->columns - column, SIDE);
  if (rows <= 0 || columns <= 0) return;
  if (w->gated && part % GATED_PARTS < 2)
    gate_half(w->sums->of[tile], w->sums->of[tile + 2], part % GATED_PARTS);
  else
    write_tile(w->y + row * stride + column, stride, w->sums->of[tile], rows, columns, w->adds);
}

static void write_all_pending(job *j) {
  while (j->pending.done < j->pending.parts) write_pending(&j->pending, j->p->stride);
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
  for (int64_t row = 0; row < j->ahead_gates; row++)
    _mm_prefetch(ahead + (j->second - j->panel.weights) + row * j->panel.stride, _MM_HINT_T1);
  if (j->pending.done < j->pending.parts &&
      (step - j->from) * j->pending.parts >= j->pending.done * (j->to - j->from))
    write_pending(&j->pending, j->p->stride);
}

AMX_PART void begin_tiles(const job *j, const sums *to, bool two_tiles, bool two_blocks) {
  if (j->from == 0) {
    _tile_zero(0);
    if (two_blocks) _tile_zero(1);
    if (two_tiles) _tile_zero(2);
    if (two_tiles && two_blocks) _tile_zero(3);
  } else {
    _tile_loadd(0, to->of[0], LINE);
    if (two_blocks) _tile_loadd(1, to->of[1], LINE);
    if (two_tiles) _tile_loadd(2, to->of[2], LINE);
    if (two_tiles && two_blocks) _tile_loadd(3, to->of[3], LINE);
  }
}

AMX_PART void multiply(job *j, sums *to, bool two_tiles, bool two_blocks) {
  const char *x = (const char *)j->p->packed + j->block * j->f.block_bytes + j->leaf * j->f.leaf_bytes;
  const char *x2 = x + j->f.part_bytes;
  const int64_t leaf_at = (int64_t)j->leaf * j->p->inner.leaf * (int64_t)sizeof(uint16_t);
  const char *w = j->panel.weights + leaf_at, *w2 = j->second + leaf_at;
  const size_t w_row = (size_t)j->panel.stride, x_row = (size_t)j->f.width * sizeof(float);
  const int64_t last = ((int64_t)j->p->inner.leaf - STEP) * (int64_t)sizeof(uint16_t);
  begin_tiles(j, to, two_tiles, two_blocks);
  for (int64_t step = j->from; step < j->to; step++) {
    int64_t at = treadle_smaller(step * LINE, last), x_at = step * j->f.tile_bytes;
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

/* A leaf of a fine product is done: what its two parts gave is added. */
AMX_CODE static void join_parts(const job *j, sums *of) {
  if (j->f.parts == 1) return;
  add_tile(of->of[0], of->of[1]);
  if (j->two_tiles) add_tile(of->of[2], of->of[3]);
}

/* ---- The product ---- */

/* Blocks of x for turn `turn` of `turns`, of a fine product one a turn; and which rows of the next panel are fetched meanwhile. */
static void set_turn(job *j, int64_t begin, int64_t turn, int64_t turns) {
  const treadle_gemm_product *p = j->p;
  int64_t each = p->gated ? SIDE : PANEL, next = treadle_smaller(j->panel.next, each);
  int64_t from = next * turn / turns;
  j->ahead = (each + from) * j->panel.stride;
  j->ahead_rows = next * (turn + 1) / turns - from;
  j->ahead_gates = p->gated ? j->ahead_rows : 0;
  j->block = begin + 2 / j->f.parts * turn;
  j->y = p->turned ? p->y + j->panel.column * p->stride + j->block * j->f.width
                   : p->y + j->block * j->f.width * p->stride + j->panel.column;
  j->rows = treadle_smaller(p->rows - j->block * j->f.width, 2 / j->f.parts * j->f.width);
  j->two_tiles = p->gated || j->panel.rows > SIDE;
  j->two_blocks = j->f.parts > 1 || j->rows > j->f.width;
}

/* What sums will be added to. */
static void fetch_sums(const job *j) {
  int64_t rows = j->p->turned ? j->panel.rows : j->rows;
  for (int64_t row = 0; row < rows; row++) {
    _mm_prefetch((const char *)(j->y + row * j->p->stride), _MM_HINT_T0);
    _mm_prefetch((const char *)(j->y + row * j->p->stride + SIDE), _MM_HINT_T0);
  }
}

/* Sums of a node are there. */
static void end_node(job *j, sums *top) {
  write_all_pending(j);
  if (j->p->adds) fetch_sums(j);
  j->pending = (pending){.sums = top,
                         .y = j->y,
                         .rows = j->rows,
                         .columns = j->panel.rows,
                         .parts = j->p->gated ? 2 * GATED_PARTS : 4,
                         .gated = j->p->gated,
                         .turned = j->p->turned,
                         .adds = j->p->adds};
  j->which = !j->which;
  j->y += j->p->node_stride;
}

/* The panel and one or two blocks of x. */
AMX_CODE static void run_blocks(job *j) {
  treadle_leaf_range range = j->p->inner.range;
  int32_t height = 0;
  j->from = 0;
  j->to = j->f.steps;
  for (j->leaf = 0; j->leaf < range.leaves; j->leaf++) {
    treadle_leaf_step step = treadle_leaf_step_of(range, range.first + j->leaf);
    sums *top = j->stacks[j->which] + height;
    multiply_leaf(j, top);
    join_parts(j, top);
    for (; step.merges > 0; step.merges--, height--, top--) add_sums(top - 1, top, j);
    height++;
    if (!step.ends) continue;
    end_node(j, top);
    height = 0;
  }
}

/* A long leaf in two halves, each for all blocks of x: half a panel stays in the nearest cache, which a whole one with its blocks of x
 * does not. Sums of the first half wait in memory. */
AMX_CODE static void run_halves(job *j, int64_t begin, int64_t turns) {
  sums *all = &j->stacks[0][0];
  j->leaf = 0;
  for (int half = 0; half < 2; half++) {
    j->from = half * j->f.steps / 2;
    j->to = (half + 1) * j->f.steps / 2;
    for (int64_t turn = 0; turn < turns; turn++) {
      set_turn(j, begin, turn, turns);
      multiply_leaf(j, all + turn);
      if (!half) continue;
      join_parts(j, all + turn);
      end_node(j, all + turn);
    }
  }
}

/* The panels of one part, for blocks [begin, end) of x. */
AMX_CODE static void run_pass(job *j, treadle_gemm_walk walk, int64_t begin, int64_t end) {
  bool gated = j->p->gated;
  int64_t shaped = 0,
          turns = ((end - begin) * j->f.parts + 1) / 2; /* shaped: rows of weights that tiles are set for */
  bool halves = j->p->inner.range.leaves == 1 && j->f.steps >= LONG && turns >= MANY_TURNS &&
                turns <= 2 * TREADLE_LEAF_HEIGHT_MAX;
  while (treadle_gemm_next(&walk, &j->panel)) {
    if (shaped != j->panel.rows) {
      int64_t first = treadle_smaller(j->panel.rows, SIDE);
      set_shape(first, gated ? first : j->panel.rows - first, j->f.width);
      shaped = j->panel.rows;
    }
    j->second = gated ? j->panel.gates : j->panel.weights + SIDE * j->panel.stride;
    if (halves) {
      run_halves(j, begin, turns);
      continue;
    }
    for (int64_t turn = 0; turn < turns; turn++) {
      set_turn(j, begin, turn, turns);
      run_blocks(j);
    }
  }
}

AMX_CODE static void run(const treadle_gemm_product *p, int32_t index, int32_t count) {
  _Alignas(64) stack stacks[2];
  job j = {.p = p, .f = form_of(p->inner, p->rows), .stacks = stacks};
  if (j.f.blocks == 0) return;
  int64_t each = NEAR / j.f.block_bytes / 2 * 2;
  if (each < 2) each = 2;
  for (int64_t block = 0; block < j.f.blocks; block += each)
    run_pass(&j, treadle_gemm_panels(p, p->gated ? SIDE : PANEL, index, count), block,
             treadle_smaller(block + each, j.f.blocks));
  write_all_pending(&j);
  _tile_release();
}

const treadle_gemm_kernel treadle_gemm_amx = {
    .name = "amx",
    .about = "AMX with bf16",
    .gates = true,
    .turns = true,
    .lacks = lacks,
    .takes = takes,
    .packed_bytes = packed_bytes,
    .pack = pack,
    .run = run,
};

#endif
