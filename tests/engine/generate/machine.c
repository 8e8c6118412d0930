#include "generate/machine.h"

#include "base/status.h"

#include <stdlib.h>

treadle_status machine_open(machine *m, const machine_spec *spec) {
  treadle_generator_options options = spec->options;
  int ranks = spec->group ? treadle_group_size(spec->group) : 1,
      rank = spec->group ? treadle_group_rank(spec->group) : 0;
  void *memory = NULL;
  treadle_status status;
  *m = (machine){0};
  options.struct_size = sizeof options;
  TRY(treadle_model_open(spec->folder, NULL, &m->model));
  TRY(treadle_layout_create(m->model, spec->layout, ranks, NULL, &m->layout));
  TRY(treadle_generator_create(spec->group, m->layout, &options, &m->engine));
  m->window_bytes = treadle_layout_window_bytes(m->layout, rank);
  if (posix_memalign(&memory, 64, m->window_bytes + 1)) abort();
  m->window = memory;
  TRY(treadle_layout_load(m->layout, rank, m->window));
  TRY(treadle_generator_bind(m->engine, m->window, m->window_bytes));
out:
  return status;
}

void machine_close(machine *m) {
  treadle_generator_destroy(m->engine);
  treadle_layout_destroy(m->layout);
  treadle_model_close(m->model);
  free(m->window);
  *m = (machine){0};
}
