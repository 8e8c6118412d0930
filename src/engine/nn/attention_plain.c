/* Attention in plain C. */
#include "nn/attention_kinds.h"

#include "nn/lanes_plain.h"

#include "nn/attention_body.h"

const treadle_attention_ops treadle_attention_ops_plain = ATTENTION_OPS("plain", lanes_supported);
