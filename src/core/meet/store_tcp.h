/* Stores over TCP (treadle_store_open): what the library itself asks of them. */
#ifndef TREADLE_MEET_STORE_TCP_H
#define TREADLE_MEET_STORE_TCP_H

#include "base/status.h"

/* The address of this machine, as numbers, by which this rank reached a store of treadle_store_open, or rank 0 listens; NULL: it is another
 * store. Lives as long as the store. */
const char *treadle_store_host(const treadle_store *store);

/* The seconds that its ranks had to meet; 0: it is another store. */
double treadle_store_seconds(const treadle_store *store);

#endif
