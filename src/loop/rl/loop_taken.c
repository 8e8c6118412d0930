#include "rl/taken.h"

treadle_status treadle_rl_take_rows(const treadle_worker_group *group, treadle_message *in,
                                    treadle_rl_rows_share *t) {
  treadle_status status;
  TRY(treadle_worker_take_rows(group, in, &t->share));
  TRY(treadle_batch_create(treadle_batch_rows(t->share.mine), &t->out));
out:
  return status;
}

void treadle_rl_put_rows_share(treadle_message *out, const treadle_rl_rows_share *t) {
  const treadle_message_rows rows = {.batch = t->out};
  treadle_message_put_int(out, t->share.range.first);
  treadle_message_put_rows(out, &rows);
}

void treadle_rl_rows_share_release(treadle_rl_rows_share *t) {
  treadle_batch_destroy(t->out);
  treadle_batch_destroy(t->share.mine);
}
