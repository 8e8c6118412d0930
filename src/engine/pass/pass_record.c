/* The experts that tokens chose, kept in the blocks of the cache behind keys and values: who has a block has both, so a prefix that is
 * shared comes with its experts, and what is computed again writes them again.
 *
 * In a block: [block_tokens, layers with experts, top], little-endian uint16. A rank knows the choice in its own layers, for which it computes
 * the router; at the end of a step the stages bring each other theirs, so that each rank has all. */
#include "pass/pass_steps.h"

#include <string.h>

int64_t treadle_pass_record_bytes(const treadle_pass *pass) {
  return pass->options.records ? treadle_transformer_record_bytes(pass->transformer) : 0;
}

int64_t treadle_pass_record_room(const treadle_pass *pass) {
  return (pass->options.block_tokens * treadle_pass_record_bytes(pass) + 63) / 64 * 64;
}

static unsigned char *token_at(const treadle_pass *p, const int32_t *table, int64_t position) {
  const int64_t tokens = p->options.block_tokens, block = (int64_t)treadle_pass_block_bytes(p);
  char *end = p->cache + (table[position / tokens] + 1) * block - treadle_pass_record_room(p);
  return (unsigned char *)end + position % tokens * treadle_pass_record_bytes(p);
}

void treadle_pass_read_record(const treadle_pass *pass, const int32_t *table, int64_t count,
                              unsigned char *to) {
  const size_t each = (size_t)treadle_pass_record_bytes(pass);
  for (int64_t t = 0; t < count; t++) memcpy(to + (size_t)t * each, token_at(pass, table, t), each);
}

void treadle_pass_write_choice(const treadle_routed *routed, int64_t top, unsigned char *to) {
  for (int64_t k = 0; k < top; k++) {
    to[2 * k] = (unsigned char)(routed[k].expert & 255);
    to[2 * k + 1] = (unsigned char)(routed[k].expert >> 8);
  }
}

void treadle_pass_record(treadle_pass *p, int32_t layer, const treadle_pass_step *step) {
  const treadle_routed *routed = p->buffers.routed;
  const int64_t top = p->transformer->routing.top;
  if (!p->options.records || !p->transformer->layer[layer].sparse) return;
  const int64_t at = treadle_transformer_record_at(p->transformer, layer);
  for (int32_t s = 0; s < step->stretch_count; s++) {
    const treadle_pass_span *of = &step->stretches[s];
    for (int64_t r = 0; r < of->rows; r++) {
      unsigned char *to = token_at(p, of->table, of->position + r) + at;
      treadle_pass_write_choice(routed, top, to);
      routed += top;
    }
  }
}

/* ---- Stages --------------------------------------------------------------------------------------------- */

/* The layers of a chunk that have experts, as bytes of a token. */
typedef struct stretch {
  int64_t at, bytes, columns; /* columns: fp32 that hold them */
} stretch;

static stretch stretch_of(const treadle_pass *p, int32_t chunk) {
  const treadle_chunk_span *layers = &p->replica->chunks[chunk];
  const int64_t at = treadle_transformer_record_at(p->transformer, layers->first_layer),
                bytes = treadle_transformer_record_at(p->transformer, layers->end_layer) - at;
  return (stretch){.at = at, .bytes = bytes, .columns = (bytes + 3) / 4};
}

int64_t treadle_pass_measure_record(const treadle_pass *pass) {
  int64_t most = 0;
  for (int32_t c = 0; pass->options.records && c < pass->replica->chunk_count; c++)
    if (stretch_of(pass, c).columns > most) most = stretch_of(pass, c).columns;
  return pass->options.most_rows * most;
}

/* From the blocks to rows of a matrix, or back. */
static void copy_rows(treadle_pass *p, const treadle_pass_step *step, const stretch *of, char *to,
                      const char *from) {
  int64_t row = 0;
  for (int32_t s = 0; s < step->stretch_count; s++)
    for (int64_t r = 0; r < step->stretches[s].rows; r++, row++) {
      unsigned char *token =
          token_at(p, step->stretches[s].table, step->stretches[s].position + r) + of->at;
      const int64_t at = row * of->columns * (int64_t)sizeof(float);
      if (to)
        memcpy(to + at, token, (size_t)of->bytes);
      else
        memcpy(token, from + at, (size_t)of->bytes);
    }
}

treadle_status treadle_pass_share_record(treadle_pass *p, const treadle_pass_step *step) {
  const treadle_pass_ranks *r = &p->ranks;
  const int32_t chunks = p->replica->chunk_count;
  int64_t others;
  treadle_status status = TREADLE_OK;
  for (int32_t c = 0; p->options.records && chunks > 1 && c < chunks; c++) {
    const stretch of = stretch_of(p, c);
    const bool has = treadle_pass_has_chunk(p, c), brings = has && r->stage->index == 0;
    const treadle_exchange_part part = treadle_exchange_slot(chunks, c, brings, step->rows, of.columns);
    if (brings) copy_rows(p, step, &of, (char *)treadle_exchange_room(r->across), NULL);
    TRY(treadle_parallel_slots(r->across, &part, "experts of the other stages"));
    if (!has) copy_rows(p, step, &of, NULL, (const char *)treadle_parallel_slot(r->across, c, &others));
  }
out:
  return status;
}
