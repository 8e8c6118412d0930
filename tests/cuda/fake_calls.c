/* What every call begins with; and calls that fail because a test wants it. */
#include "cuda/fake_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pthread_mutex_t fake_mutex = PTHREAD_MUTEX_INITIALIZER;

int fake_lock(void) { return pthread_mutex_lock(&fake_mutex); }

void fake_unlock(int *unused) {
  (void)unused;
  pthread_mutex_unlock(&fake_mutex);
}

/* ---- Failing calls ---- */

typedef struct failure {
  fake_call call;
  uint64_t left; /* calls; this one fails when it is 1 */
  CUresult error;
} failure;

enum { FAILURES = 16 };

static pthread_mutex_t failures_mutex = PTHREAD_MUTEX_INITIALIZER;
static failure failures[FAILURES];
static int failure_count;
static CUresult stuck;

static void refuse(const char *text) {
  fprintf(stderr, "FAKE_CUDA_FAIL: '%s' is not name:n or name:n:code, with commas between several\n", text);
  abort();
}

/* "name:n[:code]", up to a comma; what follows it. */
static const char *read_failure(const char *text, failure *f) {
  const size_t length = strcspn(text, ":,");
  char *end = NULL;
  *f = (failure){.call = fake_call_named(text, length), .error = CUDA_ERROR_OUT_OF_MEMORY};
  if (f->call == FAKE_CALL_COUNT || text[length] != ':') refuse(text);
  if (f->call == FAKE_launch) f->error = CUDA_ERROR_LAUNCH_FAILED;
  f->left = strtoull(text + length + 1, &end, 10);
  if (*end == ':') f->error = (CUresult)strtoul(end + 1, &end, 10);
  if (f->left == 0 || (*end && *end != ',')) refuse(text);
  return *end ? end + 1 : end;
}

void fake_fail(const char *text) {
  pthread_mutex_lock(&failures_mutex);
  failure_count = 0;
  stuck = CUDA_SUCCESS;
  while (text && *text && failure_count < FAILURES) text = read_failure(text, &failures[failure_count++]);
  pthread_mutex_unlock(&failures_mutex);
}

FAKE_API void fake_cuda_fail(const char *text) { fake_fail(text); }

CUresult fake_fails(fake_call call) {
  CUresult error = CUDA_SUCCESS;
  pthread_mutex_lock(&failures_mutex);
  for (int i = 0; i < failure_count; i++)
    if (failures[i].call == call && failures[i].left > 0 && --failures[i].left == 0)
      error = failures[i].error;
  pthread_mutex_unlock(&failures_mutex);
  return error;
}

void fake_stick(CUresult error) {
  pthread_mutex_lock(&failures_mutex);
  if (stuck == CUDA_SUCCESS) stuck = error;
  pthread_mutex_unlock(&failures_mutex);
}

CUresult fake_stuck(void) {
  pthread_mutex_lock(&failures_mutex);
  const CUresult error = stuck;
  pthread_mutex_unlock(&failures_mutex);
  return error;
}

CUresult fake_enter(fake_call call) {
  if (fake_was_forked() || (call != FAKE_cuInit && fake_card_count == 0)) return CUDA_ERROR_NOT_INITIALIZED;
  fake_count_call(call);
  const CUresult error = fake_stuck();
  return error != CUDA_SUCCESS ? error : fake_fails(call);
}

/* ---- Words ---- */

typedef struct word {
  CUresult error;
  const char *name, *text;
} word;

#define WORD(error, text)                                                                                  \
  { error, #error, text }

static const word words[] = {
    WORD(CUDA_SUCCESS, "no error"),
    WORD(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    WORD(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    WORD(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    WORD(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    WORD(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    WORD(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    WORD(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    WORD(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    WORD(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    WORD(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    WORD(CUDA_ERROR_NOT_READY, "device not ready"),
    WORD(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    WORD(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
         "part or all of the requested memory range is already mapped"),
    WORD(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
         "pointer does not correspond to a registered memory region"),
    WORD(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    WORD(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    WORD(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    WORD(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    WORD(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
         "operation would make the legacy stream depend on a capturing blocking stream"),
    WORD(CUDA_ERROR_UNKNOWN, "unknown error"),
};

static const word *word_of(CUresult error) {
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (words[i].error == error) return &words[i];
  return NULL;
}

FAKE_API CUresult cuGetErrorName(CUresult error, const char **text_p) {
  const word *w = word_of(error);
  *text_p = w ? w->name : NULL;
  return w ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE_API CUresult cuGetErrorString(CUresult error, const char **text_p) {
  const word *w = word_of(error);
  *text_p = w ? w->text : NULL;
  return w ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
