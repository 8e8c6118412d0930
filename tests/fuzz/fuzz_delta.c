/* Any bytes as a delta. The first two say of which and how many elements; the values are in a block of just their size. What is
 * refused says why and has written nothing; what is taken can be written again, from the same base to what it gave. */
#include "move/delta.h"

#include "must.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

static uint8_t *block(size_t bytes) {
  uint8_t *block = malloc(bytes + !bytes);
  MUST(block);
  return block;
}

static void write_again(const uint8_t *base, const uint8_t *values, size_t elems, size_t each) {
  size_t most = treadle_delta_most(elems, each);
  uint8_t *delta = block(most), *again = block(elems * each);
  size_t bytes = treadle_delta_write(base, values, elems, each, delta);
  MUST(bytes <= most && (bytes == 0) == (memcmp(base, values, elems * each) == 0));
  memcpy(again, base, elems * each);
  MUST(treadle_delta_apply(delta, bytes, elems, each, again) == TREADLE_OK);
  MUST(memcmp(again, values, elems * each) == 0);
  free(again);
  free(delta);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  if (count < 2) return 0;
  size_t each = (size_t)1 << bytes[0] % 3, elems = (size_t)(bytes[0] / 3) << 8 | bytes[1];
  uint8_t *base = block(elems * each), *values = block(elems * each);
  for (size_t i = 0; i < elems * each; i++) base[i] = values[i] = (uint8_t)(i * 7);
  if (treadle_delta_apply(bytes + 2, count - 2, elems, each, values) == TREADLE_OK)
    write_again(base, values, elems, each);
  else
    MUST(*treadle_error_message() && memcmp(base, values, elems * each) == 0);
  free(values);
  free(base);
  return 0;
}
