/* Patterns of tokenizers, by PCRE2. A pattern never changes; what a search needs beside it is the caller's, so that any number of
 * threads may search at a time. */
#ifndef TREADLE_TOKEN_REGEX_H
#define TREADLE_TOKEN_REGEX_H

#include "base/status.h"

typedef struct treadle_regex treadle_regex;
typedef struct treadle_regex_room treadle_regex_room; /* of one thread */

/* A pattern in Oniguruma's syntax; texts alone, if `literal`. Empty ones are refused. */
treadle_status treadle_regex_create(const char *pattern, size_t bytes, bool literal,
                                    treadle_regex **regex_p);
void treadle_regex_destroy(treadle_regex *regex);

treadle_status treadle_regex_room_create(treadle_regex_room **room_p);
/* A new task begins: its searches have a limit of time together. Making the room begins the first one. */
void treadle_regex_room_begin(treadle_regex_room *room);
void treadle_regex_room_destroy(treadle_regex_room *room);

/* Going through the matches in a text, which is valid UTF-8, from left to right. An empty match right behind the last one does not
 * count. */
typedef struct treadle_regex_search {
  const treadle_regex *regex;
  treadle_regex_room *room;
  const char *text;
  size_t bytes;
  size_t from;       /* where the search goes on */
  size_t start, end; /* of the match */
  bool any;          /* there was a match */
} treadle_regex_search;

/* *found_p: there is another match. A pattern that takes too many steps is refused. */
treadle_status treadle_regex_next(treadle_regex_search *search, bool *found_p);

#endif
