/* One run of `treadle switch`: what its files share.
 *
 *   switch.c         the command: cycles, and the report
 *   switch_steps.c   its steps: loading, arrows that are timed, memcpy, checks
 *   switch_update.c  the updates of --update
 *   switch_served.c  the old version while they run (--double on)
 *   switch_fault.c   the run with --fault
 *   switch_report.c  tables and JSON
 *   interrupt.c      Ctrl-C
 *   switch_nodes.c   what went between nodes
 *   own_memory.c     --own
 *   hold.c           gradients and optimizer state; timeline.c, timeline_draw.c: the picture */
#ifndef TREADLE_CLI_SWITCH_JOB_H
#define TREADLE_CLI_SWITCH_JOB_H

#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/own_memory.h"
#include "cli/session.h"
#include "cli/switch_report.h"
#include "cli/timeline.h"
#include "treadle_testing.h"

#include <stdatomic.h>

typedef struct treadle_fault_spec { /* of --fault */
  treadle_injection injection;
  int rank, node; /* one of them is -1 */
} treadle_fault_spec;

typedef struct treadle_job {
  const treadle_arguments *arguments;
  const treadle_switch_arguments *asked; /* those that switch alone takes */
  treadle_session session;
  treadle_interrupt interrupt; /* cancels switches of the cycles */
  treadle_model *model;
  treadle_layout *train, *infer;
  const char *rank_map;
  treadle_fault_spec fault;
  treadle_own_memory own;
  treadle_switch_stats to_infer_stats; /* of the last switch to infer */
  treadle_switch_stats update_stats;   /* of the last update */
  double changed;                      /* of --changed */
  treadle_switch_options options;
  treadle_switch *sw;
  treadle_plan_info plan;
  treadle_timeline *timeline;
  int bound_engines; /* of the stand-in engine: 0 or 1 */
  void *infer_copy;  /* what the infer window holds in mode INFER; with --check, a direct cut of the file */
  void *train_copy;  /* --check: what the train window held at first */
  uint64_t digest;
  int64_t timed;                        /* how many switches to infer were timed, and what they took: */
  double *to_infer, *to_train, *memcpy; /* barrier to barrier, largest over ranks */
  double *rate;                         /* memcpy over to_infer of the same cycle */
  double *own_seconds, *own_memcpy;     /* of this rank alone */
  int64_t updated;                      /* how many updates there were, and what each took */
  double *to_next, *unbound;
  atomic_bool serving;          /* --double on, --check: the stand-in engine is bound to the old version */
  void *served_copy;            /* and what that was */
  size_t served_bytes;          /* how much of it was looked at */
  treadle_switch_seconds parts; /* of this rank, sums over cycles */
  treadle_residency rows[TREADLE_RESIDENCY_ROWS];
  int row_count;
  treadle_switch_node *nodes; /* rank 0: what went between them */
} treadle_job;

/* Reads model and layouts, makes the switch, loads the weights; the digest of what is there. Collective. */
treadle_status treadle_job_prepare(treadle_job *job);
void treadle_job_release(treadle_job *job);

/* How many nodes the ranks are on. */
int treadle_job_nodes(const treadle_job *job);

/* The largest of all ranks' values. Collective. */
treadle_status treadle_job_largest(const treadle_job *job, double mine, double *largest_p);

/* Takes an arrow, from barrier to barrier; the seconds of the slowest rank. In the first cycle the residency afterwards
 * becomes a row. Collective. */
treadle_status treadle_job_arrow(treadle_job *job, treadle_mode mode, int64_t cycle, double *seconds_p);

/* One memcpy into the infer window of the bytes that a switch copies there, on all ranks at once. Collective. */
treadle_status treadle_job_memcpy(treadle_job *job, double *seconds_p, double *own_p);
/* The infer window as it is becomes the copy. */
treadle_status treadle_job_snapshot(treadle_job *job);

/* Compares the window of the present mode with its copy (--check), and the digest with the first one. Collective. */
treadle_status treadle_job_check(treadle_job *job, int64_t cycle, bool with_digest);

/* The updates of --update, in mode INFER; params and the copies of windows are in the end what they were. Collective. */
treadle_status treadle_job_updates(treadle_job *job);

/* An update, and a look at the old version while it runs: *found_p. Local, but for the update. */
treadle_status treadle_job_update_served(treadle_job *job, treadle_status *found_p);

/* The run with --fault, from the first switch on: prints its report, and ends the process. */
_Noreturn void treadle_job_fault(treadle_job *job);
/* Reads the value of --fault, for `ranks` ranks on `nodes` nodes. */
treadle_status treadle_fault_read(const char *text, int ranks, int nodes, treadle_fault_spec *fault_p);

/* What is said of the run as such. */
treadle_switch_report treadle_job_report(const treadle_job *job, const treadle_rank_figures *figures);
/* This rank's own figures. */
void treadle_job_figures(const treadle_job *job, treadle_rank_figures *own);

#endif
