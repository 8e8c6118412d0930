/* treadle doctor: CUDA devices. */
#include "cli/doctor.h"

#include "base/alloc.h"
#include "base/text.h"

#include <string.h>
#include <unistd.h>

static void ask(int32_t device, treadle_device_info *info) {
  info->struct_size = sizeof *info;
  if (treadle_machine_device(device, info) != TREADLE_OK) SAY(info->lacks, "%s", treadle_error_message());
}

void doctor_devices_find(doctor_devices *devices) {
  *devices = (doctor_devices){.count = treadle_machine_device_count()};
  if (devices->count > 0) {
    devices->infos = treadle_alloc_array((size_t)devices->count, sizeof *devices->infos);
  } else {
    const char *why = treadle_error_message();
    SAY(devices->none, "%s", treadle_text_starts(why, "cuda: ") ? why + strlen("cuda: ") : why);
  }
  if (!devices->infos) devices->count = 0;
  for (int32_t i = 0; i < devices->count; i++) ask(i, &devices->infos[i]);
}

void doctor_devices_release(doctor_devices *devices) { treadle_free(devices->infos); }

/* A machine without a GPU lacks nothing. One that has a GPU which nobody can use does. */
void doctor_devices_answer(const doctor_devices *devices, doctor_answer *answer) {
  if (devices->count > 0) {
    SAY(answer->found, "%d CUDA device%s, driver of CUDA %d.%d, kernels %s", (int)devices->count,
        devices->count == 1 ? "" : "s", devices->infos[0].driver_major, devices->infos[0].driver_minor,
        treadle_machine_has_kernels() ? "built in" : "not built in: run make cuda, then make");
    return;
  }
  SAY(answer->found, "no CUDA devices: %s", devices->none);
  SAY(answer->advice,
      "weights lie in host memory (--device cpu); CUDA devices need a card that this process sees, "
      "NVIDIA's driver of CUDA "
      "13.0 or later, and kernels, which this treadle %s",
      treadle_machine_has_kernels() ? "has" : "was built without (make cuda)");
  if (access("/dev/nvidiactl", F_OK) == 0) answer->level = WARNING;
}

/* "0, 2, 3" */
static void write_peers(uint64_t peers, char *text, size_t bytes) {
  size_t used = 0;
  text[0] = 0;
  for (int i = 0; i < 64; i++)
    if (peers >> i & 1 && used < bytes)
      used += (size_t)snprintf(text + used, bytes - used, "%s%d", used ? ", " : "", i);
}

void doctor_device_answer(const doctor_devices *devices, int32_t device, doctor_answer *answer) {
  const treadle_device_info *info = &devices->infos[device];
  char peers[64], room[80] = "";
  write_peers(info->peers, peers, sizeof peers);
  if (info->bytes)
    SAY(room, "%s, %s free, ", treadle_text_of_size(info->bytes), treadle_text_of_size(info->left_bytes));
  SAY(answer->found, "%s, %s, compute capability %d.%d, %spages of %s, %sshareable handles%s%s%s",
      info->name, info->uuid, info->major, info->minor, room, treadle_text_of_size(info->page_bytes),
      info->handles ? "" : "no ",
      devices->count < 2 ? ""
      : peers[0]         ? ", peers "
                         : ", no peers",
      peers, info->shared ? ", MPS" : "");
  if (!info->usable) {
    answer->level = WARNING;
    SAY(answer->advice, "%s", info->lacks);
  } else if (treadle_text_starts(info->uuid, "MIG")) {
    SAY(answer->advice, "a part of a card (MIG): ranks on another part cannot read its memory");
  } else if (devices->count > 1 && !peers[0]) {
    SAY(answer->advice,
        "it cannot read memory of the others: give its ranks a node of their own (--nodes)");
  } else if (info->shared) {
    SAY(answer->advice, "contexts share the card (MPS): a fault of one process ends all of them");
  }
}

void doctor_devices_print(const doctor_devices *devices, treadle_json_out *out) {
  treadle_json_out_open(out, "devices", '[');
  for (int32_t i = 0; i < devices->count; i++) {
    const treadle_device_info *info = &devices->infos[i];
    char version[32];
    treadle_json_out_open(out, NULL, '{');
    treadle_json_out_int(out, "number", i);
    treadle_json_out_text(out, "name", info->name);
    treadle_json_out_text(out, "uuid", info->uuid);
    SAY(version, "%d.%d", info->driver_major, info->driver_minor);
    treadle_json_out_text(out, "driver", version);
    SAY(version, "%d.%d", info->major, info->minor);
    treadle_json_out_text(out, "compute_capability", version);
    treadle_json_out_int(out, "bytes", (int64_t)info->bytes);
    treadle_json_out_int(out, "left_bytes", (int64_t)info->left_bytes);
    treadle_json_out_int(out, "page_bytes", (int64_t)info->page_bytes);
    treadle_json_out_bool(out, "handles", info->handles);
    treadle_json_out_bool(out, "mig", treadle_text_starts(info->uuid, "MIG"));
    treadle_json_out_bool(out, "mps", info->shared);
    treadle_json_out_open(out, "peers", '[');
    for (int peer = 0; peer < 64; peer++)
      if (info->peers >> peer & 1) treadle_json_out_int(out, NULL, peer);
    treadle_json_out_close(out, ']');
    treadle_json_out_bool(out, "usable", info->usable);
    treadle_json_out_text(out, "lacks", info->usable ? NULL : info->lacks);
    treadle_json_out_close(out, '}');
  }
  treadle_json_out_close(out, ']');
}
