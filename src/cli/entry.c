/* Where the process begins. All else of the command can be linked to another program. */
#include "cli/cli.h"

int main(int count, char **texts) { return treadle_main(count, texts); }
