/* What the files of the oracle say to each other. */
#ifndef TREADLE_TESTS_ORACLE_PARTS_H
#define TREADLE_TESTS_ORACLE_PARTS_H

#include "oracle/oracle.h"

enum { ORACLE_WHY = 200 };

/* Keeps a reason; always false, so that a check reads `return oracle_refuse(why, ...)`. */
bool oracle_refuse(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Zeroed memory, or the end of the program. */
void *oracle_memory(size_t count, size_t each);

/* A layout text, taken apart: kind and key=value pairs. Taking marks a pair as used. */
typedef struct oracle_option {
  char key[32], value[256];
  bool used;
} oracle_option;

typedef struct oracle_options {
  char kind[16];
  int count;
  oracle_option list[32];
} oracle_options;

bool oracle_options_parse(const char *text, oracle_options *options, char *why);
/* The value of a key, NULL when it is not there. */
const char *oracle_option_text(oracle_options *options, const char *key);
/* A whole number of at least 1, `otherwise` when it is not there. */
bool oracle_option_number(oracle_options *options, const char *key, int64_t otherwise, int64_t *value_p,
                          char *why);
/* Refuses a pair that nobody took. */
bool oracle_options_end(const oracle_options *options, char *why);

/* Where the decoder layers are: layer l is on stage p[l], in chunk v[l] of it. */
typedef struct oracle_stages {
  int64_t pp, vpp;
  int64_t *p, *v; /* [layers] */
} oracle_stages;

/* Facts 2.1 and 2.2. Takes pp, vpp, first, last, embedding_split, loss_split and layout. */
bool oracle_stages_megatron(int64_t layers, oracle_options *options, oracle_stages *stages, char *why);
/* Facts 2.4. Takes pp and partition. */
bool oracle_stages_vllm(int64_t layers, oracle_options *options, oracle_stages *stages, char *why);
/* Facts 2.5. Takes pp and partition. */
bool oracle_stages_sglang(int64_t layers, oracle_options *options, oracle_stages *stages, char *why);
void oracle_stages_free(oracle_stages *stages);

#endif
