/* A control group with a limit on memory, v1 or v2, for commands of a test; removed with what is in it at the end. */
#ifndef TESTS_CLI_CONTROL_GROUP_H
#define TESTS_CLI_CONTROL_GROUP_H

#include <stdbool.h>
#include <stddef.h>

/* Makes one below that of this process, or of one that it lies in; false, after a message, where that is not possible. */
bool control_group_begin(void);
/* Sets its limit; 0: none. */
void control_group_limit(size_t bytes);
/* In a child of the test: enters it. */
bool control_group_enter(void);
/* The most that it has had since it was made; 0: the system does not tell. */
size_t control_group_peak(void);
/* Removes it. What is still in it has a while to end. */
void control_group_end(void);

#endif
