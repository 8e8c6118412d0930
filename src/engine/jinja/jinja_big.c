/* Integers beyond 64 bits: a sign and limbs of 32 bits, the lowest first, without leading zeros. A result that fits into 64 bits is
 * an ordinary integer again, so that each number has one form. Division goes bit by bit: such numbers are rare and short. */
#include "base/larger.h"
#include "jinja/jinja_number.h"

#include <math.h>
#include <string.h>

/* Python prints no integer of more than 4,300 digits, which are 14,285 bits. */
enum { MAX_LIMBS = 448 };

struct treadle_jinja_big {
  bool negative;
  int count;
  uint32_t limbs[];
};

/* A number that is being reckoned with; a product has twice the limbs. */
typedef struct wide {
  bool negative;
  int count;
  uint32_t limbs[2 * MAX_LIMBS + 2];
} wide;

static void trim(wide *a) {
  while (a->count > 0 && a->limbs[a->count - 1] == 0) a->count--;
}

static void widen(treadle_jinja_value value, wide *a) {
  a->count = 0;
  if (value.kind == JINJA_BIG) {
    a->negative = value.big->negative;
    a->count = value.big->count;
    memcpy(a->limbs, value.big->limbs, (size_t)a->count * sizeof *a->limbs);
    return;
  }
  int64_t number = value.kind == JINJA_BOOL ? value.truth : value.number;
  uint64_t size = number < 0 ? -(uint64_t)number : (uint64_t)number;
  a->negative = number < 0;
  for (; size; size >>= 32) a->limbs[a->count++] = (uint32_t)size;
}

static treadle_status narrow(treadle_jinja_machine *m, wide *a, treadle_jinja_value *value_p) {
  trim(a);
  uint64_t size = (a->count > 1 ? (uint64_t)a->limbs[1] << 32 : 0) | (a->count > 0 ? a->limbs[0] : 0);
  if (a->count <= 2 && size <= (uint64_t)INT64_MAX + a->negative) {
    *value_p = treadle_jinja_int(a->negative ? (int64_t)-size : (int64_t)size);
    return TREADLE_OK;
  }
  if (a->count > MAX_LIMBS) REFUSE("an integer has more than 4300 digits");
  struct treadle_jinja_big *big;
  PASS(treadle_jinja_alloc(m, 1, sizeof *big + (size_t)a->count * sizeof *a->limbs, &big));
  big->negative = a->negative;
  big->count = a->count;
  memcpy(big->limbs, a->limbs, (size_t)a->count * sizeof *a->limbs);
  *value_p = (treadle_jinja_value){.kind = JINJA_BIG, .big = big};
  return TREADLE_OK;
}

/* -1, 0, 1, without signs. */
static int compare_sizes(const wide *a, const wide *b) {
  if (a->count != b->count) return a->count < b->count ? -1 : 1;
  for (int i = a->count - 1; i >= 0; i--)
    if (a->limbs[i] != b->limbs[i]) return a->limbs[i] < b->limbs[i] ? -1 : 1;
  return 0;
}

/* to = a + b, without signs. */
static void add_sizes(const wide *a, const wide *b, wide *to) {
  uint64_t carry = 0;
  int count = a->count > b->count ? a->count : b->count;
  for (int i = 0; i < count; i++) {
    carry += (uint64_t)(i < a->count ? a->limbs[i] : 0) + (i < b->count ? b->limbs[i] : 0);
    to->limbs[i] = (uint32_t)carry;
    carry >>= 32;
  }
  to->count = count;
  if (carry) to->limbs[to->count++] = (uint32_t)carry;
}

/* to = a - b, without signs; a is not the smaller one. `to` may be a. */
static void subtract_sizes(const wide *a, const wide *b, wide *to) {
  int64_t borrow = 0;
  int count = a->count;
  for (int i = 0; i < count; i++) {
    borrow += (int64_t)a->limbs[i] - (i < b->count ? b->limbs[i] : 0);
    to->limbs[i] = (uint32_t)borrow;
    borrow >>= 32; /* 0 or -1 */
  }
  to->count = count;
  trim(to);
}

static void add(const wide *a, const wide *b, wide *to) {
  if (a->negative == b->negative) {
    add_sizes(a, b, to);
    to->negative = a->negative;
    return;
  }
  bool less = compare_sizes(a, b) < 0;
  subtract_sizes(less ? b : a, less ? a : b, to);
  to->negative = (less ? b : a)->negative && to->count > 0;
}

static void multiply(const wide *a, const wide *b, wide *to) {
  memset(to->limbs, 0, (size_t)(a->count + b->count + 1) * sizeof *to->limbs);
  for (int i = 0; i < a->count; i++) {
    uint64_t carry = 0;
    for (int j = 0; j < b->count; j++) {
      carry += (uint64_t)a->limbs[i] * b->limbs[j] + to->limbs[i + j];
      to->limbs[i + j] = (uint32_t)carry;
      carry >>= 32;
    }
    to->limbs[i + b->count] = (uint32_t)carry;
  }
  to->count = a->count + b->count;
  trim(to);
  to->negative = a->negative != b->negative && to->count > 0;
}

/* Towards minus infinity, as Python does: rest has the sign of b. */
static void divide(const wide *a, const wide *b, wide *quotient, wide *rest) {
  static const wide one = {.count = 1, .limbs = {1}};
  memset(quotient->limbs, 0, (size_t)a->count * sizeof *quotient->limbs);
  quotient->count = a->count;
  rest->count = 0;
  for (int bit = a->count * 32 - 1; bit >= 0; bit--) {
    uint32_t carry = a->limbs[bit / 32] >> (bit % 32) & 1;
    for (int i = 0; i < rest->count; i++) {
      uint32_t limb = rest->limbs[i];
      rest->limbs[i] = limb << 1 | carry;
      carry = limb >> 31;
    }
    if (carry) rest->limbs[rest->count++] = carry;
    if (compare_sizes(rest, b) < 0) continue;
    subtract_sizes(rest, b, rest);
    quotient->limbs[bit / 32] |= 1u << (bit % 32);
  }
  trim(quotient);
  quotient->negative = rest->negative = false;
  if (a->negative != b->negative && rest->count > 0) {
    add_sizes(quotient, &one, quotient);
    subtract_sizes(b, rest, rest);
  }
  quotient->negative = a->negative != b->negative && quotient->count > 0;
  rest->negative = b->negative && rest->count > 0;
}

treadle_status treadle_jinja_reckon_big(treadle_jinja_machine *m, char op, treadle_jinja_value left,
                                        treadle_jinja_value right, treadle_jinja_value *result_p) {
  wide a, b, c, rest;
  widen(left, &a);
  widen(right, &b);
  size_t limbs = (size_t)(a.count + 1) * (size_t)(b.count + 1);
  PASS(
      treadle_jinja_step(m, op == '|' || op == '%' ? 4 * limbs : limbs / 4)); /* division goes bit by bit */
  if (op == '-') b.negative = !b.negative;
  if (op == '+' || op == '-')
    add(&a, &b, &c);
  else if (op == '*')
    multiply(&a, &b, &c);
  else
    divide(&a, &b, &c, &rest);
  return narrow(m, op == '%' ? &rest : &c, result_p);
}

int treadle_jinja_compare_big(treadle_jinja_value left, treadle_jinja_value right) {
  wide a, b;
  widen(left, &a);
  widen(right, &b);
  bool a_below = a.negative && a.count > 0, b_below = b.negative && b.count > 0;
  if (a_below != b_below) return a_below ? -1 : 1;
  return a_below ? -compare_sizes(&a, &b) : compare_sizes(&a, &b);
}

/* a / b as the nearest float: enough bits of the quotient that the rest only decides how it is rounded. */
static void shift_up(wide *a, int bits) {
  memmove(a->limbs + bits / 32, a->limbs, (size_t)a->count * sizeof *a->limbs);
  memset(a->limbs, 0, (size_t)(bits / 32) * sizeof *a->limbs);
  a->count += bits / 32;
  uint32_t carry = 0;
  for (int i = bits / 32; i < a->count && bits % 32; i++) {
    uint32_t limb = a->limbs[i];
    a->limbs[i] = limb << (bits % 32) | carry;
    carry = limb >> (32 - bits % 32);
  }
  if (carry) a->limbs[a->count++] = carry;
}

static double to_double(const uint32_t *limbs, int count);

treadle_status treadle_jinja_divide_big(treadle_jinja_machine *m, treadle_jinja_value left,
                                        treadle_jinja_value right, double *real_p) {
  wide a, b, quotient, rest;
  widen(left, &a);
  widen(right, &b);
  size_t most = (size_t)treadle_larger(a.count, b.count) + 4;
  PASS(treadle_jinja_step(m, 4 * most * most));
  bool negative = a.negative != b.negative;
  a.negative = b.negative = false;
  int shift = 32 * (b.count - a.count + 3); /* 65 bits of the quotient or more */
  shift_up(shift > 0 ? &a : &b, shift > 0 ? shift : -shift);
  divide(&a, &b, &quotient, &rest);
  if (rest.count > 0) quotient.limbs[0] |= 1;
  *real_p = quotient.count ? ldexp(to_double(quotient.limbs, quotient.count), -shift) : 0;
  if (isinf(*real_p)) REFUSE("the quotient of integers is too large to be a float");
  if (negative) *real_p = -*real_p;
  return TREADLE_OK;
}

/* ---- To and from other forms -------------------------------------------------------------------- */

/* Half to even: 64 bits from the top, and whether any below is set. */
static double to_double(const uint32_t *limbs, int count) {
  int top = count - 1, shift = 0;
  uint64_t bits = (uint64_t)limbs[top] << 32 | (top > 0 ? limbs[top - 1] : 0);
  uint32_t below = top > 1 ? limbs[top - 2] : 0;
  while (!(bits >> 63)) {
    bits = bits << 1 | below >> 31;
    below <<= 1;
    shift++;
  }
  bool rest = below != 0;
  for (int i = 0; i < top - 2; i++) rest = rest || limbs[i] != 0;
  bits |= rest; /* the lowest of 64 bits is far below the 53 that stay */
  return ldexp((double)bits, 32 * (top - 1) - shift);
}

double treadle_jinja_big_to_double(const struct treadle_jinja_big *big) {
  double real = to_double(big->limbs, big->count);
  return big->negative ? -real : real;
}

treadle_status treadle_jinja_to_whole(treadle_jinja_machine *m, double real, treadle_jinja_value *value_p) {
  if (isnan(real) || isinf(real))
    REFUSE("cannot convert float %s to integer", isnan(real) ? "NaN" : "infinity");
  if (fabs(real) < 0x1p62) {
    *value_p = treadle_jinja_int((int64_t)real);
    return TREADLE_OK;
  }
  int exponent;
  uint64_t bits = (uint64_t)ldexp(frexp(fabs(real), &exponent), 53);
  int shift = exponent - 53, limbs = shift / 32;
  wide a = {.negative = real < 0, .count = limbs + 3};
  memset(a.limbs, 0, (size_t)a.count * sizeof *a.limbs);
  uint64_t low = bits << (shift % 32);
  a.limbs[limbs] = (uint32_t)low;
  a.limbs[limbs + 1] = (uint32_t)(low >> 32);
  a.limbs[limbs + 2] = shift % 32 ? (uint32_t)(bits >> (64 - shift % 32)) : 0;
  return narrow(m, &a, value_p);
}

/* a = a * by + more */
static void multiply_small(wide *a, uint32_t by, uint32_t more) {
  uint64_t carry = more;
  for (int i = 0; i < a->count; i++) {
    carry += (uint64_t)a->limbs[i] * by;
    a->limbs[i] = (uint32_t)carry;
    carry >>= 32;
  }
  if (carry) a->limbs[a->count++] = (uint32_t)carry;
}

static int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

treadle_status treadle_jinja_of_digits(treadle_jinja_machine *m, const char *digits, size_t count, int base,
                                       treadle_jinja_value *value_p) {
  wide a = {.count = 0};
  size_t most =
      count < 16 * MAX_LIMBS ? count : 16 * MAX_LIMBS; /* each digit goes through all limbs so far */
  PASS(treadle_jinja_step(m, most + most * most / 512));
  for (size_t i = 0; i < count; i++) {
    if (a.count > MAX_LIMBS) break;
    multiply_small(&a, (uint32_t)base, (uint32_t)digit_of(digits[i]));
  }
  return narrow(m, &a, value_p);
}

treadle_status treadle_jinja_write_whole(treadle_jinja_machine *m, treadle_jinja_writer *w,
                                         treadle_jinja_value value, int base) {
  wide a;
  char digits[MAX_LIMBS * 32 + 2];
  size_t at = sizeof digits;
  widen(value, &a);
  bool negative = a.negative;
  PASS(treadle_jinja_step(m, (size_t)a.count * (size_t)a.count));
  do {
    uint64_t rest = 0;
    for (int i = a.count - 1; i >= 0; i--) {
      rest = rest << 32 | a.limbs[i];
      a.limbs[i] = (uint32_t)(rest / (uint32_t)base);
      rest %= (uint32_t)base;
    }
    trim(&a);
    digits[--at] = "0123456789abcdef"[rest];
  } while (a.count > 0);
  if (negative) digits[--at] = '-';
  return treadle_jinja_write(m, w, digits + at, sizeof digits - at);
}
