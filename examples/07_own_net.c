/* A net of one's own: nodes that share a folder send each other files. Four ranks on two made-up nodes switch over it.
 *
 *   example_own_net DIR|config.json megatron:tp=4 vllm:tp=2
 *
 * A message is the file FOLDER/FROM-TO-TAG. Its sender writes it under another name and renames it, so that it appears whole. */
#include <treadle_device.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 4, PARTS = 64, PATH = 256 };

typedef struct folder_net { /* the net of one rank */
  const char *folder;
  int rank;
} folder_net;

typedef struct request {
  char path[PATH];
  int peer, count; /* of a send, which has ended when it began: no parts */
  size_t bytes;
  struct iovec parts[PARTS];
} request;

static treadle_status failed(treadle_status status, const char *what, const char *path) {
  char message[2 * PATH];
  snprintf(message, sizeof message, "folder net: %s %s: %s", what, path, strerror(errno));
  return treadle_error_set(status, message);
}

/* ---- The table ---- */

static treadle_status net_open(const treadle_net_options *options, void **net_p) {
  folder_net *net = malloc(sizeof *net);
  *net_p = net;
  if (!net) return treadle_error_set(TREADLE_NO_MEMORY, "folder net: memory is out");
  *net = (folder_net){.folder = options->context, .rank = options->rank};
  return TREADLE_OK;
}

/* Others need nothing to reach this rank but the folder that all know. */
static treadle_status net_address(void *net, void *room, size_t capacity, size_t *bytes_p) {
  const int rank = ((const folder_net *)net)->rank;
  *bytes_p = sizeof rank;
  if (capacity < sizeof rank)
    return treadle_error_set(TREADLE_REFUSED, "folder net: no room for an address");
  memcpy(room, &rank, sizeof rank);
  return TREADLE_OK;
}

static treadle_status net_connect(void *net, int peer, const void *address, size_t bytes) {
  (void)net;
  if (bytes != sizeof peer || memcmp(address, &peer, bytes) != 0)
    return treadle_error_set(TREADLE_REFUSED, "folder net: this is not the address of that rank");
  return TREADLE_OK;
}

static request *make_request(int peer, const treadle_net_part *parts, int count) {
  request *made = calloc(1, sizeof *made);
  if (!made) return NULL;
  made->peer = peer;
  made->count = count;
  for (int i = 0; i < count; i++) {
    made->parts[i] = (struct iovec){parts[i].at, parts[i].bytes};
    made->bytes += parts[i].bytes;
  }
  return made;
}

/* All parts, one after the other. Regular files are read and written whole, but for a full disk and signals. */
static treadle_status pass(int file, request *r, ssize_t (*each)(int, const struct iovec *, int)) {
  for (int i = 0; i < r->count; i++) {
    struct iovec part = r->parts[i];
    while (part.iov_len > 0) {
      ssize_t done = each(file, &part, 1);
      if (done < 0 && errno == EINTR) continue;
      if (done == 0) errno = EPIPE; /* the file ends early */
      if (done <= 0) return failed(TREADLE_PEER, "a message stops in the middle:", r->path);
      part.iov_base = (char *)part.iov_base + done;
      part.iov_len -= (size_t)done;
    }
  }
  return TREADLE_OK;
}

static treadle_status net_send(void *of, int peer, uint64_t tag, const treadle_net_part *parts, int count,
                               void **request_p) {
  const folder_net *net = of;
  char written[PATH + 8];
  request *r = *request_p = make_request(peer, parts, count);
  if (!r) return treadle_error_set(TREADLE_NO_MEMORY, "folder net: memory is out");
  snprintf(r->path, sizeof r->path, "%s/%d-%d-%llu", net->folder, net->rank, peer, (unsigned long long)tag);
  snprintf(written, sizeof written, "%s.new", r->path);
  int file = open(written, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  treadle_status status = file < 0 ? failed(TREADLE_SYSTEM, "cannot make", written) : pass(file, r, writev);
  if (file >= 0) close(file);
  if (!status && rename(written, r->path) != 0) status = failed(TREADLE_SYSTEM, "cannot rename", written);
  r->count = -1;
  if (status) {
    free(r);
    *request_p = NULL;
  }
  return status;
}

static treadle_status net_receive(void *of, int peer, uint64_t tag, const treadle_net_part *parts,
                                  int count, void **request_p) {
  const folder_net *net = of;
  request *r = *request_p = make_request(peer, parts, count);
  if (!r) return treadle_error_set(TREADLE_NO_MEMORY, "folder net: memory is out");
  snprintf(r->path, sizeof r->path, "%s/%d-%d-%llu", net->folder, peer, net->rank, (unsigned long long)tag);
  return TREADLE_OK;
}

/* Never waits: a message that is not there yet is asked for again. */
static treadle_status net_test(void *net, void *of, bool *done_p) {
  (void)net;
  request *r = of;
  treadle_status status = TREADLE_OK;
  *done_p = r->count < 0;
  if (!*done_p) {
    struct stat found;
    int file = open(r->path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
      if (errno == ENOENT) return TREADLE_OK;
      status = failed(TREADLE_PEER, "cannot open", r->path);
    } else if (fstat(file, &found) != 0 || (size_t)found.st_size != r->bytes) {
      status = treadle_error_set(TREADLE_PEER, "folder net: a message has another length");
    } else {
      status = pass(file, r, readv);
    }
    if (file >= 0) close(file);
    unlink(r->path);
    *done_p = !status;
  }
  free(r); /* done or failed, the request has ended */
  return status;
}

static void net_wait(void *net, double seconds) {
  (void)net;
  const double most = seconds < 1e-3 ? seconds : 1e-3; /* nobody rings when a file appears */
  nanosleep(&(struct timespec){.tv_nsec = (long)(most * 1e9)}, NULL);
}

static void net_cancel(void *net, void *of) {
  (void)net;
  free(of);
}

static void net_close(void *net) { free(net); }

static const treadle_net_ops folder_ops = {.struct_size = sizeof(treadle_net_ops),
                                           .name = "folder",
                                           .memory = TREADLE_NET_HOST,
                                           .most_parts = PARTS,
                                           .open = net_open,
                                           .address = net_address,
                                           .connect = net_connect,
                                           .send = net_send,
                                           .receive = net_receive,
                                           .test = net_test,
                                           .wait = net_wait,
                                           .cancel = net_cancel,
                                           .close = net_close};

/* ---- A switch over it ---- */

static treadle_status run_rank(char **texts, const char *address, char *folder, int rank) {
  treadle_model *model = NULL;
  treadle_layout *train = NULL, *infer = NULL;
  treadle_group *group = NULL;
  treadle_switch *sw = NULL;
  treadle_store store = TREADLE_INIT(treadle_store);
  treadle_model_options random = TREADLE_INIT(treadle_model_options);
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  const treadle_store_options meeting = {
      .struct_size = sizeof meeting, .address = address, .job = "own-net", .rank = rank, .ranks = RANKS};
  random.weights = TREADLE_WEIGHTS_RANDOM;
  treadle_status status = treadle_store_open(&meeting, &store);
  /* Ranks 0 and 1 say that they are on node 0, ranks 2 and 3 on node 1. */
  if (!status) status = treadle_group_store(&store, rank, RANKS, rank / 2, 60, &group);
  treadle_store_close(&store);
  if (!status) status = treadle_group_set_net(group, &folder_ops, folder);
  if (!status) status = treadle_model_open(texts[1], &random, &model);
  if (!status) status = treadle_layout_create(model, texts[2], RANKS, NULL, &train);
  if (!status) status = treadle_layout_create(model, texts[3], RANKS, NULL, &infer);
  if (!status) status = treadle_switch_create(group, train, infer, NULL, &sw);
  if (!status) status = treadle_layout_load(train, rank, treadle_switch_train_window(sw));
  if (!status) status = treadle_switch_filled(sw);
  if (!status) status = treadle_switch_to_infer(sw);
  if (!status) {
    treadle_switch_get_stats(sw, &stats);
    printf("rank %d, node %d: version %llu, %zu bytes from the other node\n", rank,
           treadle_group_node(group, rank), (unsigned long long)treadle_switch_version(sw),
           stats.node_moved_bytes);
  }
  if (status) fprintf(stderr, "rank %d: %s\n", rank, treadle_error_message());
  treadle_switch_destroy(sw);
  treadle_group_close(group);
  treadle_layout_destroy(infer);
  treadle_layout_destroy(train);
  treadle_model_close(model);
  return status;
}

int main(int count, char **texts) {
  char folder[] = "/tmp/treadle-own-net-XXXXXX";
  treadle_node_address here;
  int failures = 0;
  if (count != 4) {
    fprintf(stderr, "usage: %s DIR|config.json TRAIN INFER\n", texts[0]);
    return 2;
  }
  if (!mkdtemp(folder) || treadle_machine_address(&here) != TREADLE_OK) {
    perror("a folder and an address");
    return 1;
  }
  for (int rank = 0; rank < RANKS; rank++)
    if (fork() == 0) return run_rank(texts, here.address, folder, rank) ? 1 : 0;
  for (int result; wait(&result) > 0;) failures += result != 0;
  if (rmdir(folder) != 0) perror(folder); /* every message was read */
  return failures > 0;
}
