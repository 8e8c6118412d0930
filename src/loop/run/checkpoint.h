/* Checkpoints of a run: whole or not at all, found again, and given up by age.
 *
 *   RUN/global_step_K/actor/huggingface/                           the weights, as a model
 *                     actor/optimizer/{master,exp_avg,exp_avg_sq}/ the same of fp32, each a model too
 *                     actor/lora_adapter/, actor/optimizer/..          peft's, where adapters train; then actor/huggingface is there if merged
 *                                                                  weights were asked for, and no part but that is a model
 *                     critic/huggingface, critic/optimizer/...     the same of a critic, where the run has one
 *                     data.json, rng.json                          where in the data the run is, and its random numbers
 *                     digests.json                                 of all of these (checkpoint_digests.h)
 *   RUN/latest_checkpointed_iteration.txt                          K of the newest
 *
 * A checkpoint is made as RUN/global_step_K.PID-N.tmp and renamed when all is in it and on the disk; the file with its number follows. What
 * goes is renamed to such a name first, so that a folder global_step_K is never half a checkpoint. What killed runs left under these
 * names goes when the next run owns the folder (io/folder_lock.h), and at its saves. Nothing else in RUN is touched.
 *
 * Retention is verl's (utils/checkpoint/checkpoint_manager.py): before a save all but the max - 1 newest go, but none where max is 1, so that
 * the newest stays until the next is whole; after it all but the max newest. max 0 keeps all. Checkpoints of later steps than the one that is
 * saved are of another course of the run: they are neither counted nor removed, until the run comes to their step and replaces them. */
#ifndef TREADLE_RUN_CHECKPOINT_H
#define TREADLE_RUN_CHECKPOINT_H

#include "base/array.h"
#include "layout/layout.h"

typedef TREADLE_ARRAY(int64_t) treadle_steps;

/* ---- Names (checkpoint_steps.c) ---- */

/* K of a path that ends in "global_step_K"; -1: it does not. */
int64_t treadle_train_checkpoint_step_of(const char *path);
/* Appends the steps of the checkpoints of a run, ascending. A run that is not there has none. */
treadle_status treadle_train_checkpoint_list(const char *run, treadle_steps *steps);
/* Where to go on: the checkpoint that latest_checkpointed_iteration.txt names, or, where that is not whole, the newest that is. -1: there is
 * none at all. Refused: there are some, but none has all of its parts; the message has what the newest lacks. */
treadle_status treadle_train_checkpoint_find(const char *run, int64_t *step_p);
/* What a person should know of where a run goes on: another checkpoint than that file says or than the newest, and names like a checkpoint's
 * that are none ("global_step_02", a link). `step` is what was found. A line for each goes to `tell`. */
treadle_status treadle_train_checkpoint_tell(const char *run, int64_t step,
                                             void (*tell)(void *context, const char *line), void *context);
/* Does the folder of a checkpoint have all of its parts? Refused, with what it lacks. That the parts are what they should be shows when they are
 * loaded. */
treadle_status treadle_train_checkpoint_check(const char *folder);

/* How many of `count` checkpoints, the oldest of them, go before one more is saved; and after that, which counts with them. */
size_t treadle_train_checkpoint_expired_before(size_t count, int64_t max_to_keep);
size_t treadle_train_checkpoint_expired_after(size_t count, int64_t max_to_keep);

/* ---- Saving ---- */

/* Of each role weights, master, exp_avg, exp_avg_sq: first those of the actor, then those of a critic. */
enum { TREADLE_CHECKPOINT_PARTS = 4, TREADLE_CHECKPOINT_PARTS_MOST = 8 };
extern const char *const treadle_train_checkpoint_parts
    [TREADLE_CHECKPOINT_PARTS_MOST]; /* their folders: "actor/huggingface", ... */
/* Does a checkpoint have this one, as its folders critic/ and actor/lora_adapter say? */
bool treadle_train_checkpoint_has_part(const char *folder, int part);

typedef struct treadle_train_checkpoint {
  const char *run; /* a folder that is there */
  int64_t step;
  int64_t max_to_keep; /* 0: all */
  treadle_status (*save)(
      void *context,
      const char *folder); /* writes what actor/ has in it, on all ranks; actor/optimizer is there */
  /* The same of critic/; NULL: there is no critic. */
  treadle_status (*save_critic)(void *context, const char *folder);
  void *context;
  const char *data, *rng; /* JSON; of rank 0 */
  const char *families;   /* of treadle_model_options */
  bool
      shared; /* others may write here, too, as no lock says who is alive: nothing that was left is removed */
} treadle_train_checkpoint;

/* Removes what dead owners of a run's folder have left in it, by the names of above. For who owns it. */
treadle_status treadle_train_checkpoint_clean(const char *run);

/* Collective, as treadle_layout_save is; group: NULL is one rank. When it fails, the checkpoints that were there are still there, but those
 * that retention lets go before a save. */
treadle_status treadle_train_checkpoint_save(treadle_group *group,
                                             const treadle_train_checkpoint *checkpoint);

#endif
