/* Sockets of connections: made, listened at, taken in. None of them blocks, and none is kept by a program that this process starts. They send at
 * once what they are given (TCP_NODELAY). */
#ifndef TREADLE_WIRE_CONNECT_H
#define TREADLE_WIRE_CONNECT_H

#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/un.h>

enum { TREADLE_WIRE_HOST = 64, TREADLE_WIRE_PORT = 8 };

/* Of one end, with its port; all zeros: none. */
typedef union treadle_wire_address {
  struct sockaddr any;
  struct sockaddr_in four;
  struct sockaddr_in6 six;
  struct sockaddr_un local;
} treadle_wire_address;

/* A place of this machine that only its name has, no file: of at most TREADLE_WIRE_HOST letters. */
treadle_wire_address treadle_wire_local(const char *name);
/* None, where it is neither of IPv4 nor of IPv6. */
treadle_wire_address treadle_wire_address_of(const struct sockaddr *at);
socklen_t treadle_wire_address_bytes(const treadle_wire_address *at);

/* What the system knows of a host and a port (NULL: none); the caller ends it with freeaddrinfo. numbers: nobody is asked for a name; else it takes
 * as long as the system's resolver takes. Returns what gai_strerror() words; 0: found. */
int treadle_wire_find(const char *host, const char *port, bool numbers, struct addrinfo **found_p);

/* The first of them, of a host and a port as numbers. */
int treadle_wire_find_one(const char *host, const char *port, treadle_wire_address *at_p);

/* Listens on one address. A port that was left shortly before may be taken again. -1: errno says why. */
int treadle_wire_listen(const treadle_wire_address *at);
/* Takes in who has connected. -1: nobody has, or errno says why not. */
int treadle_wire_accept(int listener);
/* Begins to connect; the socket can be written when it is decided. -1: errno says why. */
int treadle_wire_connect(const treadle_wire_address *at);
/* Is it that files or memory are out, of this process or of the machine? */
bool treadle_wire_is_out(int error);
/* What has become of it, as errno has it; 0: it is connected. */
int treadle_wire_connected(int socket);
/* A machine at the other end that does not answer any more is seen after some seconds, where nothing is on its way. */
void treadle_wire_keep_alive(int socket);

/* The address of one end; none, if it is not known. */
treadle_wire_address treadle_wire_end(int socket, bool other_end);
/* It as numbers: host [TREADLE_WIRE_HOST], port [TREADLE_WIRE_PORT], each NULL or "?" if it is not known. */
void treadle_wire_name(int socket, bool other_end, char *host, char *port);

#endif
