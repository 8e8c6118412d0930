/* One rank of an engine with all that it stands on: model, layout, window. For tests and programs that make many engines. */
#ifndef TREADLE_TESTS_MACHINE_H
#define TREADLE_TESTS_MACHINE_H

#include "treadle_builtin.h"

typedef struct machine {
  treadle_model *model;
  treadle_layout *layout;
  treadle_generator *engine;
  char *window;
  size_t window_bytes;
} machine;

typedef struct machine_spec {
  const char *folder, *layout;       /* of the model; text */
  treadle_group *group;              /* NULL: one rank */
  treadle_generator_options options; /* struct_size is filled in */
} machine_spec;

/* The engine has its weights. Ended by machine_close, whatever is returned. Collective. */
treadle_status machine_open(machine *m, const machine_spec *spec);
void machine_close(machine *m);

#endif
