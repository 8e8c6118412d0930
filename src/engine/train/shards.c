/* FSDP2: each rank has a shard of every weight, of its gradient and of the optimizer's state, and computes with whole matrices, a unit at a
 * time. A unit is a layer; the embedding; the last norm with the head. Before it is used it is gathered out of the windows of all ranks,
 * which these see on the board; after backward its gradients, in fp32, are added up by whoever has the shard, rank after rank, micro batch
 * after micro batch.
 *
 * Whole matrices lie as in the layout hf, those of all units in the same place. */
#include "train/shards.h"

#include "base/dtype.h"
#include "group/group.h"
#include "weights/box_elements.h"

#include <string.h>

enum { LINE = 64 /* bytes */, BLOCK = 2048 /* elements that are added at once */ };

/* ---- Units ---------------------------------------------------------------------------------------------- */

/* Elements of a unit that follow each other there and in a rank's window. */
typedef struct shard_run {
  int64_t whole, own, count;
} shard_run;

typedef TREADLE_ARRAY(shard_run) shard_runs;

typedef struct unit_tensor {
  int32_t tensor;
  int64_t at, count; /* elements of the unit */
} unit_tensor;

typedef struct unit {
  TREADLE_ARRAY(unit_tensor) tensors;
  int64_t elements;
  shard_runs *weights; /* [ranks of the group that shares a copy] */
  shard_runs grads;    /* of this rank */
} unit;

struct treadle_train_shards {
  treadle_train_shard_parts of;
  treadle_layout *whole, *whole_grads; /* hf, on one rank */
  treadle_replica group;  /* the ranks that share a copy of the model; copies, where there are several */
  unit *units;            /* [layers + 2] */
  int32_t count, present; /* present: the unit that is gathered; -1: none */
  int64_t most;           /* elements of a unit */
  bool frozen;            /* weights do not train: units have no gradients */
  const char *shown;      /* weights that are gathered, of this rank */
  char *gathered;
  float *sum; /* [BLOCK] */
  treadle_board_set *all;
};

int32_t treadle_train_unit_embed(const treadle_transformer *transformer) {
  return (int32_t)transformer->layers;
}
int32_t treadle_train_unit_head(const treadle_transformer *transformer) {
  return (int32_t)transformer->layers + 1;
}

static treadle_status no_memory(void) { return treadle_fail(TREADLE_NO_MEMORY, "no memory for shards"); }

static treadle_status add_tensor(const treadle_model *model, unit *u, int32_t tensor) {
  const treadle_tensor *about;
  if (tensor < 0) return TREADLE_OK;
  about = &model->tensors[tensor];
  unit_tensor one = {.tensor = tensor, .at = u->elements, .count = 1};
  for (int d = 0; d < about->ndim; d++) one.count *= about->shape[d];
  u->elements += (one.count + LINE - 1) / LINE * LINE;
  return treadle_array_push(&u->tensors, one);
}

static treadle_status list_units(treadle_train_shards *s) {
  const treadle_transformer *d = s->of.back->transformer;
  const treadle_model *model = s->of.windows->layout->model;
  treadle_status status = TREADLE_OK;
  s->count = (int32_t)d->layers + 2;
  s->units = treadle_arena_alloc_array(s->of.arena, (size_t)s->count, sizeof *s->units);
  if (!s->units) return no_memory();
  for (int32_t l = 0; l < d->layers; l++)
    for (int role = 0; role < TREADLE_ROLES; role++)
      if (role != TREADLE_ROLE_ROUTER_BIAS) /* a buffer, which each rank has whole */
        TRY(add_tensor(model, &s->units[l], d->layer[l].tensor[role]));
  TRY(add_tensor(model, &s->units[treadle_train_unit_embed(d)], d->embed));
  TRY(add_tensor(model, &s->units[treadle_train_unit_head(d)], d->final_norm));
  TRY(add_tensor(model, &s->units[treadle_train_unit_head(d)], d->head));
  TRY(add_tensor(model, &s->units[treadle_train_unit_head(d)], d->score));
  TRY(add_tensor(model, &s->units[treadle_train_unit_head(d)], d->score_bias));
  for (int32_t u = 0; u < s->count; u++)
    if (s->units[u].elements > s->most) s->most = s->units[u].elements;
out:
  return status;
}

/* ---- Runs ----------------------------------------------------------------------------------------------- */

typedef struct run_finder {
  shard_runs *runs;
  int64_t whole, each; /* where the tensor begins in the unit; bytes of an element */
  treadle_status status;
} run_finder;

static void add_run(void *context, int64_t index, int64_t at, int64_t step, int64_t count) {
  run_finder *f = context;
  shard_run next = {.whole = f->whole + index, .own = at / f->each, .count = count};
  shard_run *last = f->runs->count ? &f->runs->items[f->runs->count - 1] : NULL;
  if (f->status) return;
  if (step != f->each && count > 1)
    f->status = treadle_fail(TREADLE_REFUSED, "a shard whose elements do not follow each other");
  else if (last && last->whole + last->count == next.whole && last->own + last->count == next.own)
    last->count += count;
  else
    f->status = treadle_array_push(f->runs, next);
}

/* What a rank has of a unit in a layout. */
static treadle_status find_runs(const treadle_layout *layout, int64_t rank, const unit *u,
                                shard_runs *runs) {
  const treadle_model *model = layout->model;
  treadle_pieces pieces = {0};
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < u->tensors.count; i++) {
    pieces.count = 0;
    TRY(treadle_layout_pieces_of(layout, rank, u->tensors.items[i].tensor, &pieces));
    for (size_t p = 0; p < pieces.count; p++) {
      const treadle_piece *piece = &pieces.items[p];
      if (piece->tensor != u->tensors.items[i].tensor) continue;
      treadle_elements elements = treadle_elements_of_whole(
          &model->tensors[piece->tensor], piece->box.start, piece->box.size, piece->offset, piece->stride);
      run_finder f = {.runs = runs,
                      .whole = u->tensors.items[i].at,
                      .each = (int64_t)treadle_dtype_bytes(piece->dtype)};
      elements.dtype = piece->dtype;
      treadle_elements_each(&elements, add_run, &f);
      TRY(f.status);
    }
  }
out:
  treadle_array_release(&pieces);
  return status;
}

static int64_t elements_of(const shard_runs *runs) {
  int64_t sum = 0;
  for (size_t i = 0; i < runs->count; i++) sum += runs->items[i].count;
  return sum;
}

/* Together the ranks that share a copy have each element once. */
static treadle_status find_unit(const treadle_train_shards *s, unit *u) {
  const treadle_train_windows *windows = s->of.windows;
  const treadle_replica *group = &s->group;
  int64_t found = 0, wanted = 0;
  treadle_status status = TREADLE_OK;
  u->weights = treadle_arena_alloc_array(s->of.arena, (size_t)group->rank_count, sizeof *u->weights);
  if (!u->weights) return no_memory();
  for (int i = 0; i < group->rank_count; i++) {
    TRY(find_runs(windows->layout, group->ranks[i], u, &u->weights[i]));
    found += elements_of(&u->weights[i]);
  }
  if (!s->frozen) TRY(find_runs(windows->grad_layout, windows->rank, u, &u->grads));
  for (size_t i = 0; i < u->tensors.count; i++) wanted += u->tensors.items[i].count;
  if (found != wanted)
    status = treadle_fail(TREADLE_REFUSED, "layout '%s': its shards have %lld elements of %lld",
                          windows->layout->text, (long long)found, (long long)wanted);
out:
  return status;
}

/* ---- Weights of a unit ----------------------------------------------------------------------------------- */

/* Matrix `number` of a tensor, in its place of the unit. */
static treadle_status place_expert(treadle_arena *arena, const unit *u, int32_t tensor, int64_t number,
                                   treadle_weight *weight) {
  treadle_segment *segment = treadle_arena_alloc_array(arena, 1, sizeof *segment);
  size_t i = 0;
  if (!segment) return no_memory();
  while (u->tensors.items[i].tensor != tensor) i++;
  const int64_t at = u->tensors.items[i].at + number * weight->rows * weight->columns;
  *segment = (treadle_segment){.at = (size_t)at * treadle_dtype_bytes(weight->dtype),
                               .rows = weight->rows,
                               .stride = weight->columns};
  weight->segments = segment;
  weight->segment_count = 1;
  return TREADLE_OK;
}

/* The whole matrix, in its place of the unit. */
static treadle_status place_weight(treadle_arena *arena, const unit *u, int32_t tensor,
                                   treadle_weight *weight) {
  return tensor < 0 ? TREADLE_OK : place_expert(arena, u, tensor, 0, weight);
}

/* The whole matrix of each expert. */
static treadle_status place_experts(treadle_arena *arena, const unit *u, int32_t tensor, int64_t experts,
                                    treadle_weight *weights) {
  treadle_status status = TREADLE_OK;
  for (int64_t e = 0; weights && e < experts; e++) TRY(place_expert(arena, u, tensor, e, &weights[e]));
out:
  return status;
}

static treadle_status place_layer(treadle_arena *arena, const unit *u, const treadle_transformer *d,
                                  int32_t layer, treadle_layer_weights *w) {
  const int32_t *tensor = d->layer[layer].tensor;
  const int64_t experts = d->routing.experts;
  treadle_status status = TREADLE_OK;
  w->weight[TREADLE_ROLE_ROUTER_BIAS].segment_count = 0; /* treadle_train_read_biases */
  for (int role = 0; role < TREADLE_ROLES; role++)
    if (w->weight[role].segment_count) TRY(place_weight(arena, u, tensor[role], &w->weight[role]));
  TRY(place_experts(arena, u, tensor[TREADLE_ROLE_EXPERT_GATE], experts, w->expert_gate));
  TRY(place_experts(arena, u, tensor[TREADLE_ROLE_EXPERT_UP], experts, w->expert_up));
  TRY(place_experts(arena, u, tensor[TREADLE_ROLE_EXPERT_DOWN], experts, w->expert_down));
out:
  return status;
}

treadle_status treadle_train_place_shards(const treadle_train_shards *s) {
  treadle_back *back = s->of.back;
  treadle_pass *pass = back->pass;
  treadle_arena *arena = s->of.arena;
  const treadle_transformer *d = back->transformer;
  const unit *head = &s->units[treadle_train_unit_head(d)], *embed = &s->units[treadle_train_unit_embed(d)];
  treadle_status status = TREADLE_OK;
  for (int32_t l = 0; l < d->layers; l++) {
    TRY(place_layer(arena, &s->units[l], d, l, &pass->layers[l]));
    TRY(place_layer(arena, &s->units[l], d, l, &back->grads[l]));
  }
  TRY(place_weight(arena, embed, d->embed, &pass->embed));
  TRY(place_weight(arena, embed, d->embed, &back->grad_embed));
  TRY(place_weight(arena, head, d->final_norm, &pass->final_norm));
  TRY(place_weight(arena, head, d->final_norm, &back->grad_final_norm));
  TRY(place_weight(arena, head, d->head, &pass->head));
  TRY(place_weight(arena, head, d->head, &back->grad_head));
  TRY(place_weight(arena, head, d->score, &back->score.weight));
  TRY(place_weight(arena, head, d->score, &back->score.grad_weight));
  TRY(place_weight(arena, head, d->score_bias, &back->score.bias));
  TRY(place_weight(arena, head, d->score_bias, &back->score.grad_bias));
out:
  return status;
}

/* ---- Making them ------------------------------------------------------------------------------------------ */

bool treadle_train_is_sharded(const treadle_layout *layout) {
  return strncmp(layout->text, "fsdp2", 5) == 0;
}

treadle_status treadle_train_open_shards(const treadle_train_shard_parts *of, bool plans,
                                         treadle_train_shards **shards_p) {
  const treadle_layout *layout = of->windows->layout;
  const treadle_transformer *d = of->back->transformer;
  treadle_dtype dtype = treadle_layout_dtype(layout, &layout->model->tensors[d->embed]);
  treadle_train_shards *s = treadle_arena_alloc(of->arena, sizeof *s);
  treadle_status status;
  if (!s) return no_memory();
  *s = (treadle_train_shards){.of = *of, .present = -1, .frozen = !of->windows->grad_layout};
  *shards_p = s;
  TRY(treadle_layout_create(layout->model, dtype == TREADLE_BF16 ? "hf:dtype=bf16" : "hf:dtype=fp32", 1,
                            NULL, &s->whole));
  TRY(treadle_layout_create(layout->model, "hf:dtype=fp32", 1, NULL, &s->whole_grads));
  TRY(list_units(s));
  if (plans) goto out;
  TRY(treadle_replica_find(d, layout, of->windows->rank, of->arena, &s->group));
  for (int32_t u = 0; u < s->count; u++) TRY(find_unit(s, &s->units[u]));
out:
  return status;
}

const treadle_layout *treadle_train_whole(const treadle_train_shards *s) { return s->whole; }
const treadle_layout *treadle_train_whole_grads(const treadle_train_shards *s) { return s->whole_grads; }

void treadle_train_close_shards(treadle_train_shards *s) {
  if (!s) return;
  for (int32_t u = 0; s->units && u < s->count; u++) {
    treadle_array_release(&s->units[u].tensors);
    treadle_array_release(&s->units[u].grads);
    for (int i = 0; s->units[u].weights && i < s->group.rank_count; i++)
      treadle_array_release(&s->units[u].weights[i]);
  }
  treadle_layout_destroy(s->whole);
  treadle_layout_destroy(s->whole_grads);
}

int64_t treadle_train_unit_bytes(const treadle_train_shards *s, treadle_dtype dtype) {
  return s ? s->most * (int64_t)treadle_dtype_bytes(dtype) : 0;
}

int64_t treadle_train_unit_grad_bytes(const treadle_train_shards *s) {
  return s && !s->frozen ? treadle_train_unit_bytes(s, TREADLE_FP32) : 0;
}

void treadle_train_place_gathered(treadle_train_shards *s, char *gathered, float *sum) {
  s->gathered = gathered;
  s->sum = sum;
}

char *treadle_train_gathered(const treadle_train_shards *s) { return s->gathered; }

int64_t treadle_train_shard_block(void) { return BLOCK; }

/* ---- Gathering -------------------------------------------------------------------------------------------- */

/* A rank's part of the board: its window of weights, then the gradients of a unit. */
uint64_t treadle_train_shard_board(const treadle_train_shards *s) {
  uint64_t weights = (s->of.windows->weight_bytes + LINE - 1) / LINE * LINE;
  return weights + (uint64_t)treadle_train_unit_grad_bytes(s);
}

treadle_status treadle_train_join_shards(treadle_train_shards *s) {
  return treadle_board_split(s->of.ranks->board, 0, &s->all);
}

static const char *weights_of(const treadle_train_shards *s, int rank) {
  treadle_board *board = s->of.ranks->board;
  return board ? treadle_board_part(board, rank) : s->shown;
}

static const float *gradients_of(const treadle_train_shards *s, int rank) {
  treadle_board *board = s->of.ranks->board;
  uint64_t at = (treadle_layout_window_bytes(s->of.windows->layout, rank) + LINE - 1) / LINE * LINE;
  if (!board) return (const float *)(const void *)s->of.back->window;
  return (const float *)(const void *)((const char *)treadle_board_part(board, rank) + at);
}

typedef struct gathering {
  const treadle_train_shards *s;
  const unit *u;
} gathering;

/* Each thread copies some of the runs of each rank. */
static void gather(void *context, int32_t index, int32_t count) {
  const gathering *w = context;
  const treadle_replica *group = &w->s->group;
  size_t each = treadle_dtype_bytes(w->s->of.back->pass->options.dtype);
  for (int i = 0; i < group->rank_count; i++) {
    const char *from = weights_of(w->s, group->ranks[i]);
    const shard_runs *runs = &w->u->weights[i];
    for (size_t r = (size_t)index; r < runs->count; r += (size_t)count) {
      const shard_run *run = &runs->items[r];
      memcpy(w->s->gathered + (size_t)run->whole * each, from + (size_t)run->own * each,
             (size_t)run->count * each);
    }
  }
}

void treadle_train_need(treadle_train_shards *s, int32_t number) {
  if (!s || s->present == number) return;
  gathering w = {.s = s, .u = &s->units[number]};
  treadle_pass *pass = s->of.back->pass;
  treadle_team_run(pass->team, gather, &w);
  if (number < pass->transformer->layers && !s->of.back->adapters) treadle_pass_renew_layer(pass, number);
  s->present = number;
}

void treadle_train_show_shards(treadle_train_shards *s, const void *weights) {
  if (!s) return;
  treadle_board *board = s->of.ranks->board;
  s->present = -1;
  s->shown = weights;
  if (board && weights != treadle_board_own(board))
    memcpy(treadle_board_own(board), weights, s->of.windows->weight_bytes);
}

void treadle_train_forget_unit(treadle_train_shards *s) {
  if (s) treadle_train_show_shards(s, s->of.windows->weights);
}

/* ---- Gradients -------------------------------------------------------------------------------------------- */

void treadle_train_begin_unit(treadle_train_shards *s, int32_t number) {
  if (s && !s->frozen) memset(s->of.back->window, 0, (size_t)s->units[number].elements * sizeof(float));
}

/* This rank's shard of a unit, from all ranks. */
static void add_shard(treadle_train_shards *s, const unit *u) {
  const treadle_row_ops *ops = s->of.back->pass->row_ops;
  const int64_t ranks = s->of.windows->layout->ranks;
  float *own = treadle_train_grads(s->of.windows);
  for (size_t r = 0; r < u->grads.count; r++) {
    const shard_run *run = &u->grads.items[r];
    for (int64_t at = 0; at < run->count; at += BLOCK) {
      int64_t some = run->count - at < BLOCK ? run->count - at : BLOCK;
      memcpy(s->sum, gradients_of(s, 0) + run->whole + at, (size_t)some * sizeof *s->sum);
      for (int rank = 1; rank < ranks; rank++)
        ops->add(s->sum, gradients_of(s, rank) + run->whole + at, TREADLE_FP32, some);
      ops->add(own + run->own + at, s->sum, TREADLE_FP32, some);
    }
  }
}

treadle_status treadle_train_end_unit(treadle_train_shards *s, int32_t number) {
  treadle_status status = TREADLE_OK;
  if (!s || s->frozen) return TREADLE_OK;
  if (s->all) TRY(treadle_board_meet(s->all, "gradients of a layer"));
  add_shard(s, &s->units[number]);
  if (s->all) TRY(treadle_board_meet(s->all, "gradients of a layer"));
out:
  return status;
}

treadle_status treadle_train_idle_batch(treadle_train_shards *s) {
  const treadle_transformer *d = s->of.back->transformer;
  treadle_status status = TREADLE_OK;
  for (int32_t i = 0; i < s->count; i++) {
    int32_t layers = (int32_t)d->layers;
    int32_t number = i == 0            ? treadle_train_unit_head(d)
                     : i == layers + 1 ? treadle_train_unit_embed(d)
                                       : layers - i;
    treadle_train_begin_unit(s, number);
    TRY(treadle_train_end_unit(s, number));
  }
out:
  return status;
}

bool treadle_train_answers(const treadle_train_shards *s) { return s->group.number == 0; }
