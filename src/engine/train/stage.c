/* The stage of a rank: which chunks of layers are its own, and the rings between them and those beside them. */
#include "train/stage.h"

/* ---- Chunks ------------------------------------------------------------------------------------------- */

/* Stages are sets of ranks with the same layers; chunk c is on stage c % stages. */
static treadle_status find_stages(treadle_train_stage *stage, const treadle_replica *r,
                                  const treadle_layout *layout) {
  int32_t stages = 1;
  while (stages < r->chunk_count && r->chunks[stages].ranks != r->chunks[0].ranks) stages++;
  stage->pipeline = (treadle_pipeline){.stages = stages, .chunks = r->chunk_count, .micro_batches = 1};
  if (r->chunk_count > TREADLE_TRAIN_CHUNKS)
    return treadle_fail(TREADLE_REFUSED, "layout '%s': %d chunks of layers; training takes at most %d",
                        layout->text, r->chunk_count, TREADLE_TRAIN_CHUNKS);
  if (stages > 1 && r->embed_copies & ~r->chunks[r->chunk_count - 1].ranks)
    REFUSE("layout '%s' has the embedding on a stage between the first and the last; training takes it on "
           "these two",
           layout->text);
  for (int32_t c = 0; c < r->chunk_count; c++)
    if (r->chunk_count % stages || r->chunks[c].ranks != r->chunks[c % stages].ranks)
      return treadle_fail(TREADLE_REFUSED,
                          "layout '%s': layer %d is on other ranks than the order of %d stages asks for",
                          layout->text, r->chunks[c].first_layer, stages);
  return TREADLE_OK;
}

treadle_status treadle_train_find_chunks(treadle_train_stage *stage, const treadle_pass *pass,
                                         const treadle_layout *layout) {
  const treadle_replica *r = pass->replica;
  int32_t place = 0;
  treadle_status status;
  TRY(find_stages(stage, r, layout));
  for (int32_t c = 0; c < r->chunk_count; c++) {
    if (!treadle_pass_has_chunk(pass, c)) continue;
    stage->number = c % stage->pipeline.stages;
    stage->ranks = __builtin_popcountll(r->chunks[c].ranks & treadle_replica_members(r));
    stage->chunks[stage->chunk_count++] = (treadle_train_chunk){.number = c,
                                                                .first_layer = r->chunks[c].first_layer,
                                                                .end_layer = r->chunks[c].end_layer,
                                                                .place = place};
    place += r->chunks[c].end_layer - r->chunks[c].first_layer;
  }
out:
  return status;
}

/* ---- Rings -------------------------------------------------------------------------------------------- */

/* The rank of this replica, and of its group, in stage `stage` with the same place in it as this one. */
static int peer_in(const treadle_pass *pass, int32_t stage) {
  const treadle_replica *r = pass->replica;
  const treadle_rank_bits ranks = r->chunks[stage].ranks & treadle_replica_members(r);
  int number = pass->ranks.stage->index;
  for (int i = 0; i < r->rank_count; i++)
    if (ranks >> i & 1 && number-- == 0) return r->ranks[i];
  return -1;
}

/* Where the rings of a rank are, and whose. */
typedef struct rings {
  const treadle_train_ranks *ranks;
  const treadle_pass *pass;
  const treadle_pipeline *pipeline;
  uint64_t at; /* of its part of the board */
} rings;

/* The ring from a chunk to one beside it. */
static treadle_status make_ring(const rings *w, int32_t from, int32_t to, treadle_ring **ring_p) {
  const treadle_train_room *room = &w->ranks->room;
  const int32_t stages = w->pipeline->stages;
  int32_t back = to < from, number = 2 * (from / stages) + back;
  const treadle_ring_spec spec = {.from = peer_in(w->pass, from % stages),
                                  .to = peer_in(w->pass, to % stages),
                                  .number = TREADLE_ENGINE_GATES + 2 + 2 * (back ? to : from) + back,
                                  .slots = (int)room->slots,
                                  .at = w->at + (uint64_t)number * treadle_train_ring_bytes(room),
                                  .elems = room->rows};
  return treadle_ring_create(w->ranks->board, &spec, ring_p);
}

uint64_t treadle_train_ring_bytes(const treadle_train_room *room) {
  return treadle_ring_memory((int)room->slots, room->rows);
}

treadle_status treadle_train_make_rings(treadle_train_stage *stage, const treadle_train_ranks *ranks,
                                        const treadle_pass *pass, uint64_t at) {
  const rings w = {.ranks = ranks, .pass = pass, .pipeline = &stage->pipeline, .at = at};
  treadle_status status = TREADLE_OK;
  for (int32_t i = 0; i < stage->chunk_count && stage->pipeline.stages > 1; i++) {
    treadle_train_chunk *c = &stage->chunks[i];
    if (c->number > 0) {
      TRY(make_ring(&w, c->number - 1, c->number, &c->from_before));
      TRY(make_ring(&w, c->number, c->number - 1, &c->to_before));
    }
    if (c->number + 1 < stage->pipeline.chunks) {
      TRY(make_ring(&w, c->number, c->number + 1, &c->to_next));
      TRY(make_ring(&w, c->number + 1, c->number, &c->from_next));
    }
  }
out:
  return status;
}

void treadle_train_close_rings(treadle_train_stage *stage) {
  for (int32_t i = 0; i < stage->chunk_count; i++) {
    treadle_ring_destroy(stage->chunks[i].from_before);
    treadle_ring_destroy(stage->chunks[i].to_before);
    treadle_ring_destroy(stage->chunks[i].from_next);
    treadle_ring_destroy(stage->chunks[i].to_next);
  }
}
