/* Messages that are lists: what a file has of many things that are wrong. */
#ifndef TREADLE_BASE_STATUS_LIST_H
#define TREADLE_BASE_STATUS_LIST_H

#include "base/status.h"

/* As treadle_fail(), with up to 16 KiB, and newlines between what it lists. */
treadle_status treadle_fail_long(treadle_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
