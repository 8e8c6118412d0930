/* Where the process begins. All else of the command can be linked to another program. */
#include "cli/cli.h"

#include <signal.h>

int main(int count, char **texts) {
  signal(SIGXFSZ, SIG_IGN); /* a file beyond ulimit -f is an error that write() tells, not an end */
  return treadle_main(count, texts);
}
