/* Rows into parts of about equal load, where input has been checked: loads from 0 whose sum fits, at least as many rows as parts, and a multiple of
 * them if parts are to be equal. */
#ifndef TREADLE_CONTROL_BALANCE_H
#define TREADLE_CONTROL_BALANCE_H

#include "treadle_control.h"

/* owner [count]: the part of each row. Parts are numbered from the one with the largest load (verl's order of sets). */
treadle_status treadle_karmarkar_karp(const int64_t *loads, size_t count, size_t parts, bool equal,
                                      int64_t *owner);
/* The sum of loads from 0; `what` names them in messages. */
treadle_status treadle_balance_sum(const char *what, const int64_t *loads, size_t count, int64_t *sum_p);
/* order and counts of owners; rows of a part in the order of their numbers. */
void treadle_balance_list(const int64_t *owner, size_t count, size_t parts, int64_t *order,
                          int64_t *counts);

#endif
