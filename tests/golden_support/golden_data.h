/* Files that golden files name, such as "data/gpt2/vocab.json": they lie under one of a few folders, and may be missing. */
#ifndef TREADLE_TESTS_GOLDEN_DATA_H
#define TREADLE_TESTS_GOLDEN_DATA_H

#include <stdbool.h>
#include <stddef.h>

/* One more folder to look in; those given first count first. Without any it is ../shared, beside the repository. `folder` is kept. */
void golden_data_add(const char *folder);

/* The path of a file that is there. */
bool golden_data_find(const char *name, char *path, size_t room);

#endif
