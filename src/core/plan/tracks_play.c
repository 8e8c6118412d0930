/* Playing tracks: what is touched, in its waves, where it lies. */
#include "layout/blocks.h"
#include "plan/tracks_parts.h"

typedef struct play {
  const treadle_tracks *tracks;
  int32_t waves;
  const treadle_track_target *targets;
  int32_t target_count;
} play;

/* From `shift` bytes behind the touch on; its range is `reach` bytes longer. Arrangements move what is of one storage tensor as
 * one. */
static void mark(const play *p, const treadle_track_touch *of, int32_t wave, int64_t shift, int64_t reach) {
  int64_t page_bytes = p->tracks->lanes.page_bytes;
  for (int32_t i = 0; i < p->target_count; i++) {
    const treadle_track_target *to = &p->targets[i];
    int64_t begin = of->begin + shift;
    if (to->arrangement) begin = treadle_plan_place(to->arrangement, begin);
    if (of->op >= 0) {
      treadle_op op = p->tracks->ops.items[of->op];
      op.wave = wave;
      treadle_pages_touch(to->pages, page_bytes, &op, begin);
      continue;
    }
    treadle_pages_mark(to->pages, page_bytes, begin, begin + of->last - of->begin + reach, wave);
  }
}

/* The wave of a touch, of this tensor. */
static int32_t wave_of(const play *p, const treadle_track_touch *touch, int32_t tensor) {
  const treadle_tracks *t = p->tracks;
  if (touch->atom < 0) return p->waves - 1;
  int32_t scale_of = t->own->model->tensors[tensor].scale_of;
  bool banded = scale_of >= 0 && treadle_is_in_block_rows(t->own, t->other, tensor);
  const treadle_position *position = &t->lanes.positions[banded ? scale_of : tensor];
  return treadle_atom_wave(&t->atoms.list.items[touch->atom], position, p->waves);
}

/* Bytes of the tensor: those of its model, `shift` further. Of expert e, where expert `walked` was walked:
 * (e - walked) * distance further. Where the experts of a stretch leave no page between them, one range
 * does for all of them: that of the first, longer by the distance to the last. */
static void play_tensor(const play *p, int32_t tensor) {
  const treadle_tracks *t = p->tracks;
  const treadle_track_model *of = &t->models.items[t->model_of[tensor]];
  int64_t shift = t->shift[tensor];
  for (int32_t i = of->touches; i >= 0; i = t->touches.items[i].next) {
    const treadle_track_touch *at = &t->touches.items[i];
    int32_t wave = wave_of(p, at, tensor);
    if (of->distance == 0) mark(p, at, wave, shift, 0);
    bool together = at->op < 0 && of->distance - (at->last - at->begin) <= t->lanes.page_bytes;
    for (size_t k = of->stretch_first; of->distance > 0 && k < of->stretch_end; k++) {
      const treadle_track_stretch *s = &t->stretches.items[k];
      int64_t first = shift + (s->first - s->walked) * of->distance;
      if (s->turn != at->turn) continue;
      if (together) {
        mark(p, at, wave, first, (s->end - 1 - s->first) * of->distance);
        continue;
      }
      for (int64_t e = s->first; e < s->end; e++, first += of->distance) mark(p, at, wave, first, 0);
    }
  }
}

void treadle_tracks_play(const treadle_tracks *tracks, int32_t waves, const treadle_track_target *targets,
                         int32_t count) {
  const play p = {tracks, waves, targets, count};
  for (int32_t i = 0; i < tracks->own->model->tensor_count; i++)
    if (tracks->model_of[i] >= 0) play_tensor(&p, i);
  for (size_t i = 0; i < tracks->fills.count; i++) {
    const treadle_track_fill *fill = &tracks->fills.items[i];
    const treadle_track_touch *touch = &tracks->touches.items[fill->touch];
    mark(&p, touch, wave_of(&p, touch, fill->tensor), 0, 0);
  }
}

treadle_status treadle_tracks_play_to(const treadle_window_tracks *known, int64_t rank,
                                      treadle_cuts_of_all *all, int32_t waves,
                                      const treadle_track_target *targets, int32_t count) {
  treadle_status status = TREADLE_OK;
  treadle_tracks *made = NULL;
  if (!known->of_to) TRY(treadle_tracks_create(known->lanes, known->kin, TREADLE_TO, rank, all, &made));
  treadle_tracks_play(made ? made : known->of_to, waves, targets, count);
out:
  treadle_tracks_destroy(made);
  return status;
}
