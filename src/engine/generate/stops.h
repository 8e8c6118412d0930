/* Stop texts: where the text of a sample ends.
 *
 * As vLLM's detokenizer does it: each time text was added, the part that can hold a new occurrence is searched. The stop text that is
 * complete first counts, among equals the first of the list. The text is cut before it. */
#ifndef TREADLE_GENERATE_STOPS_H
#define TREADLE_GENERATE_STOPS_H

#include "generate/sampling.h"

/* Looks for stop texts that end in the last `added` bytes of text. Returns the number of the stop text and where it begins, or -1. */
int32_t treadle_stops_find(const treadle_sampling_values *sampling, const char *text, size_t count,
                           size_t added, size_t *at_p);

/* How many bytes at the end of text may be the beginning of a stop text: a stream shows them later. */
size_t treadle_stops_held(const treadle_sampling_values *sampling, const char *text, size_t count);

#endif
