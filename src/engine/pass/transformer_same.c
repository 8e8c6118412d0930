/* Do two configs describe one computation? Shapes of tensors are what a layout compares; here is what no shape shows. */
#include "pass/transformer.h"

#include "nn/rope.h"

#include <stdio.h>
#include <string.h>

typedef struct number {
  const char *what;
  double mine, other;
} number;

static treadle_status compare_numbers(const treadle_transformer *a, const treadle_transformer *b,
                                      const number *numbers, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (numbers[i].mine != numbers[i].other)
      REFUSE("%s: %s is %.9g, and in %s it is %.9g", b->model->path, numbers[i].what, numbers[i].other,
             a->model->path, numbers[i].mine);
  return TREADLE_OK;
}

static treadle_status read_rope(const treadle_transformer *d, treadle_rope *rope_p) {
  const treadle_rope_spec spec = {.head_dim = d->rope_dim, .interleaved = d->interleaved};
  treadle_status status = treadle_rope_read(treadle_transformer_config(d), &spec, rope_p);
  return status ? treadle_fail_in(status, "%s: ", d->model->path) : status;
}

/* Positions turn by these frequencies, whatever words say so: rope_theta, rope_scaling, rope_parameters. */
static treadle_status compare_ropes(const treadle_transformer *a, const treadle_transformer *b) {
  treadle_rope x = {0}, y = {0};
  treadle_status status;
  TRY(read_rope(a, &x));
  TRY(read_rope(b, &y));
  const number numbers[] = {{"the number of rotated pairs of a head", (double)x.pairs, (double)y.pairs},
                            {"rope_theta", x.theta, y.theta},
                            {"the factor of rope", x.factor, y.factor},
                            {"the attention factor of rope", x.attention_factor, y.attention_factor},
                            {"the soft-max factor of rope", x.softmax_factor, y.softmax_factor},
                            {"rope interleaved", x.interleaved, y.interleaved}};
  TRY(compare_numbers(a, b, numbers, sizeof numbers / sizeof *numbers));
  for (int64_t i = 0; i < x.pairs; i++) {
    char what[64];
    snprintf(what, sizeof what, "frequency %lld of rope", (long long)i);
    const number one = {what, x.inverse[i], y.inverse[i]};
    TRY(compare_numbers(a, b, &one, 1));
  }
out:
  treadle_rope_release(&x);
  treadle_rope_release(&y);
  return status;
}

treadle_status treadle_transformer_compare(const treadle_transformer *a, const treadle_transformer *b) {
  const treadle_transformer_routing *r = &a->routing, *s = &b->routing;
  const number numbers[] = {
      {"the number of layers", (double)a->layers, (double)b->layers},
      {"the number of attention heads", (double)a->heads, (double)b->heads},
      {"the number of key and value heads", (double)a->kv_heads, (double)b->kv_heads},
      {"the size of a head", (double)a->head_dim, (double)b->head_dim},
      {"the epsilon of norms", a->eps, b->eps},
      {"the number of experts", (double)r->experts, (double)s->experts},
      {"the number of experts of a token", (double)r->top, (double)s->top},
      {"sigmoid routing", r->sigmoid, s->sigmoid},
      {"the renormalising of expert weights", r->renormalise, s->renormalise},
      {"the scale of routed experts", r->scale, s->scale},
      {"the number of expert groups", (double)r->groups, (double)s->groups},
      {"the number of groups of a token", (double)r->top_groups, (double)s->top_groups},
      {"the score of a group by its two best", r->group_top2, s->group_top2}};
  treadle_status status;
  TRY(compare_numbers(a, b, numbers, sizeof numbers / sizeof *numbers));
  for (int64_t l = 0; l < a->layers; l++)
    if (a->layer[l].rotates != b->layer[l].rotates || a->layer[l].sparse != b->layer[l].sparse)
      REFUSE("%s: layer %lld is not what it is in %s: its positions are %s, and it has %s", b->model->path,
             (long long)l, a->model->path, b->layer[l].rotates ? "rotated" : "not rotated",
             b->layer[l].sparse ? "experts" : "an MLP");
  TRY(compare_ropes(a, b));
out:
  return status;
}
