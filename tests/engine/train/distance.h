/* How far gradients are from others. */
#ifndef TREADLE_TESTS_DISTANCE_H
#define TREADLE_TESTS_DISTANCE_H

/* The largest relative L2 distance of a tensor: of fp32 values in a file from those of another one. Both have one header. */
double distance_of_files(const char *got_path, const char *wanted_path);

#endif
