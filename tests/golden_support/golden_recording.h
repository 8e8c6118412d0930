/* Golden files that say nothing about layouts: text, sampling, models. What a file is, its own fields say (golden_kinds.c). Each kind has
 * one checker, which goes through the whole file and counts its cases.
 *
 * Nothing passes unread: a case that lacks a key, or has one that nobody knows, is skipped, and a line says why; a file that cannot
 * be taken apart is refused. */
#ifndef TREADLE_TESTS_GOLDEN_RECORDING_H
#define TREADLE_TESTS_GOLDEN_RECORDING_H

#include "golden_support/golden.h"

typedef struct golden_recording {
  const char *file;   /* name without folder and ending: "tokenizers" */
  const char *folder; /* where it lies */
  const json_t *root;
  FILE *out; /* a line for each difference, and for each case that is skipped */
  golden_counts *counts;
  bool refused; /* the file itself: said by golden_refuse */
} golden_recording;

/* Counts a case. A difference is a line: where it is, then the words. */
void golden_count(golden_recording *r, golden_counts one);
void golden_say(golden_recording *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* `count` cases that are not compared, and why. */
void golden_skip(golden_recording *r, int count, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The file cannot be read. */
void golden_refuse(golden_recording *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Has `item` the keys of `keys`, and no others? Words of "s:text i:ids ?o:error": s a text, n a number, b a truth, o an object, l a
 * list, i one of whole numbers, f of numbers, t of texts, x anything; ? may be missing. false: reason_p says what is wrong. */
enum { GOLDEN_REASON = 160 };
bool golden_keys(json_t *item, const char *keys, char reason_p[GOLDEN_REASON]);

/* What else a folder of golden files may hold; NULL: nothing is known of it. Such a file is not an answer. */
const char *golden_kind_of_part(const char *path);
/* Calls the checker of the file's kind. false: it is of none. */
bool golden_check_kind(golden_recording *r);

void golden_check_tokenizers(golden_recording *r);  /* golden_tokenizers.c */
void golden_check_chats(golden_recording *r);       /* golden_chat.c */
void golden_check_jinja(golden_recording *r);       /* golden_jinja.c */
void golden_check_sampling(golden_recording *r);    /* golden_sampling.c */
void golden_check_logits(golden_recording *r);      /* golden_logits.c */
void golden_check_real_models(golden_recording *r); /* golden_real.c */

#endif
