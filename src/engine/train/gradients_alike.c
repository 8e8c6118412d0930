/* What ranks must be given alike: options, all of them; rows, those of one data parallel coordinate. They compare hashes. */
#include "train/gradients.h"

#include "base/hash.h"

static uint64_t hash_forward(const treadle_forward_options *f) {
  const double temperature = f->temperature == 0 ? 1 : f->temperature;
  uint64_t hash = treadle_hash_more((uint64_t)f->micro_batch_size, (uint64_t)f->max_tokens_per_micro);
  hash = treadle_hash_more_bytes(hash, &temperature, sizeof temperature);
  hash = treadle_hash_more(hash, f->entropies + 2u * f->replay_experts + 4u * f->experts);
  return treadle_hash_more_bytes(hash, f->never_count ? f->never : NULL, f->never_count * sizeof *f->never);
}

static uint64_t hash_loss(const treadle_train_work *w) {
  const treadle_ppo *p = &w->ppo;
  const double numbers[] = {p->clip_low,      p->clip_high, p->clip_c,        p->norm_length,
                            p->entropy_coeff, p->kl_coef,   p->importance_cap};
  const double value[] = {w->value.clip, w->value.weights.norm_length};
  uint64_t hash = 2 * (uint64_t)w->loss + w->elsewhere;
  if (w->loss == TREADLE_LOSS_VALUE) {
    hash = treadle_hash_more_bytes(hash, value, sizeof value);
    return treadle_hash_more(hash, w->value.weights.aggregation);
  }
  if (w->loss != TREADLE_LOSS_PPO) return hash;
  hash = treadle_hash_more_bytes(hash, numbers, sizeof numbers);
  hash = treadle_hash_more(hash, p->aggregation);
  return treadle_hash_more(hash, p->use_kl ? 1 + (uint64_t)p->kl_kind : 0);
}

static uint64_t hash_rows(const treadle_train_work *w) {
  const treadle_train_values *v = &w->values;
  const size_t ids = (size_t)w->ids;
  const size_t experts = w->choices.given ? (size_t)w->choices.given_first[w->count] : 0;
  size_t prompts = 0, kept = 0;
  uint64_t hash = w->count;
  for (size_t r = 0; r < w->count; r++) {
    hash = treadle_hash_more(hash, (uint64_t)w->rows[r].prompt_count);
    hash = treadle_hash_more(hash, (uint64_t)w->rows[r].count);
    prompts += (size_t)w->rows[r].prompt_count;
  }
  for (size_t i = 0; v->kept && i < ids; i++) kept += (size_t)v->kept_counts[i];
  const treadle_hash_piece columns[] = {{w->count ? w->rows->prompt : NULL, prompts * sizeof(int32_t)},
                                        {w->count ? w->rows->ids : NULL, ids * sizeof(int32_t)},
                                        {w->count ? w->rows->mask : NULL, ids},
                                        {v->old, ids * sizeof *v->old},
                                        {v->ref, ids * sizeof *v->ref},
                                        {v->rollout, ids * sizeof *v->rollout},
                                        {v->old_values, ids * sizeof *v->old_values},
                                        {v->returns, ids * sizeof *v->returns},
                                        {v->advantages, ids * sizeof *v->advantages},
                                        {v->advantage, w->count * sizeof *v->advantage},
                                        {v->kept_counts, ids * sizeof *v->kept_counts},
                                        {v->kept, kept * sizeof *v->kept},
                                        {v->micro_batch, w->count * sizeof *v->micro_batch},
                                        {w->choices.given, experts}};
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
    hash = treadle_hash_more_bytes(hash, columns[i].at, columns[i].bytes);
  return hash;
}

treadle_status treadle_train_agree_on_work(const treadle_train_work *w, const char *name,
                                           treadle_status status) {
  treadle_group_call call = {
      .name = name,
      .alike = {{.what = "forward options"},
                {.what = "loss options, and other weights or none"},
                {.what = "rows, as ranks of one data parallel coordinate", .among = w->t->data_rank}},
      .count = 3};
  if (!w->t->ranks.group) return status;
  if (!status) {
    call.alike[0].hash = hash_forward(&w->forward);
    call.alike[1].hash = hash_loss(w);
    /* Where each rank has a coordinate of its own, nobody else has its rows. */
    if (w->t->data_ranks < treadle_group_size(w->t->ranks.group)) call.alike[2].hash = hash_rows(w);
  }
  return treadle_train_agree_on(&w->t->ranks, status, &call);
}
