#include "nn/team_product.h"

void treadle_team_product_pack(void *of, int32_t index, int32_t count) {
  const treadle_team_product *p = of;
  p->kernel->pack(&p->source, p->packed, index, count);
}

void treadle_team_product_multiply(void *of, int32_t index, int32_t count) {
  const treadle_team_product *p = of;
  p->kernel->run(&p->product, index, count);
}
