/* Where stores of tests are: addresses of the loopback that no other test has. */
#ifndef TREADLE_TESTS_STORE_PLACE_H
#define TREADLE_TESTS_STORE_PLACE_H

#include "meet/store_message.h"

/* "127.A.B.C:7000", another one each time; lives as long as the program. */
const char *store_place(void);
treadle_store_options store_options(const char *address, int rank, int ranks, double seconds);

/* A connection without treadle: the socket, which waits for 10 s at most; -1: nobody listens. */
int store_connect(const char *address);
/* Connects as soon as somebody listens. */
int store_connect_when(const char *address);
/* A hello of that rank on this connection, whose challenge it takes, and to which a test does what it likes before it sends it. */
treadle_store_message store_hello(int socket, int rank, int ranks);
/* Completes a message that has its type, its fields and the key of its frame. */
void store_seal(treadle_store_message *message, const void *content, uint64_t bytes);
void store_send(int socket, const void *bytes, size_t count);
/* What comes until the other end closes, at most [room] bytes. */
size_t store_receive(int socket, void *bytes, size_t room);
/* Has the other end closed it, within 10 s? What it still sends is thrown away. */
bool store_is_closed(int socket);

/* Threads of this process. */
int store_threads(void);

#endif
