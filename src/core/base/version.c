/* The version of the library that runs. */
#include "base/status.h"

int treadle_version_number(void) { return TREADLE_VERSION_NUMBER; }

const char *treadle_version_text(void) { return TREADLE_VERSION; }
