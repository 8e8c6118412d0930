/* Readers of handles as processes of their own, which a test tells what to do. They are started before the test has threads. */
#ifndef TREADLE_TESTS_READERS_H
#define TREADLE_TESTS_READERS_H

#include "treadle_attach.h"

#include <sys/types.h>

typedef enum reader_order {
  READER_ATTACH, /* bytes of the handle */
  READER_DETACH,
  READER_LOOK, /* version, valid, resident memory */
  READER_WAIT, /* version, seconds */
  READER_HOLD,
  READER_RELEASE,     /* version */
  READER_SUM,         /* a hash of the window */
  READER_CHILD_HOLDS, /* a child made by fork releases (refused), holds, and ends without a word */
  READER_END
} reader_order;

typedef struct reader_question {
  reader_order order;
  uint64_t version;
  double seconds;
  size_t bytes;
  char handle[TREADLE_HANDLE_BYTES];
} reader_question;

typedef struct reader_answer {
  treadle_status status;
  char message[512];
  uint64_t version, sum;
  bool valid;
  size_t resident;
  double seconds; /* that it took */
} reader_answer;

typedef struct reader {
  pid_t process;
  int to, from; /* pipes */
} reader;

reader reader_start(void);
/* Asks, and answers; between both the test can do something else. */
void reader_ask(reader *r, const reader_question *question);
reader_answer reader_hear(reader *r);
/* Both. */
reader_answer reader_do(reader *r, reader_order order);
reader_answer reader_do_version(reader *r, reader_order order, uint64_t version, double seconds);
reader_answer reader_attach(reader *r, const void *handle, size_t bytes);
/* Ends it, in whatever way it has not ended yet. */
void reader_end(reader *r);

#endif
