/* Exponential and logarithm of the engines, without the C library's: the same bits on every machine.
 *
 * treadle_exp: x = n ln 2 + r with |r| <= ln 2 / 2; e^r = 1 + (r + r * r * q(r)), q of degree 4; n goes into the exponent.
 * Every operation is one rounded multiplication or addition, in the order in which it is written, so that vectors
 * (nn/lanes_exp.h) give the same bits. The error is at most 1.5 ulp. Below TREADLE_EXP_LEAST, where results would
 * be subnormal, it is 0; above TREADLE_EXP_MOST infinity; of NaN NaN; of 0 exactly 1.
 *
 * The functions of double are for what happens once in a row or once for a model: errors below 1e-15, relative where the
 * result is not near 0. */
#ifndef TREADLE_NN_EXP_H
#define TREADLE_NN_EXP_H

#define TREADLE_EXP_LEAST (-0x1.5d589ep+6f) /* ln 2^-126, rounded towards 0: -87.336540 */
#define TREADLE_EXP_MOST  0x1.62e42ep+6f    /* the last before ln 2^128: 88.722832 */

/* What both forms are made of. */
#define TREADLE_EXP_LOG2E    0x1.715476p+0f
#define TREADLE_EXP_ROUND    0x1.8p+23f         /* added to n it leaves n in the lowest bits */
#define TREADLE_EXP_LN2_HIGH 0x1.63p-1f         /* 9 bits: times n exact */
#define TREADLE_EXP_LN2_LOW  (-0x1.bd0106p-13f) /* ln 2 less that */
#define TREADLE_EXP_Q0       0x1.0p-1f
#define TREADLE_EXP_Q1       0x1.5554dcp-3f
#define TREADLE_EXP_Q2       0x1.55551ap-5f
#define TREADLE_EXP_Q3       0x1.120b72p-7f
#define TREADLE_EXP_Q4       0x1.6d110ep-10f

float treadle_exp(float x);
/* 1 / (1 + e^-x). */
float treadle_sigmoid(float x);

/* Natural logarithm: of 0 minus infinity, of what is below NaN. */
double treadle_log(double x);
/* base to the power of exponent, for base > 0 and results in the range of normal numbers. */
double treadle_power(double base, double exponent);
/* Sine and cosine of an angle, |angle| <= 2^24. */
void treadle_sine(double angle, double *sine_p, double *cosine_p);

#endif
