/* Large blocks of memory that are used again and again: messages between ranks, and what they become on the other side. Fresh memory of the
 * system is slow the first time that it is touched, and several times as slow as copying (docs/speed.md, "Rows of a crew"). */
#ifndef TREADLE_CONTROL_BLOCKS_H
#define TREADLE_CONTROL_BLOCKS_H

#include <stddef.h>

/* While anybody has opened them, blocks that are given back are kept, up to a bound; the last to close frees them. */
void treadle_blocks_open(void);
void treadle_blocks_close(void);

/* Memory that is not zeroed, of at least that many bytes, aligned as malloc's. NULL: memory is out. */
void *treadle_block_take(size_t bytes);
void treadle_block_give(void *block); /* NULL: nothing */

#endif
