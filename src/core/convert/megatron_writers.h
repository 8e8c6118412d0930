/* Files of a Megatron checkpoint that have changed places: each says in its arguments which rank has written it. */
#ifndef TREADLE_CONVERT_MEGATRON_WRITERS_H
#define TREADLE_CONVERT_MEGATRON_WRITERS_H

#include "convert/megatron_twice.h"

/* Refuses files that stand under one another's names, by tensor parallel rank and pipeline stage. Files are taken whose arguments do not say
 * it for certain; see the .c. */
treadle_status treadle_megatron_check_writers(const treadle_layout *layout,
                                              const treadle_megatron_file *files, int32_t count);

#endif
