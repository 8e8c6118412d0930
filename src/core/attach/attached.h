/* What the two files of a reader share: attach.c makes it and ends it, attached.c is what it is asked. */
#ifndef TREADLE_ATTACH_ATTACHED_H
#define TREADLE_ATTACH_ATTACHED_H

#include "attach/handle.h"
#include "memory/device.h"
#include "treadle_attach.h"

#include <pthread.h>

struct treadle_attached {
  treadle_handle handle;
  treadle_device device;
  int owner; /* pidfd */
  treadle_sheet *sheet;
  treadle_imported *imported;
  const void *base;
  treadle_sheet_storage *storages;
  int32_t storage_count;
  char layout[TREADLE_SHEET_TEXT];
  pthread_mutex_t lock; /* of what follows */
  pid_t process;        /* whose holds are counted */
  int32_t holds;
  int place;
  uint64_t version; /* that they hold */
};

#endif
