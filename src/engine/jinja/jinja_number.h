/* Numbers: Python's int without a bound (up to a limit), and float. */
#ifndef TREADLE_JINJA_JINJA_NUMBER_H
#define TREADLE_JINJA_JINJA_NUMBER_H

#include "base/real.h"
#include "jinja/jinja_machine.h"

/* + - * / and, of two characters: // is '|', ** is '^'; % as it is. Both are numbers. */
treadle_status treadle_jinja_reckon(treadle_jinja_machine *machine, char op, treadle_jinja_value a,
                                    treadle_jinja_value b, treadle_jinja_value *result_p);
/* The same of whole numbers, one of them or the result beyond 64 bits: + - * | % (jinja_big.c). */
treadle_status treadle_jinja_reckon_big(treadle_jinja_machine *machine, char op, treadle_jinja_value a,
                                        treadle_jinja_value b, treadle_jinja_value *result_p);
treadle_status treadle_jinja_divide_big(treadle_jinja_machine *machine, treadle_jinja_value a,
                                        treadle_jinja_value b, double *real_p);
treadle_status treadle_jinja_negate(treadle_jinja_machine *machine, treadle_jinja_value a,
                                    treadle_jinja_value *result_p);

/* -1, 0, 1; 2 where one is not a number (NaN). */
int treadle_jinja_compare_numbers(treadle_jinja_value a, treadle_jinja_value b);
int treadle_jinja_compare_big(treadle_jinja_value a, treadle_jinja_value b); /* of whole numbers */

treadle_status treadle_jinja_to_double(treadle_jinja_value value, double *real_p);
double
treadle_jinja_big_to_double(const struct treadle_jinja_big *big); /* infinite where it does not fit */
/* int(real): cut towards 0. */
treadle_status treadle_jinja_to_whole(treadle_jinja_machine *machine, double real,
                                      treadle_jinja_value *value_p);
/* A whole number that C can count with: beyond 64 bits it is the nearest that fits. false: not whole. */
bool treadle_jinja_to_index(treadle_jinja_value value, int64_t *index_p);

/* Digits of base 2 to 36 and nothing else. */
treadle_status treadle_jinja_of_digits(treadle_jinja_machine *machine, const char *digits, size_t count,
                                       int base, treadle_jinja_value *value_p);
/* What int(text, base) and float(text) read; *read_p says whether it is a number. */
treadle_status treadle_jinja_read_whole(treadle_jinja_machine *machine, const treadle_jinja_text *text,
                                        int base, bool *read_p, treadle_jinja_value *value_p);
treadle_status treadle_jinja_read_float(treadle_jinja_machine *machine, const treadle_jinja_text *text,
                                        bool *read_p, double *real_p);

/* The digits of a whole number in base 2, 8, 10 or 16, with a sign. */
treadle_status treadle_jinja_write_whole(treadle_jinja_machine *machine, treadle_jinja_writer *writer,
                                         treadle_jinja_value value, int base);
/* repr(real): the shortest digits that give the same number. */
treadle_status treadle_jinja_write_float(treadle_jinja_machine *machine, treadle_jinja_writer *writer,
                                         double real);
/* round(value, digits), Python's. */
treadle_status treadle_jinja_round(treadle_jinja_machine *machine, treadle_jinja_value value,
                                   int64_t digits, treadle_jinja_value *result_p);

#endif
