/* The built-in engine as an engine that generates, and what it takes beforehand. */
#include "treadle_builtin.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/larger.h"
#include "base/sized.h"
#include "generate/generator.h"

#include <stddef.h>

static treadle_status hooks(void *engine, treadle_engine_hooks *hooks_p) {
  return treadle_generator_hooks_of(engine, hooks_p);
}

static treadle_status generate(void *engine, const treadle_batch *prompts, const treadle_sampling *sampling,
                               const treadle_observer *observer, treadle_batch **out_p) {
  return treadle_generator_generate(engine, prompts, sampling, observer, out_p);
}

static size_t bytes_of(const void *engine) { return treadle_generator_outside_bytes(engine); }

static void close_engine(void *engine) { treadle_generator_destroy(engine); }

treadle_status treadle_generator_open_infer(void *context, treadle_group *group,
                                            const treadle_layout *layout,
                                            const treadle_generator_options *options,
                                            treadle_infer_engine *engine_p) {
  treadle_infer_engine table = TREADLE_INIT(treadle_infer_engine);
  treadle_generator *engine;
  treadle_status status;
  (void)context;
  TREADLE_NEED_SIZED(engine_p);
  if (engine_p->struct_size < offsetof(treadle_infer_engine, close) + sizeof table.close)
    REFUSE("treadle_generator_open_infer: a table of %zu bytes has no room for close",
           engine_p->struct_size);
  TRY(treadle_generator_create(group, layout, options, &engine));
  table.engine = engine;
  table.hooks = hooks;
  table.generate = generate;
  table.bytes = bytes_of;
  table.close = close_engine;
  TREADLE_GIVE(engine_p, &table);
out:
  return status;
}

/* ---- Beforehand ------------------------------------------------------------------------------------------ */

treadle_status treadle_generator_foresee(const treadle_layout *layout,
                                         const treadle_generator_options *options,
                                         treadle_generator_memory *by_rank) {
  treadle_generator_options o;
  treadle_pass_board room = {0};
  treadle_status status;
  TREADLE_NEED(layout);
  TREADLE_NEED(by_rank);
  TRY(TREADLE_TAKE(options, &o));
  for (int64_t rank = 0; rank < layout->ranks; rank++) {
    treadle_pass_board own = {0};
    TRY(treadle_generator_measure(layout, &o, (int)rank, &by_rank[rank], &own));
    room.within = treadle_larger_size(room.within, own.within);
    room.across = treadle_larger_size(room.across, own.across);
    room.between = treadle_larger_size(room.between, own.between);
  }
  for (int64_t rank = 0; rank < layout->ranks; rank++)
    by_rank[rank].board = layout->ranks > 1 ? treadle_board_memory(treadle_pass_board_bytes(&room)) : 0;
out:
  return status;
}
