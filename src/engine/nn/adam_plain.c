/* AdamW in plain C. */
#include "nn/lanes_plain.h"

#include "nn/adam_body.h"

const treadle_adam_ops treadle_adam_plain = ADAM_OPS("plain", lanes_supported);
