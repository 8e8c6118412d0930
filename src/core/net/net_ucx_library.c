/* UCX's library, found when it is needed. It was not asked to be here, and so changes nothing for the rest of the process:
 *
 * - It is never closed: it leaves threads and hooks behind.
 * - When it is loaded it sets handlers for SIGSEGV, SIGBUS, SIGHUP and others. What was there before is put back.
 * - It prints. Its lines are caught by a handler of ours while a thread of ours is inside of it, and in threads of UCX's own
 *   where nobody but us has loaded it. What is asked for with UCX_LOG_LEVEL=info and beyond is printed as ever. */
#include "net/net_ucx.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <ucs/debug/log_def.h>

enum { OLDEST_MAJOR = 1, OLDEST_MINOR = 13 }; /* of which net_ucx.c tells; older ones were not tried */

static const char *const file = "libucp.so.0";

static struct {
  pthread_once_t once;
  treadle_ucx functions;
  bool there, ours; /* ours: it was not in the process before */
  char why_not[300];
} found = {.once = PTHREAD_ONCE_INIT};

/* ---- What it says ---- */

static _Thread_local struct {
  int depth;
  char text[200];
} heard;

void treadle_ucx_listen(void) {
  if (heard.depth++ == 0) heard.text[0] = 0;
}

void treadle_ucx_ignore(void) { heard.depth--; }

const char *treadle_ucx_heard(void) { return heard.text; }

static ucs_log_func_rc_t hear(const char *path, unsigned line, const char *function, ucs_log_level_t level,
                              const ucs_log_component_config_t *component, const char *message,
                              va_list arguments) {
  (void)path, (void)line, (void)function, (void)component;
  if (level > UCS_LOG_LEVEL_DIAG || level == UCS_LOG_LEVEL_FATAL || (heard.depth == 0 && !found.ours))
    return UCS_LOG_FUNC_RC_CONTINUE;
  if (heard.depth > 0 && level <= UCS_LOG_LEVEL_WARN)
    vsnprintf(heard.text, sizeof heard.text, message, arguments);
  return UCS_LOG_FUNC_RC_STOP;
}

/* ---- Loading ---- */

/* Functions are copied as bytes, since C has no cast from data to them. */
static bool find(void *library, const char *name, void *function_p) {
  void *at = dlsym(library, name);
  memcpy(function_p, &at, sizeof at);
  return at;
}

static void *load(void) {
  void *library = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
  found.ours = !library;
  if (library) return library;
  enum { SIGNALS = 32 }; /* real time signals come later */
  struct sigaction before[SIGNALS];
  bool had[SIGNALS] = {false};
  for (int number = 1; number < SIGNALS; number++)
    had[number] = sigaction(number, NULL, &before[number]) == 0;
  library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  for (int number = 1; number < SIGNALS; number++)
    if (had[number]) sigaction(number, &before[number], NULL);
  return library;
}

static void find_all(void) {
  void *library = load();
  if (!library) {
    snprintf(found.why_not, sizeof found.why_not,
             "net ucx: %s; install UCX (Debian: libucx0; PyPI: libucx-cu12)", dlerror());
    return;
  }
  const char *missing = NULL;
  treadle_ucx *ucx = &found.functions;
#define FIND(name)                                                                                         \
  if (!find(library, #name, &ucx->name)) missing = #name;
  TREADLE_UCX_FUNCTIONS(FIND)
#undef FIND
  if (missing) {
    snprintf(found.why_not, sizeof found.why_not, "net ucx: %s has no function %s: it is too old", file,
             missing);
    return;
  }
  ucx->ucp_get_version(&ucx->major, &ucx->minor, &ucx->release);
  if (ucx->major != OLDEST_MAJOR || ucx->minor < OLDEST_MINOR) {
    snprintf(found.why_not, sizeof found.why_not,
             "net ucx: %s is of version %u.%u.%u; %d.%d or a later %d is needed", file, ucx->major,
             ucx->minor, ucx->release, OLDEST_MAJOR, OLDEST_MINOR, OLDEST_MAJOR);
    return;
  }
  void (*push)(ucs_log_func_t handler);
  if (find(library, "ucs_log_push_handler", &push)) push(hear);
  found.there = true;
}

treadle_status treadle_ucx_find(const treadle_ucx **ucx_p) {
  *ucx_p = NULL;
  pthread_once(&found.once, find_all);
  if (!found.there) REFUSE("%s", found.why_not);
  *ucx_p = &found.functions;
  return TREADLE_OK;
}
