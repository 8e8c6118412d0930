/* Backward operations in plain C. */
#include "nn/lanes_plain.h"

#include "nn/attention_back_body.h"
#include "nn/rows_back_body.h"

enum { OUTER_ROWS = 4, OUTER_VECTORS = 1 };
#include "nn/outer_body.h"

const treadle_row_back_ops treadle_row_back_plain = ROW_BACK_OPS("plain", lanes_supported);
const treadle_attention_back_ops treadle_attention_back_plain = {back_attention};
const treadle_outer_ops treadle_outer_plain = OUTER_OPS("plain", lanes_supported);
