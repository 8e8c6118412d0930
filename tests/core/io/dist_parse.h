/* The pickle of a .metadata alone, without files: chunks have no data. */
#ifndef TREADLE_TESTS_IO_DIST_PARSE_H
#define TREADLE_TESTS_IO_DIST_PARSE_H

#include "io/torch_dist.h"

/* As treadle_torch_dist_open(); on failure *dist_p is NULL. */
treadle_status dist_parse(const char *what, const void *image, size_t bytes, const char *skipped,
                          treadle_torch_dist **dist_p);

#endif
