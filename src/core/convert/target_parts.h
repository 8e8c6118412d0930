/* What the files of a target share (target.c). */
#ifndef TREADLE_CONVERT_TARGET_PARTS_H
#define TREADLE_CONVERT_TARGET_PARTS_H

#include "convert/target.h"

/* Hugging Face (target_hf.c) and Megatron (target_megatron.c): makes the list of files, and one of them. */
treadle_status treadle_target_open_hf(treadle_target *target);
treadle_status treadle_target_hf_file(const treadle_target *target, int32_t number, treadle_out_file *file);
treadle_status treadle_target_open_megatron(treadle_target *target, int64_t iteration);
treadle_status treadle_target_megatron_file(const treadle_target *target, int32_t number,
                                            treadle_out_file *file);

/* The storage tensors `numbers` of a rank, in this order, as tensors of a file. NULL: all that the rank has. */
treadle_status treadle_target_list_rank(const treadle_target *target, int64_t rank, const int32_t *numbers,
                                        int32_t count, treadle_out_file *file);
/* torch_dist (target_dist.c), on one rank of a megatron layout. */
treadle_status treadle_target_open_dist(treadle_target *target, int64_t iteration);
treadle_status treadle_target_dist_file(const treadle_target *target, int32_t number,
                                        treadle_out_file *file);

/* The files that the model came in, and what they consist of (target_own.c). */
treadle_status treadle_target_take_own(treadle_target *target);

/* What a tensor of a Hugging Face target is: name, type, shape, bytes. */
treadle_stored treadle_out_entry_about(const treadle_target *target, const treadle_out_entry *item);

/* How many tensors of the model's own files are no part of it; and the bytes of one, found by its name. */
int32_t treadle_target_count_carried(const treadle_target *target);
treadle_status treadle_target_find_carried(const treadle_target *target, const treadle_stored *about,
                                           const char **raw_p);

#endif
