/* Attention backward, of a step's rows: sequence by sequence, and each with those that go on from it. */
#ifndef TREADLE_TRAIN_BACK_ATTEND_H
#define TREADLE_TRAIN_BACK_ATTEND_H

#include "nn/attention_back.h"
#include "train/back.h"

/* Where it all lies, in values. */
typedef struct treadle_back_attention {
  treadle_attention_back first; /* of row 0 and head 0; its rows and `before` are left empty */
  int64_t heads;                /* of keys and values */
  int64_t q_step, k_step, v_step, out_step, dk_step,
      dv_step; /* from one of these heads to the next; dq and dout: as q and out */
} treadle_back_attention;

void treadle_back_attend(const treadle_back *back, const treadle_pass_step *step,
                         const treadle_back_attention *attention);

#endif
