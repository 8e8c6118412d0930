/* What a question of treadle doctor is answered with. */
#ifndef TREADLE_CLI_DOCTOR_H
#define TREADLE_CLI_DOCTOR_H

#include "cli/json_out.h"
#include "treadle_tools.h"

typedef enum doctor_level { FINE, WARNING, MISSING } doctor_level;

typedef struct doctor_answer {
  doctor_level level;
  char found[384];
  char advice[320]; /* "" when there is nothing to do */
} doctor_answer;

#define SAY(text, ...) snprintf(text, sizeof(text), __VA_ARGS__)

/* The CUDA devices of this machine. Each is asked once, which starts it in this process. */
typedef struct doctor_devices {
  int32_t count;
  treadle_device_info *infos; /* [count] */
  char none[256];             /* why there is none */
} doctor_devices;

void doctor_devices_find(doctor_devices *devices);
void doctor_devices_release(doctor_devices *devices);
/* Are there any, and of which driver? */
void doctor_devices_answer(const doctor_devices *devices, doctor_answer *answer);
void doctor_device_answer(const doctor_devices *devices, int32_t device, doctor_answer *answer);
/* A list, under the key "devices". */
void doctor_devices_print(const doctor_devices *devices, treadle_json_out *out);

#endif
