/* Runs a group's ranks for a test: as threads of this process, or as processes of its own. */
#ifndef TREADLE_TESTS_RANKS_H
#define TREADLE_TESTS_RANKS_H

#include "group/group.h"
#include "group/link.h"
#include "test.h"

/* What a rank does; 0 is good. In a process it may not use cmocka's checks: they belong to the parent. */
typedef int (*ranks_body)(treadle_group *group, void *context);

/* `size` threads with a group each (closed afterwards); fails the test unless all return 0. With `delays`,
 * every wait is preceded by a random pause made from that seed. */
void ranks_as_threads(int size, double timeout_seconds, uint64_t delays, ranks_body body, void *context);

/* The node of rank r is ranks_nodes(r); NULL: all are on one. */
extern int (*ranks_nodes)(int rank);
int ranks_in_pairs(int rank);     /* two neighbours a node */
int ranks_on_two_nodes(int rank); /* by turns */
/* Runs the tests of a program over nodes. */
#define RANKS_OVER_NODES(tests) ranks_over_nodes(tests, TEST_COUNT(tests))
int ranks_over_nodes(const struct CMUnitTest *tests, size_t count);

/* What a rank of its own process does before it has a group. */
typedef int (*ranks_process)(const char *name, int rank, int size, void *context);

/* `size` processes. results[rank] is the exit status, 128 + signal when killed; all end within `limit`
 * seconds or the test fails. */
void ranks_as_processes(int size, double limit, ranks_process body, void *context, int *results);

/* A group name that nobody else uses. */
const char *ranks_name(void);

/* In a rank: says the message on standard error and returns 1 when the call did not do what is wanted. */
#define RANK_OK(call)                                                                                      \
  do {                                                                                                     \
    if (ranks_said(TREADLE_OK, (call), NULL, #call, __FILE__, __LINE__)) return 1;                         \
  } while (0)
#define RANK_FAILS(wanted, part, call)                                                                     \
  do {                                                                                                     \
    if (ranks_said(wanted, (call), part, #call, __FILE__, __LINE__)) return 1;                             \
  } while (0)
#define RANK_TRUE(what)                                                                                    \
  do {                                                                                                     \
    if (!(what)) return ranks_said(TREADLE_OK, TREADLE_DIFFERENT, NULL, #what, __FILE__, __LINE__);        \
  } while (0)
int ranks_said(treadle_status wanted, treadle_status got, const char *part, const char *call,
               const char *file, int line);

/* A random pause now and then; a treadle_group's `delay`, its context a uint64_t seed. */
void ranks_delay(void *context, const char *where);

#endif
