/* A rank's own tensors in a window: storage tensors that lie in memory of the caller, and not in pages of the pool.
 *
 * Offsets stay those of the window as its layout has it: an own tensor at bytes 4,096 to 8,191 of the window lies there on no page,
 * and whoever reads or writes these bytes is given other memory for them. A span is one own tensor; spans are in order, and do
 * not meet. What an op reads, or writes, lies in one span, or in none: so one address does for it. Ops that a plan has made over
 * several storage tensors (experts that lie at one distance) are split for that, but for those that read a rank on another node: neither side
 * knows where the other has own tensors, so each carries out its half in parts (treadle_own_parts), and the message stays as it is. */
#ifndef TREADLE_MESSAGES_OWN_H
#define TREADLE_MESSAGES_OWN_H

#include "plan/plan.h"

typedef struct treadle_own_span {
  int64_t offset, bytes; /* in the window */
  char *memory;          /* NULL: of another rank */
  int32_t storage;       /* its number for users */
} treadle_own_span;

typedef struct treadle_own_spans {
  const treadle_own_span *items; /* in order */
  size_t count;
} treadle_own_spans;

/* The span that has byte `at` of the window; NULL: none. */
const treadle_own_span *treadle_own_find(const treadle_own_spans *spans, int64_t at);
/* The last byte up to which all is in the same span as byte `at`, or outside of all as it is. */
int64_t treadle_own_until(const treadle_own_spans *spans, int64_t at);

/* The first and the last byte that an op touches at one of its sides. */
typedef struct treadle_reach {
  int64_t first, last;
} treadle_reach;
treadle_reach treadle_op_reads(const treadle_op *op);
treadle_reach treadle_op_writes(const treadle_op *op);

/* Splits the ops of plan->forward where they touch bytes inside and outside of a span, of this rank's to-window, a source's from-window,
 * or the to-window that a relay reads: to[ranks] and from[ranks], of which those on other nodes are not looked at. The coverage is
 * that of the new ops. */
treadle_status treadle_own_split(treadle_plan *plan, const treadle_own_spans *to,
                                 const treadle_own_spans *from);

/* Calls `take` for the parts of an op that each lie in one span, or in none, of the window that it writes, or reads; none of them fails. */
typedef void (*treadle_own_part)(void *context, const treadle_op *part);
void treadle_own_parts_written(const treadle_op *op, const treadle_own_spans *to, treadle_own_part take,
                               void *context);
void treadle_own_parts_read(const treadle_op *op, const treadle_own_spans *from, treadle_own_part take,
                            void *context);

/* Marks the pages of a window of `bytes` bytes on which nothing but own tensors lies: holes[pages], 1 where no page is needed.
 * taken: where its other storage tensors lie, in order, `count` of them. Returns how many are marked. */
int64_t treadle_own_holes(const treadle_own_spans *spans, const treadle_own_span *others, size_t count,
                          int64_t page_bytes, int64_t pages, uint8_t *holes);

#endif
