#include "generate/sample_text.h"

#include "generate/stops.h"

#include <assert.h>

treadle_status treadle_sample_text_init(treadle_sample_text *text, const treadle_tokenizer *tokenizer) {
  text->tokenizer = tokenizer;
  return tokenizer ? treadle_text_stream_create(tokenizer, false, &text->stream) : TREADLE_OK;
}

void treadle_sample_text_release(treadle_sample_text *text) {
  treadle_text_stream_destroy(text->stream);
  text->stream = NULL;
}

/* Ids with which a vocabulary is padded have no token. */
static bool has_token(const treadle_tokenizer *tokenizer, int32_t id) {
  treadle_token_info info = TREADLE_INIT(treadle_token_info);
  return treadle_tokenizer_token(tokenizer, id, &info) == TREADLE_OK;
}

treadle_status treadle_sample_text_take(treadle_sample_text *t, treadle_sample *sample) {
  const char *text;
  size_t bytes;
  int32_t token = sample->tokens.items[sample->tokens.count - 1];
  treadle_status status = TREADLE_OK;
  if (!t->stream) return TREADLE_OK;
  if (!sample->last_is_end && has_token(t->tokenizer, token)) {
    TRY(treadle_text_stream_put(t->stream, token, &text, &bytes));
    TRY(treadle_sample_add_text(sample, text, bytes));
  }
  if (!sample->finish || sample->stop_text >= 0) goto out;
  TRY(treadle_text_stream_end(t->stream, &text, &bytes));
  TRY(treadle_sample_add_text(sample, text, bytes));
out:
  return status;
}

const char *treadle_sample_text_tell(treadle_sample_text *t, const treadle_sample *sample,
                                     size_t *bytes_p) {
  const treadle_builder *text = &sample->text;
  size_t from = t->told;
  t->told = text->length;
  if (!sample->finish && text->length)
    t->told -= treadle_stops_held(sample->spec.sampling, text->text, text->length);
  assert(t->told >= from);
  *bytes_p = t->told - from;
  return text->text ? text->text + from : "";
}
