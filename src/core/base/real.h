/* Real numbers as text, with a point in every locale. */
#ifndef TREADLE_BASE_REAL_H
#define TREADLE_BASE_REAL_H

#include <stdbool.h>

/* Enough for every number with as many digits behind the point. */
enum { TREADLE_MAX_PRECISION = 400, TREADLE_REAL_BYTES = 800 };

/* As printf's %.{precision}{type}, or %#.{precision}{type}. */
void treadle_real_print(char to[TREADLE_REAL_BYTES], char type, int precision, bool alternate, double real);
double treadle_real_parse(const char *text); /* as strtod */

/* A finite decimal number and nothing else: digits with a sign, a point, an exponent. */
bool treadle_text_to_real(const char *text, double *value_p);
/* The fewest digits that are read as the same bits, of a finite number. */
void treadle_text_of_real(char to[TREADLE_REAL_BYTES], double real);

#endif
