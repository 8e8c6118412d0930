/* A product as a team computes it (base/team.h): all members pack, then all multiply. */
#ifndef TREADLE_NN_TEAM_PRODUCT_H
#define TREADLE_NN_TEAM_PRODUCT_H

#include "nn/gemm.h"

typedef struct treadle_team_product {
  const treadle_gemm_kernel *kernel;
  treadle_gemm_source source;
  treadle_gemm_product product;
  treadle_gemm_segment segment; /* room for that of a product that has one */
  void *packed;
} treadle_team_product;

/* A member's part of each: `of` is a treadle_team_product. */
void treadle_team_product_pack(void *of, int32_t index, int32_t count);
void treadle_team_product_multiply(void *of, int32_t index, int32_t count);

#endif
