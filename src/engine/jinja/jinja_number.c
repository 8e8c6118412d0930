/* Arithmetic of int and float. Whole numbers are reckoned in 64 bits, and once more without a bound where they overflow. */
#include "jinja/jinja_number.h"

#include <math.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;

bool treadle_jinja_to_index(value v, int64_t *index_p) {
  if (v.kind == JINJA_BIG)
    *index_p = treadle_jinja_big_to_double(v.big) < 0 ? INT64_MIN : INT64_MAX;
  else if (v.kind == JINJA_BOOL)
    *index_p = v.truth;
  else if (v.kind == JINJA_INT)
    *index_p = v.number;
  return treadle_jinja_is_whole(v);
}

treadle_status treadle_jinja_to_double(value v, double *real_p) {
  *real_p = v.kind == JINJA_FLOAT  ? v.real
            : v.kind == JINJA_BIG  ? treadle_jinja_big_to_double(v.big)
            : v.kind == JINJA_BOOL ? (double)v.truth
                                   : (double)v.number;
  if (v.kind == JINJA_BIG && isinf(*real_p)) REFUSE("an integer is too large to be a float");
  return TREADLE_OK;
}

/* ---- Comparing ----------------------------------------------------------------------------------- */

static int compare_doubles(double a, double b) { return a < b ? -1 : a > b ? 1 : a == b ? 0 : 2; }

/* A whole number with a float, exactly: the float's whole part decides, then its fraction. */
static int compare_mixed(value whole, double real) {
  if (isnan(real)) return 2;
  if (isinf(real)) return real > 0 ? -1 : 1;
  if (whole.kind == JINJA_BIG) return compare_doubles(treadle_jinja_big_to_double(whole.big), real);
  if (fabs(real) >= 0x1p63) return real > 0 ? -1 : 1;
  int64_t number = whole.kind == JINJA_BOOL ? whole.truth : whole.number, cut = (int64_t)real;
  if (number != cut) return number < cut ? -1 : 1;
  return compare_doubles((double)cut, real);
}

int treadle_jinja_compare_numbers(value a, value b) {
  if (a.kind == JINJA_FLOAT && b.kind == JINJA_FLOAT) return compare_doubles(a.real, b.real);
  if (b.kind == JINJA_FLOAT) return compare_mixed(a, b.real);
  if (a.kind == JINJA_FLOAT) {
    int order = compare_mixed(b, a.real);
    return order == 2 ? 2 : -order;
  }
  int64_t x = 0, y = 0;
  if (a.kind == JINJA_BIG || b.kind == JINJA_BIG) return treadle_jinja_compare_big(a, b);
  treadle_jinja_to_index(a, &x);
  treadle_jinja_to_index(b, &y);
  return (x > y) - (x < y);
}

/* ---- Reckoning ----------------------------------------------------------------------------------- */

static treadle_status reckon_floats(char op, double a, double b, value *result_p) {
  double result = 0;
  if (b == 0 && (op == '/' || op == '|' || op == '%')) REFUSE("a number is divided by zero");
  if (op == '|' || op == '%') { /* Python's: the rest has the sign of b */
    double rest = fmod(a, b), quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) {
      rest += b;
      quotient -= 1;
    } else if (rest == 0)
      rest = copysign(0, b);
    double whole = floor(quotient);
    if (quotient - whole > 0.5) whole += 1;
    if (quotient == 0) whole = copysign(0, a / b);
    result = op == '%' ? rest : whole;
  } else if (op == '^') {
    if (a == 0 && b < 0) REFUSE("0 cannot be raised to a negative power");
    if (a < 0 && !isinf(b) && floor(b) != b) REFUSE("a power that is a complex number");
    result = pow(a, b);
    if (isinf(result) && !isinf(a) && !isinf(b)) REFUSE("the result of ** is too large");
  } else
    result = op == '+' ? a + b : op == '-' ? a - b : op == '*' ? a * b : a / b;
  *result_p = treadle_jinja_float(result);
  return TREADLE_OK;
}

/* 64 bits; false: does not fit. b is not 0 for | and %. */
static bool reckon_small(char op, int64_t a, int64_t b, int64_t *result_p) {
  if (op == '+') return !__builtin_add_overflow(a, b, result_p);
  if (op == '-') return !__builtin_sub_overflow(a, b, result_p);
  if (op == '*') return !__builtin_mul_overflow(a, b, result_p);
  if (a == INT64_MIN && b == -1) return false;
  int64_t quotient = a / b, rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    quotient--;
    rest += b;
  }
  *result_p = op == '%' ? rest : quotient;
  return true;
}

static treadle_status reckon_whole(machine *m, char op, value a, value b, value *result_p) {
  int64_t x = 0, y = 0, result;
  if ((op == '|' || op == '%') && !treadle_jinja_is_true(b)) REFUSE("a number is divided by zero");
  bool small = treadle_jinja_to_index(a, &x) && treadle_jinja_to_index(b, &y) && a.kind != JINJA_BIG &&
               b.kind != JINJA_BIG;
  if (!small || !reckon_small(op, x, y, &result)) return treadle_jinja_reckon_big(m, op, a, b, result_p);
  *result_p = treadle_jinja_int(result);
  return TREADLE_OK;
}

/* Of whole numbers. */
static treadle_status divide(machine *m, value a, value b, value *result_p) {
  int64_t x = 0, y = 0, exact = INT64_C(1) << 53;
  double real;
  if (!treadle_jinja_is_true(b)) REFUSE("a number is divided by zero");
  treadle_jinja_to_index(a, &x);
  treadle_jinja_to_index(b, &y);
  if (x > -exact && x < exact && y > -exact && y < exact)
    real = (double)x / (double)y;
  else
    PASS(treadle_jinja_divide_big(m, a, b, &real));
  *result_p = treadle_jinja_float(real);
  return TREADLE_OK;
}

/* By squaring; b >= 0. */
static treadle_status raise_whole(machine *m, value a, value b, value *result_p) {
  int64_t power = 0;
  treadle_jinja_to_index(b, &power);
  *result_p = treadle_jinja_int(1);
  if (a.kind == JINJA_BOOL) a = treadle_jinja_int(a.truth);
  if (a.kind == JINJA_INT && a.number >= -1 && a.number <= 1) { /* no growth, however large the power is */
    if (power > 0) power = power % 2 ? 1 : 2;
  }
  for (; power > 0; power >>= 1) {
    if (power & 1) PASS(reckon_whole(m, '*', *result_p, a, result_p));
    if (power > 1) PASS(reckon_whole(m, '*', a, a, &a));
  }
  return TREADLE_OK;
}

treadle_status treadle_jinja_reckon(machine *m, char op, value a, value b, value *result_p) {
  double x, y;
  if (treadle_jinja_is_whole(a) && treadle_jinja_is_whole(b)) {
    if (op == '/') return divide(m, a, b, result_p);
    if (op != '^') return reckon_whole(m, op, a, b, result_p);
    if (treadle_jinja_compare_numbers(b, treadle_jinja_int(0)) >= 0) return raise_whole(m, a, b, result_p);
  }
  PASS(treadle_jinja_to_double(a, &x));
  PASS(treadle_jinja_to_double(b, &y));
  return reckon_floats(op, x, y, result_p);
}

treadle_status treadle_jinja_negate(machine *m, value a, value *result_p) {
  if (a.kind != JINJA_FLOAT) return reckon_whole(m, '-', treadle_jinja_int(0), a, result_p);
  *result_p = treadle_jinja_float(-a.real);
  return TREADLE_OK;
}

/* The multiple of `unit` that is nearest; halves to even. */
static treadle_status round_to(machine *m, value a, value unit, value *result_p) {
  value rest, twice, count, two = treadle_jinja_int(2);
  PASS(reckon_whole(m, '%', a, unit, &rest));
  PASS(reckon_whole(m, '-', a, rest, result_p));
  PASS(reckon_whole(m, '*', rest, two, &twice));
  int order = treadle_jinja_compare_numbers(twice, unit);
  if (order == 0) { /* half: up from an odd multiple */
    PASS(reckon_whole(m, '|', a, unit, &count));
    PASS(reckon_whole(m, '%', count, two, &count));
    order = treadle_jinja_is_true(count) ? 1 : -1;
  }
  return order > 0 ? reckon_whole(m, '+', *result_p, unit, result_p) : TREADLE_OK;
}

/* To tens, hundreds, ...: digits < 0. */
static treadle_status round_whole(machine *m, value a, int64_t digits, value *result_p) {
  value unit;
  *result_p = treadle_jinja_int(0);
  if (digits < -4400) return TREADLE_OK;
  PASS(raise_whole(m, treadle_jinja_int(10), treadle_jinja_int(-digits), &unit));
  return round_to(m, a, unit, result_p);
}

/* The same of a float: twice its whole part, with the lowest bit for a fraction, is a whole number that rounds alike. */
static treadle_status round_large(machine *m, double real, int64_t digits, value *result_p) {
  value whole, unit, two = treadle_jinja_int(2);
  double size = fabs(real);
  PASS(treadle_jinja_to_whole(m, size, &whole));
  PASS(raise_whole(m, treadle_jinja_int(10), treadle_jinja_int(-digits), &unit));
  PASS(reckon_whole(m, '*', whole, two, &whole));
  PASS(reckon_whole(m, '+', whole, treadle_jinja_int(size != floor(size)), &whole));
  PASS(reckon_whole(m, '*', unit, two, &unit));
  PASS(round_to(m, whole, unit, &whole));
  PASS(reckon_whole(m, '|', whole, two, &whole));
  PASS(treadle_jinja_to_double(whole, &size));
  *result_p = treadle_jinja_float(copysign(size, real));
  return TREADLE_OK;
}

/* A float is rounded to decimal digits exactly, halves to even, as its value lies: printf does that. */
static treadle_status round_float(machine *m, double real, int64_t digits, value *result_p) {
  char text[TREADLE_REAL_BYTES];
  *result_p = treadle_jinja_float(real);
  if (isnan(real) || isinf(real) || digits > 350) return TREADLE_OK;
  PASS(treadle_jinja_step(m, 150)); /* it is printed and read */
  if (digits < -308)
    *result_p = treadle_jinja_float(copysign(0, real));
  else if (digits < 0)
    return round_large(m, real, digits, result_p);
  else {
    treadle_real_print(text, 'f', (int)digits, false, real);
    *result_p = treadle_jinja_float(treadle_real_parse(text));
  }
  return TREADLE_OK;
}

treadle_status treadle_jinja_round(machine *m, value v, int64_t digits, value *result_p) {
  if (v.kind == JINJA_FLOAT) return round_float(m, v.real, digits, result_p);
  if (digits < 0) return round_whole(m, v, digits, result_p);
  *result_p = v.kind == JINJA_BOOL ? treadle_jinja_int(v.truth) : v;
  return TREADLE_OK;
}
