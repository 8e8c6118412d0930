/* The steps of a conversion as callers take them: in their order, once each. */
#include "base/argument.h"
#include "convert/convert_parts.h"

static treadle_status out_of_turn(const treadle_convert *c, const char *step) {
  static const char *const states[] = {
      "is open", "has compared its inputs", "has begun", "is written", "is finished", "has failed"};
  return treadle_fail(TREADLE_STATE, "convert: %s on rank %d of %d, whose conversion %s, comes out of turn",
                      step, c->options.rank, c->options.ranks, states[c->step]);
}

static treadle_status took(treadle_convert *c, treadle_status status, treadle_convert_step step) {
  c->step = status ? TREADLE_CONVERT_BROKEN : step;
  return status;
}

treadle_status treadle_convert_compare(treadle_convert *convert) {
  TREADLE_NEED(convert);
  if (convert->step != TREADLE_CONVERT_OPENED) return out_of_turn(convert, "compare");
  return took(convert, treadle_convert_compare_files(convert), TREADLE_CONVERT_COMPARED);
}

treadle_status treadle_convert_begin(treadle_convert *convert) {
  TREADLE_NEED(convert);
  if (convert->options.rank != 0 || convert->step > TREADLE_CONVERT_COMPARED)
    return out_of_turn(convert, "begin");
  return took(convert, treadle_convert_begin_folder(convert), TREADLE_CONVERT_BEGUN);
}

treadle_status treadle_convert_write(treadle_convert *convert) {
  TREADLE_NEED(convert);
  if (convert->options.rank == 0 ? convert->step != TREADLE_CONVERT_BEGUN
                                 : convert->step > TREADLE_CONVERT_COMPARED)
    return out_of_turn(convert, "write");
  return took(convert, treadle_convert_write_files(convert), TREADLE_CONVERT_WRITTEN);
}

treadle_status treadle_convert_finish_as(treadle_convert *convert, const char *name) {
  TREADLE_NEED(convert);
  convert->name = name;
  return treadle_convert_finish(convert);
}

treadle_status treadle_convert_finish(treadle_convert *convert) {
  TREADLE_NEED(convert);
  if (convert->options.rank != 0 || convert->step != TREADLE_CONVERT_WRITTEN)
    return out_of_turn(convert, "finish");
  return took(convert, treadle_convert_finish_folder(convert), TREADLE_CONVERT_FINISHED);
}
