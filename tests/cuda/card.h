/* A card of the stand-in (cuda/fake_cuda.h) that one test alone has, for what works by way of the library. */
#ifndef TREADLE_TESTS_CARD_H
#define TREADLE_TESTS_CARD_H

#include "cuda/fake_cuda.h"

enum { CARD_PAGE = 4096 };

/* Before the driver starts in this process or in one that it starts: cards with pages of CARD_PAGE, in a folder of their own. */
void card_make(int count, uint64_t bytes);
/* After all of that: takes the folder away. */
void card_remove(void);

/* For calls of the driver that a test makes itself: the context of device 0, around them. */
void card_enter(void);
void card_leave(void);

/* Fails the test unless this process has on the cards what it had when the ledger was read. */
void card_is_as(const fake_cuda_ledger *before);

#endif
