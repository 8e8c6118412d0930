/* Layouts of the library held against the oracle's, without a plan. */
#ifndef TREADLE_TESTS_AGREE_H
#define TREADLE_TESTS_AGREE_H

#include "model/model.h"
#include "oracle/oracle.h"
#include "treadle.h"

enum { AGREE_WHY = 512 };

/* Walks the tensors of a rank in the library's order. */
typedef struct agree_walk {
  const oracle_rank *rank;
  int next;     /* storage tensor of the oracle that is expected */
  int64_t elem; /* distopt: the first element of it that was not handed out */
} agree_walk;

/* The oracle's storage tensor that the library's is, and its element that is the library's first. By name and
 * chunk; in distopt the library has a tensor for each bucket and the oracle one for all of a buffer, so that they are
 * counted. NULL: none. */
const oracle_storage *agree_find(agree_walk *walk, const char *type, const treadle_storage_info *info,
                                 int64_t *first_p);

/* Takes from the oracle's layout what no loader writes and the library does not hold. */
void agree_trim(const treadle_layout *layout, oracle_layout *oracle);

/* Every storage tensor of every rank: names, order (but of hf, whose order is the file's), shapes, and which
 * canonical element lies where. False and a message at the first difference. */
bool agree_layouts(const treadle_model *model, const treadle_layout *layout, const oracle_layout *oracle,
                   char why[AGREE_WHY]);

/* By tensor of the library, as users number them: the oracle's. Ended by free(). */
int32_t *agree_tensors(const treadle_model *model, const oracle_model *oracle);

/* Is it a refusal of the library that the oracle does not share, as the engine itself loads what must go wrong?
 * SGLang's Qwen2-MoE and Qwen3-MoE make experts of layers that are dense in the file, and never write them.
 * Flat layouts are cut by tp evenly or not at all, where torch would give the last ranks less.
 * The fused in_proj_qkvz of Qwen3.5 has no scales in vLLM and SGLang: its parts are sections of a file's tensor.
 * distopt without ep, whose experts are cut finer than dense tensors, has no ranks that hold the same buffer. */
bool agree_excused(const char *refusal);

/* Does the library know a type of layout? */
bool agree_knows(const treadle_model *model, const char *type);

#endif
