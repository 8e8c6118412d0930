/* Copies and fp8 blocks spoiled on purpose. A rank is chosen that has a copy to spoil; the same for every rank, since all
 * say whether they have one. */
#include "cli/prove.h"

#include "base/alloc.h"
#include "cli/compare.h"
#include "switch/prove.h"

#include <stdio.h>
#include <string.h>

typedef struct outcome {
  treadle_status status; /* of the switch with the fault */
  treadle_mode mode;     /* afterwards */
  bool bound;            /* nothing caught it */
  char message[1000];
} outcome;

/* Plants the fault on the first rank from `start` on that can have it. *victim_p is -1 when none can. */
static treadle_status plant(const treadle_prove_input *input, treadle_switch *sw, treadle_fault fault,
                            int start, int *victim_p) {
  treadle_status status = TREADLE_OK;
  const treadle_session *session = input->session;
  int32_t can = treadle_switch_plant(sw, fault, session->rank, (uint64_t)start) == TREADLE_OK;
  int32_t *all = treadle_alloc_array((size_t)session->size, sizeof *all);
  if (!all) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %d ranks", session->size);
  TRY(treadle_group_gather(session->group, &can, sizeof can, all));
  *victim_p = -1;
  for (int i = session->size - 1; i >= 0; i--)
    if (all[(start + i) % session->size]) *victim_p = (start + i) % session->size;
  if (can && *victim_p != session->rank)
    (void)treadle_switch_plant(sw, TREADLE_FAULT_NONE, session->rank, 0);
out:
  treadle_free(all);
  return status;
}

/* Switches with the fault planted. wrong_value: no more than that, so windows are compared. The victim's outcome and whether any rank let it through. */
static treadle_status spoil(const treadle_prove_input *input, treadle_switch *sw, int victim,
                            bool wrong_value, outcome *caught_p, bool *bound_p) {
  treadle_status status = TREADLE_OK;
  const treadle_session *session = input->session;
  outcome own = {.status = treadle_switch_to_infer(sw), .mode = treadle_switch_mode(sw)};
  bool bound = own.status == TREADLE_OK || own.mode == TREADLE_INFER;
  if (own.status == TREADLE_OK && wrong_value) {
    own.status = treadle_compare_window(input->infer, input->model, session->rank,
                                        treadle_switch_infer_window(sw), input->infer_copy, "compared");
    bound = own.status == TREADLE_OK && session->rank == victim;
  }
  own.bound = bound;
  snprintf(own.message, sizeof own.message, "%s", own.status ? treadle_error_message() : "");
  outcome *all = treadle_alloc_array((size_t)session->size, sizeof *all);
  if (!all) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %d ranks", session->size);
  TRY(treadle_group_gather(session->group, &own, sizeof own, all));
  *caught_p = all[victim];
  *bound_p = false;
  for (int rank = 0; rank < session->size; rank++)
    if (all[rank].bound) *bound_p = true;
out:
  treadle_free(all);
  return status;
}

static treadle_status prove(const treadle_prove_input *input, treadle_fault fault, const char *name) {
  treadle_status status = TREADLE_OK;
  treadle_session *session = input->session;
  treadle_switch *sw = NULL;
  int victim = -1, start = (int)fault % session->size;
  const char *what = treadle_fault_is_of_bands(fault) ? "a row of fp8 blocks" : "one copy";
  TRY(treadle_session_agree(
      session, treadle_switch_create(session->group, input->train, input->infer, input->options, &sw)));
  TRY(treadle_session_agree(
      session, treadle_layout_load(input->train, session->rank, treadle_switch_train_window(sw))));
  treadle_switch_noise(sw, (uint64_t)fault);
  TRY(plant(input, sw, fault, start, &victim));
  if (victim < 0) {
    if (session->rank == 0 && !treadle_fault_is_of_bands(fault))
      fprintf(input->file, "prove: no rank has a copy that could be %s\n", name);
    goto out;
  }
  outcome caught;
  bool bound = false;
  TRY(spoil(input, sw, victim, fault == TREADLE_FAULT_BAND_SCALE, &caught, &bound));
  if (bound)
    TRY(treadle_session_agree(session,
                              treadle_fail(TREADLE_DIFFERENT, "%s of rank %d was %s, and nothing caught it",
                                           what, victim, name)));
  if (caught.mode == TREADLE_TRAIN) {
    uint64_t digest;
    TRY(treadle_switch_digest(sw, &digest));
    if (digest != input->digest)
      TRY(treadle_session_agree(
          session,
          treadle_fail(TREADLE_DIFFERENT, "the training weights do not stand after: %s", caught.message)));
  }
  if (session->rank == 0)
    fprintf(input->file, "prove: %s of rank %d was %s; caught: %s\n", what, victim, name, caught.message);
out:
  treadle_switch_destroy(sw);
  return status;
}

treadle_status treadle_prove_faults(const treadle_prove_input *input) {
  static const struct {
    treadle_fault fault;
    const char *name;
  } faults[] = {{TREADLE_FAULT_DROP, "dropped"},
                {TREADLE_FAULT_DOUBLE, "doubled"},
                {TREADLE_FAULT_MISPLACE, "misplaced"},
                {TREADLE_FAULT_BAND_DROP, "left out"},
                {TREADLE_FAULT_BAND_LATE, "made in a wrong wave"},
                {TREADLE_FAULT_BAND_SCALE, "given a wrong scale"}};
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
    TRY(prove(input, faults[i].fault, faults[i].name));
out:
  return status;
}
