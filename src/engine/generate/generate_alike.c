/* What the ranks of a call that generates must be given alike: they make the same plan of who goes on. They compare a hash. */
#include "generate/generate_call.h"

#include "base/hash.h"

static uint64_t more_values(uint64_t hash, const treadle_sampling_values *s) {
  const double reals[] = {
      s->temperature, s->top_p, s->min_p, s->repetition_penalty, s->presence_penalty, s->frequency_penalty};
  const int64_t whole[] = {s->top_k,    s->max_tokens, s->min_tokens, s->n,
                           s->logprobs, s->ignore_eos, s->has_seed,   s->seed};
  hash = treadle_hash_more_bytes(hash, reals, sizeof reals);
  hash = treadle_hash_more_bytes(hash, whole, sizeof whole);
  for (int32_t i = 0; i < s->stop_count; i++)
    hash = treadle_hash_more_bytes(hash, s->stop[i].bytes, s->stop[i].count);
  return treadle_hash_more_bytes(hash, s->stop_ids, (size_t)s->stop_id_count * sizeof *s->stop_ids);
}

static uint64_t hash_of(const treadle_generate_call *call) {
  const treadle_generate_options *o = &call->options;
  const int64_t whole[] = {o->seed, o->scaled, o->drawn, o->most_kept};
  uint64_t hash = treadle_hash_more_bytes(0, whole, sizeof whole);
  hash = treadle_hash_more_bytes(hash, o->never, o->never_count * sizeof *o->never);
  hash = treadle_hash_more_bytes(hash, call->eos.ids, (size_t)call->eos.count * sizeof *call->eos.ids);
  for (size_t i = 0; i < call->requests.items.count; i++) {
    const treadle_request *r = &call->requests.items.items[i];
    hash = more_values(hash, &r->sampling);
    hash = treadle_hash_more_bytes(hash, r->input.tokens,
                                   (size_t)r->input.token_count * sizeof *r->input.tokens);
  }
  return hash;
}

treadle_status treadle_generate_call_agree(const treadle_generate_call *call, const char *name,
                                           treadle_status status) {
  const treadle_generator *e = call->engine;
  treadle_group_call ours = {
      .name = name,
      .alike = {{.what = call->divided ? "requests and options"
                                       : "prompts and sampling values, as ranks of one replica",
                 .among = call->divided ? 0 : e->replica.place.number}},
      .count = 1};
  if (e->group && !status) ours.alike[0].hash = hash_of(call);
  return treadle_generator_agree_on(e, status, &ours);
}
