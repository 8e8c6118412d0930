/* Megatron saves its arguments (checkpointing.py, generate_state_dict) in each file, with the global rank of the process that wrote it. In
 * every order of ranks that its arguments can ask for tensor parallel ranks are the fastest; pipeline stages are the slowest, or with
 * use_tp_pp_dp_mapping those after tp and cp (initialize.py). Experts' ranks have more orders, and are not looked at.
 *
 * Converters write all files in one process, or in some that share the work otherwise: their ranks say nothing. So files are refused only if
 * the ranks of all of them are there, no two alike, and make the coordinates that the layout has, each as often: then no file is missing and
 * none is too many, and they stand in other places. */
#include "convert/megatron_writers.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct writer {
  int64_t rank, tp, pp;
} writer;

/* The attributes of a Namespace; NULL: it is something else. */
static const treadle_pickle_items *arguments_of(const treadle_torch *torch) {
  const treadle_value *value = treadle_pairs_get(torch->top, "args");
  return value && value->type == TREADLE_VALUE_CALL ? treadle_value_pairs(value->is.call->state) : NULL;
}

/* A whole number from `least` on; one that is not there is `otherwise`. */
static bool number_of(const treadle_pickle_items *arguments, const char *name, int64_t least,
                      int64_t otherwise, int64_t *number_p) {
  const treadle_value *value = treadle_pairs_get(arguments, name);
  *number_p = otherwise;
  if (value && value->type != TREADLE_VALUE_NONE && !treadle_value_int(value, number_p)) return false;
  return *number_p >= least && *number_p <= INT32_MAX;
}

static bool is_true(const treadle_pickle_items *arguments, const char *name) {
  const treadle_value *value = treadle_pairs_get(arguments, name);
  return value && value->type == TREADLE_VALUE_BOOL && value->is.integer;
}

/* False: the arguments do not say it, or are of other sizes than the layout. */
static bool read_writer(const treadle_torch *torch, const int64_t sizes[2], writer *w) {
  const treadle_pickle_items *arguments = arguments_of(torch);
  int64_t world, tp, pp, cp, encoder;
  if (!arguments || !number_of(arguments, "rank", 0, -1, &w->rank) ||
      !number_of(arguments, "world_size", 1, -1, &world) ||
      !number_of(arguments, "tensor_model_parallel_size", 1, -1, &tp) ||
      !number_of(arguments, "pipeline_model_parallel_size", 1, -1, &pp) ||
      !number_of(arguments, "context_parallel_size", 1, 1, &cp) ||
      !number_of(arguments, "encoder_pipeline_model_parallel_size", 0, 0, &encoder) || encoder > 0 ||
      tp != sizes[0] || pp != sizes[1] || w->rank >= world || world % (tp * pp) != 0 ||
      world / (tp * pp) % cp != 0)
    return false;
  w->tp = w->rank % tp;
  w->pp = is_true(arguments, "use_tp_pp_dp_mapping") ? w->rank / (tp * cp) % pp : w->rank / (world / pp);
  return true;
}

static int compare(const void *a_, const void *b_) {
  const writer *a = a_, *b = b_;
  if (a->tp != b->tp) return a->tp < b->tp ? -1 : 1;
  if (a->pp != b->pp) return a->pp < b->pp ? -1 : 1;
  return (a->rank > b->rank) - (a->rank < b->rank);
}

static int by_rank(const void *a, const void *b) {
  const int64_t x = ((const writer *)a)->rank, y = ((const writer *)b)->rank;
  return (x > y) - (x < y);
}

/* Are no two ranks alike, and the coordinates those of the layout? Sorts both. */
static bool is_exchange(writer *said, writer *wanted, int32_t count) {
  qsort(said, (size_t)count, sizeof *said, by_rank);
  for (int32_t i = 1; i < count; i++)
    if (said[i].rank == said[i - 1].rank) return false;
  qsort(said, (size_t)count, sizeof *said, compare);
  qsort(wanted, (size_t)count, sizeof *wanted, compare);
  for (int32_t i = 0; i < count; i++)
    if (said[i].tp != wanted[i].tp || said[i].pp != wanted[i].pp) return false;
  return true;
}

treadle_status treadle_megatron_check_writers(const treadle_layout *layout,
                                              const treadle_megatron_file *files, int32_t count) {
  writer *said = treadle_alloc_array((size_t)count + 1, sizeof *said),
         *wanted = treadle_alloc_array((size_t)count + 1, sizeof *wanted), is = {0}, is_not = {0};
  int64_t sizes[2] = {1, 1}; /* tp, pp */
  int32_t other = -1;
  treadle_status status = TREADLE_OK;
  if (!said || !wanted)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the writers of %d files", (int)count));
  for (int32_t i = 0; i < count; i++) {
    TRY(treadle_layout_coordinate(layout, files[i].rank, "tp", &wanted[i].tp));
    TRY(treadle_layout_coordinate(layout, files[i].rank, "pp", &wanted[i].pp));
    if (wanted[i].tp >= sizes[0]) sizes[0] = wanted[i].tp + 1;
    if (wanted[i].pp >= sizes[1]) sizes[1] = wanted[i].pp + 1;
  }
  for (int32_t i = 0; i < count; i++) {
    if (!read_writer(files[i].torch, sizes, &said[i])) goto out;
    if (other >= 0 || (said[i].tp == wanted[i].tp && said[i].pp == wanted[i].pp)) continue;
    other = i;
    is = said[i];
    is_not = wanted[i];
  }
  if (other >= 0 && is_exchange(said, wanted, count))
    status = treadle_fail(TREADLE_REFUSED,
                          "%s: its arguments say that rank %" PRId64
                          " wrote it, of tensor parallel rank %" PRId64 " and pipeline stage %" PRId64
                          ", and its folder is that of %" PRId64 " and %" PRId64
                          ": files of this checkpoint have changed places; put each back",
                          files[other].path, is.rank, is.tp, is.pp, is_not.tp, is_not.pp);
out:
  treadle_free(said);
  treadle_free(wanted);
  return status;
}
