/* Random models and random layout texts, of every family and every set. What is drawn follows from the random
 * numbers alone, but for the path of the file of an expert map. */
#ifndef TREADLE_TESTS_DRAW_H
#define TREADLE_TESTS_DRAW_H

#include "base/random.h"
#include "oracle/oracle.h"

enum { DRAW_CONFIG = 1024, DRAW_TEXT = 512 };

int64_t draw_of(treadle_random *random, const int64_t *values, int count);
int64_t draw_divisor(treadle_random *random, int64_t n);
bool draw_chance(treadle_random *random, int percent);

/* Families, as model_type says them; ended by NULL. */
extern const char *const draw_families[];
/* A config.json of a family, as text, whose model has at most max_elems elements. */
void draw_config(treadle_random *random, int family, int64_t max_elems, char config[DRAW_CONFIG]);
/* The family of a config: its place in draw_families. */
int draw_family_of(const json_t *config);

/* Types of layouts; all but the last two, "placements" and "pieces", have a text. Ended by NULL. */
extern const char *const draw_kinds[];
/* Has the set a layout of this model in the oracle? Modules in memory have no MTP layers there, which flat layouts
 * are made of. */
bool draw_fits(const oracle_model *model, const char *set);
/* A layout of a set that may be refused. A map of experts lies in a file that the next call overwrites. */
void draw_layout(treadle_random *random, const oracle_model *model, const char *set, int64_t ranks,
                 char text[DRAW_TEXT]);

#endif
