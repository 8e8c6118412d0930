/* What ranks give is what others pull: over random pairs with random own tensors, on one node and on nodes of two, each pull of a reader is in
 * one box of its source's wave, and no box is there that nobody pulls; boxes of a wave do not meet in their slot; ops that were split
 * write what they wrote; those that read another node stay whole, and their halves have parts. */
#include "messages/outbound.h"

#include "base/dtype.h"
#include "base/hash.h"
#include "layout/blocks.h"
#include "plan/pairs.h"
#include "test.h"

enum { SEEDS = 60, MAX_ELEMS = 20000, RANKS = 64 };

static size_t halved, relayed; /* parts more than ops; pulls of to-windows */

typedef struct side {
  treadle_own_span *items[RANKS];
  treadle_own_spans spans[RANKS];
} side;

static int by_offset(const void *a, const void *b) {
  const treadle_own_span *x = a, *y = b;
  return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Two of three storage tensors of each rank. */
static void draw(side *s, const treadle_layout *layout, int64_t ranks, uint64_t seed) {
  memset(s, 0, sizeof *s);
  for (int64_t rank = 0; rank < ranks; rank++) {
    int32_t storages = treadle_layout_storage_count(layout, rank);
    size_t count = 0;
    s->items[rank] = calloc((size_t)storages + 1, sizeof **s->items);
    assert_non_null(s->items[rank]);
    for (int32_t i = 0; i < storages; i++) {
      treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
      assert_ok(treadle_layout_storage(layout, rank, i, &info));
      if (info.bytes == 0 || treadle_mix64(seed + (uint64_t)(rank * 1000 + i)) % 3 == 0) continue;
      s->items[rank][count++] =
          (treadle_own_span){(int64_t)info.offset_bytes, (int64_t)info.bytes, NULL, i};
    }
    qsort(s->items[rank], count, sizeof **s->items, by_offset);
    s->spans[rank] = (treadle_own_spans){s->items[rank], count};
  }
}

static void release(side *s) {
  for (int rank = 0; rank < RANKS; rank++) free(s->items[rank]);
}

static bool is_whole(const treadle_own_spans *spans, treadle_reach reach) {
  const treadle_own_span *span = treadle_own_find(spans, reach.first);
  return span == treadle_own_find(spans, reach.last) && (!span || reach.last < span->offset + span->bytes);
}

/* Every byte of the window, how often the ops write it. */
static void count_writes(const treadle_direction *direction, uint8_t *times) {
  for (size_t i = 0; i < direction->ops.count; i++) {
    const treadle_op *op = &direction->ops.items[i];
    for (int64_t e = 0; e < op->elems; e++) {
      int64_t at = op->to, rest = e;
      for (int d = op->ndim - 1; d >= 0; d--) {
        at += rest % op->size[d] * op->to_stride[d];
        rest /= op->size[d];
      }
      times[at]++;
    }
  }
}

static bool is_far(const treadle_plan *plan, const treadle_op *op) {
  return op->source >= 0 && !op->twin && plan->nodes &&
         plan->nodes->of[op->source] != plan->nodes->of[plan->rank];
}

typedef struct half {
  const treadle_own_spans *spans;
  bool reads;
  int64_t elems, parts;
} half;

static void take_part(void *context, const treadle_op *part) {
  half *h = context;
  assert_true(is_whole(h->spans, h->reads ? treadle_op_reads(part) : treadle_op_writes(part)));
  h->elems += part->elems;
  h->parts++;
}

/* The two halves of an op that reads another node, and the op as it was. */
static int64_t check_halves(const treadle_op *op, const treadle_own_spans *to,
                            const treadle_own_spans *from) {
  half read = {.spans = from, .reads = true}, written = {.spans = to};
  treadle_own_parts_read(op, from, take_part, &read);
  treadle_own_parts_written(op, to, take_part, &written);
  assert_true(read.elems == op->elems && written.elems == op->elems);
  return read.parts + written.parts - 2;
}

static void check_split(treadle_plan *plan, const side *from, const side *to, size_t *split_p) {
  size_t bytes = (size_t)(plan->to_pages * plan->page_bytes), before = plan->forward.ops.count;
  uint8_t *was = calloc(bytes + 1, 1), *is = calloc(bytes + 1, 1);
  uint64_t marks = 0, others = plan->forward.coverage;
  for (size_t i = 0; i < before; i++) others -= treadle_op_mark(&plan->forward.ops.items[i]);
  count_writes(&plan->forward, was);
  assert_ok(treadle_own_split(plan, to->spans, from->spans));
  count_writes(&plan->forward, is);
  assert_memory_equal(was, is, bytes);
  for (int32_t wave = 0; wave < plan->waves; wave++)
    for (int32_t i = plan->forward.wave_first[wave]; i < plan->forward.wave_first[wave + 1]; i++) {
      const treadle_op *op = &plan->forward.ops.items[i];
      assert_int_equal(op->wave, wave);
      marks += treadle_op_mark(op);
      if (is_far(plan, op)) {
        halved += (size_t)check_halves(op, &to->spans[plan->rank], &from->spans[op->source]);
        continue;
      }
      assert_true(is_whole(&to->spans[plan->rank], treadle_op_writes(op)));
      if (op->source >= 0)
        assert_true(
            is_whole(op->twin ? &to->spans[op->source] : &from->spans[op->source], treadle_op_reads(op)));
    }
  assert_int_equal(plan->forward.wave_first[plan->waves], plan->forward.ops.count);
  assert_true(marks + others == plan->forward.coverage);
  *split_p += plan->forward.ops.count - before;
  free(was);
  free(is);
}

/* The boxes of one rank against the pulls of all. */
static void check_boxes(int64_t rank, int64_t ranks, int32_t waves, const side *from, const side *to,
                        const treadle_pulls *pulls) {
  treadle_outbound outbound;
  const treadle_own_spans mine[2] = {from->spans[rank], to->spans[rank]};
  assert_ok(treadle_outbound_make(rank, ranks, waves, mine, pulls, &outbound));
  bool *used = calloc((size_t)outbound.wave_first[waves] + 1, sizeof *used);
  for (int64_t reader = 0; reader < ranks; reader++) {
    size_t next = outbound.first[reader];
    for (size_t i = 0; i < pulls[reader].count; i++) {
      const treadle_pull *pull = &pulls[reader].items[i];
      if (pull->source != rank) continue;
      int64_t at = outbound.at[next++], found = 0;
      for (int32_t k = outbound.wave_first[pull->wave]; k < outbound.wave_first[pull->wave + 1]; k++) {
        if (outbound.boxes[k].at != at) continue;
        assert_memory_equal(&outbound.boxes[k].pull, pull, sizeof *pull);
        used[k] = true;
        found++;
      }
      assert_int_equal(found, 1);
    }
    assert_int_equal(next, outbound.first[reader + 1]);
  }
  for (int32_t wave = 0; wave < waves; wave++)
    for (int32_t k = outbound.wave_first[wave], end = 0; k < outbound.wave_first[wave + 1]; k++) {
      assert_true(used[k] && outbound.boxes[k].at >= end);
      end = (int32_t)(outbound.boxes[k].at + treadle_pull_bytes(&outbound.boxes[k].pull));
      assert_true(end <= outbound.slot_bytes);
    }
  free(used);
  treadle_outbound_release(&outbound);
}

/* What a rank knows: the spans of its node. */
static void look(const side *all, const treadle_plan *plan, int64_t ranks, treadle_own_spans *near) {
  for (int64_t rank = 0; rank < ranks; rank++) {
    bool is_near = !plan->nodes || plan->nodes->of[rank] == plan->nodes->of[plan->rank];
    near[rank] = is_near ? all->spans[rank] : (treadle_own_spans){0};
  }
}

static void play(pair *p, const int32_t *node_of, size_t *split, size_t *pulled) {
  static side from, to;
  static treadle_own_spans near[2][RANKS];
  treadle_pulls pulls[RANKS] = {0};
  treadle_pull *lists[RANKS] = {0};
  int32_t waves = 1 + (int32_t)(p->seed % 40);
  draw(&from, p->from.layout, p->ranks, p->seed);
  draw(&to, p->to.layout, p->ranks, p->seed + 77);
  for (int64_t rank = 0; rank < p->ranks; rank++) {
    treadle_plan *plan;
    int32_t *of_op;
    size_t expected = 0;
    const treadle_plan_options options = {.struct_size = sizeof options,
                                          .page_bytes = PAIR_PAGE,
                                          .waves = waves,
                                          .keep_params = true,
                                          .node_of = node_of};
    assert_ok(treadle_plan_create(p->from.layout, p->to.layout, rank, &options, &plan));
    check_split(plan, &from, &to, split);
    look(&from, plan, p->ranks, near[0]);
    look(&to, plan, p->ranks, near[1]);
    assert_ok(treadle_pulls_list(&plan->forward, rank, near[1], near[0], &lists[rank], &pulls[rank].count,
                                 &of_op));
    pulls[rank].items = lists[rank];
    for (size_t i = 0; i < plan->forward.ops.count; i++) {
      const treadle_op *op = &plan->forward.ops.items[i];
      bool pulls_it = op->source >= 0 && op->source != rank && !is_far(plan, op) &&
                      treadle_own_find(&(op->twin ? &to : &from)->spans[op->source], op->from);
      relayed += pulls_it && op->twin;
      assert_int_equal(of_op[i], pulls_it ? (int32_t)expected : -1);
      expected += pulls_it;
    }
    assert_int_equal(expected, pulls[rank].count);
    *pulled += expected;
    treadle_free(of_op);
    treadle_plan_destroy(plan);
  }
  for (int64_t rank = 0; rank < p->ranks; rank++) check_boxes(rank, p->ranks, waves, &from, &to, pulls);
  for (int64_t rank = 0; rank < p->ranks; rank++) treadle_free(lists[rank]);
  release(&from);
  release(&to);
}

static void test_pairs(void **state) {
  (void)state;
  size_t split = 0, pulled = 0;
  int32_t node_of[RANKS];
  for (int rank = 0; rank < RANKS; rank++) node_of[rank] = rank / 2;
  for (uint64_t seed = 1; seed <= test_seeds(SEEDS); seed++) {
    pair p;
    pair_make(&p, seed, MAX_ELEMS);
    if (p.ranks <= RANKS) play(&p, seed % 2 ? node_of : NULL, &split, &pulled);
    pair_release(&p);
  }
  print_message("%zu pulls, %zu of them relays; %zu more ops, and %zu more parts\n", pulled, relayed, split,
                halved);
  assert_true(pulled > 0 && split > 0 && relayed > 0 && halved > 0);
}

/* A pull that another rank makes up is refused. */
static void test_unsound(void **state) {
  (void)state;
  const treadle_own_span span = {.offset = 4096, .bytes = 1024};
  const treadle_own_spans spans[2] = {{&span, 1}, {0}};
  const treadle_pull good = {.source = 0,
                             .wave = 1,
                             .dtype = TREADLE_BF16,
                             .ndim = 2,
                             .from = 4096,
                             .size = {4, 8},
                             .stride = {256, 2}};
  struct {
    const char *what;
    treadle_pull pull;
  } cases[12];
  for (size_t i = 0; i < TEST_COUNT(cases); i++) cases[i].pull = good;
  cases[1].pull.wave = 2;
  cases[2].pull.wave = -1;
  cases[3].pull.dtype = 99;
  cases[4].pull.ndim = 7;
  cases[5].pull.from = 4094;
  cases[6].pull.from = 4096 + 256;
  cases[7].pull.size[0] = 0;
  cases[8].pull.size[0] = INT64_MAX;
  cases[9].pull.stride[0] = INT64_MAX;
  cases[10].pull.stride[1] = -2;
  cases[11].pull =
      (treadle_pull){.dtype = TREADLE_BF16, .ndim = 2, .from = 4096, .size = {INT64_MAX / 2, 8}};
  for (size_t i = 0; i < TEST_COUNT(cases); i++) {
    treadle_outbound outbound;
    const treadle_pulls pulls[2] = {{0}, {&cases[i].pull, 1}};
    treadle_status status = treadle_outbound_make(0, 2, 2, spans, pulls, &outbound);
    assert_int_equal(status, i == 0 ? TREADLE_OK : TREADLE_PEER);
    if (i == 0) assert_int_equal(outbound.slot_bytes, 64);
    if (i > 0) assert_non_null(strstr(treadle_error_message(), "rank 1 asks rank 0"));
    treadle_outbound_release(&outbound);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs), cmocka_unit_test(test_unsound)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
