#include "carry/carry_parts.h"

void treadle_copies_ask(const treadle_carry *c, treadle_copies *copies) {
  const treadle_device_ops *ops = c->device->ops;
  if (copies->count == 0) return;
  (copies->packs ? ops->pack : ops->copy)(c->device, copies->ops, copies->from, copies->to, copies->count);
  copies->count = 0;
}

void treadle_copies_add(const treadle_carry *c, treadle_copies *copies, const treadle_op *op,
                        const treadle_paged *from, const treadle_paged *to) {
  if (copies->count == TREADLE_COPIES) treadle_copies_ask(c, copies);
  copies->ops[copies->count] = *op;
  copies->from[copies->count] = *from;
  copies->to[copies->count++] = *to;
}
