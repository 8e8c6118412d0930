/* What ranks on several machines leave in a store for each other, as bytes: a description of each rank, and the table that rank 0 makes of
 * them (nodes_meet.h). Reading is pure; nothing that comes from a store is trusted. Numbers are as the processor has them: another order of bytes
 * shows by the version. */
#ifndef TREADLE_MEET_MEETING_FORM_H
#define TREADLE_MEET_MEETING_FORM_H

#include "group/node.h"

enum { TREADLE_MEETING_VERSION = 1, TREADLE_MEETING_KEY = 16 };
enum { TREADLE_MEETING_HOST = 64, TREADLE_MEETING_TEXT = 400 };

/* Of all, so that another version can be told. */
typedef struct treadle_meeting_head {
  char magic[8];
  uint32_t version, library; /* of what ranks say to each other; of treadle */
  uint64_t bytes;            /* of all of it */
  uint64_t sum;              /* of what is behind the head */
} treadle_meeting_head;

/* What rank 0 says first: under which name the others leave their descriptions. */
typedef struct treadle_meeting_call {
  treadle_meeting_head head;
  uint64_t nonce; /* random; not 0 */
} treadle_meeting_call;

typedef struct treadle_description {
  treadle_meeting_head head;
  uint64_t nonce; /* random, of this rank in this meeting; not 0. It stands here in all versions */
  int32_t rank, size;
  int32_t number; /* of the node, as the caller gives it; -1: to be found */
  int32_t nodes;  /* how many equal groups of neighbours are nodes; 0: not so */
  int32_t status; /* of a rank that fails; text says why */
  uint32_t user;
  treadle_node node;
  char host[TREADLE_MEETING_HOST]; /* its address, as numbers */
  char text[TREADLE_MEETING_TEXT];
} treadle_description;

typedef struct treadle_meeting_row {
  uint64_t nonce; /* as that rank gave it; 0: it was not heard */
  int32_t node;   /* any number, equal for ranks of one node */
  char host[TREADLE_MEETING_HOST];
} treadle_meeting_row;

typedef struct treadle_meeting_table {
  treadle_meeting_head head;
  int32_t status; /* for all; text says why */
  int32_t size;   /* rows follow */
  uint8_t key[TREADLE_MEETING_KEY];
  char text[TREADLE_MEETING_TEXT];
} treadle_meeting_table;

/* Fills in the head of [bytes] that begin with one. `kind` is 8 characters long. */
#define TREADLE_MEETING_CALL  "treadlec"
#define TREADLE_MEETING_RANK  "treadled"
#define TREADLE_MEETING_TABLE "treadlet"
void treadle_meeting_seal(void *all, const char *kind, size_t bytes);

/* From any bytes. Refused in words that follow a name of who left them: "has version 2 ...". */
/* A call stays as it is in later versions: that of another one is refused, and its number is there all the same (else 0), so that rank 0 can be told. */
treadle_status treadle_meeting_read_call(const void *bytes, size_t count, treadle_meeting_call *call_p);
/* Where the bytes are of a rank at all, its nonce is there also when they are refused (else 0), so that it can be told. */
treadle_status treadle_meeting_read_description(const void *bytes, size_t count,
                                                treadle_description *description_p);
/* *rows_p: where the rows are, which may not be aligned (treadle_meeting_row_at). */
treadle_status treadle_meeting_read_table(const void *bytes, size_t count, treadle_meeting_table *table_p,
                                          const void **rows_p);
treadle_meeting_row treadle_meeting_row_at(const void *rows, int32_t rank);
/* A text of 1 to 63 bytes, of what an address as numbers has. */
bool treadle_meeting_is_host(const char *host, size_t room);
/* Is it a row that rank 0 may have written? Refused as above. */
treadle_status treadle_meeting_check_row(const treadle_meeting_row *row, int32_t rank);

#endif
