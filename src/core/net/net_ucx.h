/* The net "ucx", in three files: the library (net_ucx_library.c), a worker and its settings (net_ucx_worker.c), peers and messages
 * (net_ucx.c, which says what UCX does when things go wrong). */
#ifndef TREADLE_NET_NET_UCX_H
#define TREADLE_NET_NET_UCX_H

#include "net/net.h"

#include <ucp/api/ucp.h>

/* ---- The library ---- */

#define TREADLE_UCX_FUNCTIONS(_)                                                                           \
  _(ucp_get_version)                                                                                       \
  _(ucp_config_read)                                                                                       \
  _(ucp_config_modify)                                                                                     \
  _(ucp_config_release)                                                                                    \
  _(ucp_init_version)                                                                                      \
  _(ucp_cleanup)                                                                                           \
  _(ucp_context_print_info)                                                                                \
  _(ucp_worker_create)                                                                                     \
  _(ucp_worker_destroy)                                                                                    \
  _(ucp_worker_get_address)                                                                                \
  _(ucp_worker_release_address)                                                                            \
  _(ucp_worker_progress)                                                                                   \
  _(ucp_worker_get_efd)                                                                                    \
  _(ucp_worker_arm)                                                                                        \
  _(ucp_ep_create)                                                                                         \
  _(ucp_ep_close_nbx)                                                                                      \
  _(ucp_tag_send_nbx)                                                                                      \
  _(ucp_tag_recv_nbx)                                                                                      \
  _(ucp_tag_recv_request_test)                                                                             \
  _(ucp_request_check_status)                                                                              \
  _(ucp_request_cancel)                                                                                    \
  _(ucp_request_free)                                                                                      \
  _(ucs_status_string)

typedef struct treadle_ucx {
  unsigned major, minor, release;
#define TREADLE_UCX_MEMBER(name) __typeof__(name) *name;
  TREADLE_UCX_FUNCTIONS(TREADLE_UCX_MEMBER)
#undef TREADLE_UCX_MEMBER
} treadle_ucx;

/* Finds the library, once a process; it stays. Refused where there is none, with what to install. */
treadle_status treadle_ucx_find(const treadle_ucx **ucx_p);

/* UCX writes what goes wrong to the standard output. Between these two calls of a thread it does not; the last of it is kept, for messages. */
void treadle_ucx_listen(void);
void treadle_ucx_ignore(void);
const char *treadle_ucx_heard(void); /* since treadle_ucx_listen of this thread; "": nothing */

/* ---- A worker ---- */

typedef struct treadle_ucx_worker {
  ucp_context_h context;
  ucp_worker_h worker;
  int bell; /* readable when there is something to do, after treadle_ucx->ucp_worker_arm */
} treadle_ucx_worker;

/* Network devices: a list "eth0,mlx5_0:1"; NULL: all. */
treadle_status treadle_ucx_open(const treadle_ucx *ucx, const char *devices, treadle_ucx_worker *worker);
void treadle_ucx_close(const treadle_ucx *ucx, treadle_ucx_worker *worker);

/* The worker's address in a frame that says whose it is and that it is whole: UCX itself believes what it is given. */
treadle_status treadle_ucx_pack(const treadle_ucx *ucx, const treadle_ucx_worker *worker, int rank,
                                void *room, size_t capacity, size_t *bytes_p);
/* Refused: what treadle_ucx_pack of that rank, with this version of UCX, has not written. */
treadle_status treadle_ucx_unpack(const treadle_ucx *ucx, int rank, const void *frame, size_t bytes,
                                  const ucp_address_t **address_p);

#endif
