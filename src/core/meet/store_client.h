/* The side of a rank that is not 0 of a store over TCP. One call at a time. */
#ifndef TREADLE_MEET_STORE_CLIENT_H
#define TREADLE_MEET_STORE_CLIENT_H

#include "meet/store_address.h"
#include "meet/store_message.h"
#include "wire/connect.h"

typedef struct treadle_store_client {
  const char *what; /* "store 10.0.0.1:7000", for messages */
  uint64_t job;
  int rank, ranks;
  treadle_store_stream stream;
  uint32_t number;              /* of the last request */
  const char *doing;            /* what it waits for */
  char host[TREADLE_WIRE_HOST]; /* this end */
} treadle_store_client;

/* Connects, again and again, until rank 0 welcomes all or the time is over. `text` is the address as given. */
treadle_status treadle_store_client_meet(treadle_store_client *client, const char *text,
                                         const treadle_store_address *address, double deadline);
treadle_status treadle_store_client_set(treadle_store_client *client, const char *key, const void *value,
                                        size_t bytes, double deadline);
treadle_status treadle_store_client_get(treadle_store_client *client, const char *key, double seconds,
                                        void *value, size_t capacity, size_t *bytes_p);

#endif
