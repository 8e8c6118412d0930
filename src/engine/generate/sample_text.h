/* The text of a sample while it grows: tokens are decoded one by one, and what is new is given away once. */
#ifndef TREADLE_GENERATE_SAMPLE_TEXT_H
#define TREADLE_GENERATE_SAMPLE_TEXT_H

#include "generate/sample.h"
#include "treadle_builtin.h"

/* A zeroed struct has no tokenizer: there is no text. */
typedef struct treadle_sample_text {
  const treadle_tokenizer *tokenizer;
  treadle_text_stream *stream;
  size_t told; /* bytes that were given away */
} treadle_sample_text;

treadle_status treadle_sample_text_init(treadle_sample_text *text, const treadle_tokenizer *tokenizer);
void treadle_sample_text_release(treadle_sample_text *text);

/* Adds the text of the sample's last token to it; at the end of the sample, what is left. */
treadle_status treadle_sample_text_take(treadle_sample_text *text, treadle_sample *sample);
/* What is new since the last call: whole characters of sample->text, [*bytes_p]. While the sample goes on, what may become a stop text
 * stays. */
const char *treadle_sample_text_tell(treadle_sample_text *text, const treadle_sample *sample,
                                     size_t *bytes_p);

#endif
