/* The keys of torch_dist (source_dist.c says the rules): the numbers that a storage tensor's name has and its key has not. */
#ifndef TREADLE_CONVERT_DIST_KEYS_H
#define TREADLE_CONVERT_DIST_KEYS_H

#include <stddef.h>
#include <stdint.h>

/* `NAME.experts.linear_fc1.weight12` of an expert becomes `NAME.experts.experts.linear_fc1.weight`, and 12 is the result; -1
 * where the name is of none. */
int64_t treadle_dist_take_expert(char *key, size_t room);
/* `decoder.layers.7.NAME` becomes `decoder.layers.NAME`; -1 where there is no number. */
int64_t treadle_dist_take_layer(char *key);

#endif
