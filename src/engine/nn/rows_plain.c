/* Row operations in plain C. */
#include "nn/rows_kinds.h"

#include "nn/lanes_plain.h"

#include "nn/rows_body.h"

const treadle_row_ops treadle_row_ops_plain = ROW_OPS("plain", lanes_supported);
