/* What the checkers of flat layouts share: runs of elements out of boxes. */
#ifndef TREADLE_TESTS_GOLDEN_FLAT_H
#define TREADLE_TESTS_GOLDEN_FLAT_H

#include "flat/dtensor.h"
#include "golden_support/golden_parts.h"

/* Flat tables are asked of the library itself, without a layout: other subjects have nothing to say. */
static inline bool golden_flat_asks(const golden_case *c) { return c->subject == &golden_library; }

/* A list of sizes; the count of them. At most TREADLE_MAX_AXES. */
int golden_flat_shape(const json_t *list, int64_t *shape);

/* Adds the elements of a box of a row-major tensor of this shape, at the addresses that the box has. */
void golden_flat_add(golden_runs *runs, int32_t tensor, const int64_t *shape, int ndim,
                     const treadle_strided *part);
/* Sorts the runs and joins those that go on in one another. */
void golden_flat_join(golden_runs *runs);

/* Compares joined runs with [start, start in the tensor, count], or, has_tensor, with [start, tensor, start
 * in the tensor, count], where tensor -1 is padding and its start the stored value. */
golden_verdict golden_flat_compare(const golden_case *c, const char *where, const golden_runs *runs,
                                   const json_t *golden, bool has_tensor);

/* The layouts of cases that are whole models: golden_flat_layouts.c. Their tables are equal already. */
golden_verdict golden_compare_fsdp1_layout(golden_case *c);
golden_verdict golden_compare_distopt_layout(golden_case *c);

/* "T0/2,R,S1", P for Partial, into the placements of at most TREADLE_MAX_AXES places; the count of them. */
int golden_flat_placements(const char *text, treadle_mesh_placement *places);

#endif
