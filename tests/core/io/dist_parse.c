/* The pickle of a .metadata alone. */
#include "io/dist_parse.h"

#include "base/alloc.h"
#include "io/torch_dist_metadata.h"

treadle_status dist_parse(const char *what, const void *image, size_t bytes, const char *skipped,
                          treadle_torch_dist **dist_p) {
  treadle_dist_reader r = {.what = what, .skipped = skipped};
  treadle_status status;
  *dist_p = NULL;
  r.dist = treadle_alloc(sizeof *r.dist);
  if (!r.dist) return treadle_dist_no_memory(what);
  TRY(treadle_dist_read_metadata(&r, image, bytes));
  *dist_p = r.dist;
  r.dist = NULL;
out:
  treadle_hash_map_release(&r.places);
  treadle_torch_dist_close(r.dist);
  return status;
}
