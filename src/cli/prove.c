/* Copies and fp8 blocks spoiled on purpose. A rank is chosen that has a copy to spoil; the same for every rank, since all
 * say whether they have one. */
#include "cli/prove.h"

#include "base/alloc.h"
#include "cli/compare.h"
#include "cli/own_memory.h"
#include "treadle_testing.h"

#include <stdio.h>
#include <string.h>

typedef struct outcome {
  treadle_status status; /* of the switch with the fault */
  treadle_mode mode;     /* afterwards */
  bool bound;            /* nothing caught it */
  char message[1024];
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
    const treadle_window_source window = {.sw = sw, .which = TREADLE_INFER_PARAMS};
    own.status = treadle_compare_window(input->infer, input->model, session->rank, treadle_switch_plan(sw),
                                        &window, input->infer_copy, "compared");
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

/* ---- Types of faults ---- */

typedef enum variety { AS_GIVEN, TIGHT, WITH_TWIN, WITH_ALIAS } variety;

static const struct {
  treadle_fault fault;
  const char *what, *name;
  variety variety;
  treadle_injection_point slow; /* where the other ranks are late; TREADLE_INJECTION_POINTS: nowhere */
} faults[] = {
    {TREADLE_FAULT_DROP, "one copy", "dropped", AS_GIVEN, TREADLE_INJECTION_POINTS},
    {TREADLE_FAULT_DOUBLE, "one copy", "doubled", AS_GIVEN, TREADLE_INJECTION_POINTS},
    {TREADLE_FAULT_MISPLACE, "one copy", "misplaced", AS_GIVEN, TREADLE_INJECTION_POINTS},
    {TREADLE_FAULT_BLOCK_ROW_DROP, "a row of fp8 blocks", "left out", AS_GIVEN, TREADLE_INJECTION_POINTS},
    {TREADLE_FAULT_BLOCK_ROW_LATE, "a row of fp8 blocks", "made in a wrong wave", AS_GIVEN,
     TREADLE_INJECTION_POINTS},
    {TREADLE_FAULT_BLOCK_ROW_SCALE, "a row of fp8 blocks", "given a wrong scale", AS_GIVEN,
     TREADLE_INJECTION_POINTS},
    {TREADLE_FAULT_EARLY, "a page", "reclaimed early", TIGHT, TREADLE_AT_WAVE},
    {TREADLE_FAULT_LATE_TWIN, "the twin of a page", "copied late", WITH_TWIN, TREADLE_INJECTION_POINTS},
    {TREADLE_FAULT_SKIP_COMMIT, "the commit", "skipped", AS_GIVEN, TREADLE_AT_COMMIT},
    {TREADLE_FAULT_ALIAS, "a shared page", "put on a wrong one", WITH_ALIAS, TREADLE_INJECTION_POINTS},
};

enum { FAULTS = sizeof faults / sizeof faults[0] };

/* The options with which a fault can be planted: the smallest cap where pages must be reclaimed. */
static treadle_switch_options options_of(const treadle_prove_input *input, size_t i) {
  /* Pages are reused, and shared, where windows have them. */
  treadle_switch_options o =
      faults[i].variety == AS_GIVEN ? *input->options : treadle_own_memory_without(input->options);
  o.watch = NULL;
  if (faults[i].variety == TIGHT || faults[i].variety == WITH_TWIN) {
    o.cap_bytes = input->cap_min_bytes;
    o.budget_bytes = 0;
    o.alias = false; /* what is shared is not reclaimed */
    o.offload_train_param = TREADLE_ON;
    o.keep = faults[i].variety == WITH_TWIN ? TREADLE_KEEP_HOST : TREADLE_KEEP_INFER;
  }
  if (faults[i].variety == WITH_ALIAS) o.alias = true;
  return o;
}

static treadle_status prove(const treadle_prove_input *input, size_t i) {
  treadle_status status = TREADLE_OK;
  treadle_session *session = input->session;
  treadle_fault fault = faults[i].fault;
  treadle_switch *sw = NULL;
  const treadle_switch_options options = options_of(input, i);
  int victim = -1, start = (int)i % session->size;
  const char *what = faults[i].what, *name = faults[i].name;
  TRY(treadle_session_agree(
      session, treadle_switch_create(session->group, input->train, input->infer, &options, &sw)));
  TRY(treadle_session_agree(session, treadle_load_params(sw, input->train, session->rank)));
  treadle_switch_noise(sw, (uint64_t)fault);
  TRY(plant(input, sw, fault, start, &victim));
  if (victim < 0) {
    if (session->rank == 0 && fault < TREADLE_FAULT_BLOCK_ROW_DROP)
      fprintf(input->file, "prove: no rank has %s that could be %s\n", what, name);
    goto out;
  }
  if (faults[i].slow != TREADLE_INJECTION_POINTS && session->rank != victim)
    (void)treadle_switch_inject(sw, (treadle_injection){TREADLE_INJECT_SLOW, faults[i].slow, 0});
  outcome caught;
  bool bound = false;
  TRY(spoil(input, sw, victim, fault == TREADLE_FAULT_BLOCK_ROW_SCALE, &caught, &bound));
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
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < FAULTS; i++) TRY(prove(input, i));
out:
  return status;
}
