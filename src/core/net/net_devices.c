/* Devices by name and by address, as the kernel lists them. */
#include "net/net_devices.h"

#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct list {
  char *text;
  size_t capacity;
} list;

static treadle_status add(list *to, const char *name, const char *port) {
  size_t used = strlen(to->text);
  int more = snprintf(to->text + used, to->capacity - used, "%s%s%s%s", used ? "," : "", name,
                      *port ? ":" : "", port);
  if (more < 0 || (size_t)more >= to->capacity - used)
    REFUSE("network devices: their names have more than %zu bytes", to->capacity - 1);
  return TREADLE_OK;
}

static bool is_there(const char *system, const char *kind, const char *name, size_t length) {
  char path[300];
  int bytes = snprintf(path, sizeof path, "%s/class/%s/%.*s", system, kind, (int)length, name);
  return bytes > 0 && (size_t)bytes < sizeof path && access(path, F_OK) == 0;
}

/* "eth0" or "mlx5_0" or "mlx5_0:1" */
static treadle_status check(const char *system, const char *name, size_t length) {
  size_t bare = 0;
  while (bare < length && name[bare] != ':') bare++;
  if (length == 0) REFUSE("network devices: an empty name in the list");
  if (bare == 0 || memchr(name, '/', length) || name[0] == '.' ||
      (!is_there(system, "net", name, length) && !is_there(system, "infiniband", name, bare)))
    REFUSE("network devices: '%.*s' is none of this machine's", length < 64 ? (int)length : 64, name);
  return TREADLE_OK;
}

static treadle_status take_named(const char *names, const char *system, list *to) {
  treadle_status status = TREADLE_OK;
  for (const char *name = names;;) {
    size_t length = strcspn(name, ",");
    TRY(check(system, name, length));
    if (!name[length]) break;
    name += length + 1;
  }
  TRY(add(to, names, ""));
out:
  return status;
}

/* The ports of InfiniBand or RoCE behind a device. */
static treadle_status add_ports(const char *system, const char *device, list *to) {
  treadle_status status = TREADLE_OK;
  char path[300], port[16] = "1";
  snprintf(path, sizeof path, "%s/class/net/%.64s/dev_port", system, device);
  FILE *file = fopen(path, "re");
  if (file) {
    unsigned number;
    if (fscanf(file, "%9u", &number) == 1) snprintf(port, sizeof port, "%u", number + 1);
    fclose(file);
  }
  snprintf(path, sizeof path, "%s/class/net/%.64s/device/infiniband", system, device);
  DIR *folder = opendir(path);
  if (!folder) return TREADLE_OK;
  for (const struct dirent *entry; (entry = readdir(folder));)
    if (entry->d_name[0] != '.') TRY(add(to, entry->d_name, port));
out:
  closedir(folder);
  return status;
}

static bool same_address(const struct sockaddr *a, const struct sockaddr *b) {
  if (!a || a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET)
    return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr ==
           ((const struct sockaddr_in *)(const void *)b)->sin_addr.s_addr;
  return a->sa_family == AF_INET6 &&
         memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

/* All of 127.0.0.0/8 is loopback's, though its interface lists one address. */
static bool is_of(const struct ifaddrs *at, const struct sockaddr *address) {
  bool inner = at->ifa_addr && (at->ifa_flags & IFF_LOOPBACK) && at->ifa_addr->sa_family == AF_INET &&
               address->sa_family == AF_INET;
  if (!inner) return same_address(at->ifa_addr, address);
  return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 ==
         IN_LOOPBACKNET;
}

static treadle_status take_of_host(const char *host, const char *system, list *to) {
  treadle_status status = TREADLE_OK;
  struct addrinfo how = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *wanted = NULL;
  struct ifaddrs *all = NULL;
  if (getaddrinfo(host, NULL, &how, &wanted) != 0 || !wanted)
    REFUSE("network devices: '%.64s' is not an address of a machine", host);
  if (getifaddrs(&all) != 0) TRY(treadle_fail(TREADLE_SYSTEM, "network devices: %s", strerror(errno)));
  for (const struct ifaddrs *at = all; at; at = at->ifa_next) {
    if (!is_of(at, wanted->ai_addr)) continue;
    char device[IF_NAMESIZE]; /* "eth0:1" is a label of eth0 */
    snprintf(device, sizeof device, "%.*s", (int)strcspn(at->ifa_name, ":"), at->ifa_name);
    TRY(add(to, device, ""));
    TRY(add_ports(system, device, to));
    break;
  }
  if (!to->text[0])
    TRY(treadle_fail(TREADLE_REFUSED, "network devices: none of this machine's has the address %.64s",
                     host));
out:
  if (all) freeifaddrs(all);
  freeaddrinfo(wanted);
  return status;
}

treadle_status treadle_net_devices(const treadle_net_options *options, const char *system, char *text,
                                   size_t capacity) {
  list to = {text, capacity};
  text[0] = 0;
  if (options->devices) return take_named(options->devices, system, &to);
  return options->host ? take_of_host(options->host, system, &to) : TREADLE_OK;
}
