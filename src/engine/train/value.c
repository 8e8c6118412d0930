#include "train/value.h"

#include "base/argument.h"

#include <math.h>

void treadle_value_of_token(const treadle_value_loss *loss, const treadle_value_token *token,
                            treadle_value_term *result_p) {
  const double v = token->value, low = token->old - loss->clip, high = token->old + loss->clip;
  const double held = v < low ? low : v > high ? high : v;
  const double plain = v - token->returns, other = held - token->returns;
  const bool clipped = other * other > plain * plain;
  const double far = clipped ? other : plain;
  *result_p = (treadle_value_term){.loss = token->weight * (far * far / 2),
                                   .by_value = clipped ? 0 : token->weight * plain,
                                   .value = v,
                                   .clipped = clipped};
}

treadle_status treadle_value_read(const treadle_loss_options *options, treadle_value_loss *loss_p) {
  treadle_status status;
  *loss_p = (treadle_value_loss){.clip = options->clip_value};
  if (!(options->clip_value >= 0))
    REFUSE("loss 'value': clip_value is %g: 0 at least, and infinity for no clip", options->clip_value);
  TRY(treadle_ppo_read_weights(options, &loss_p->weights));
out:
  return status;
}

void treadle_value_add(treadle_value_sums *sums, const treadle_value_term *term) {
  sums->loss += term->loss;
  sums->clipped += term->clipped;
  sums->value += term->value;
}

void treadle_value_figures(const treadle_value_sums *sums, int64_t tokens, treadle_loss *loss_p) {
  const double count = tokens ? (double)tokens : 1;
  loss_p->loss = loss_p->vf_loss = sums->loss;
  loss_p->vf_clipfrac = sums->clipped / count;
  loss_p->vpred_mean = sums->value / count;
}
