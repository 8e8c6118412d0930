/* Contexts: each device has its primary one, and each thread a stack, whose top is current. */
#include "cuda/fake_parts.h"

#include <stdatomic.h>

enum { DEPTH = 32 };

static struct CUctx_st contexts[FAKE_CARDS];
static _Thread_local CUcontext stack[DEPTH];
static _Thread_local int depth;

CUcontext fake_context(int device) { return &contexts[device]; }

static int device_of(CUcontext context) { return context ? (int)(context - contexts) : -1; }

static CUcontext current(void) { return depth > 0 ? stack[depth - 1] : NULL; }

int fake_current_device(void) {
  const CUcontext context = current();
  return context && context->retained > 0 ? device_of(context) : -1;
}

FAKE_API CUresult cuDevicePrimaryCtxRetain(CUcontext *context_p, CUdevice device) {
  FAKE_ENTER(cuDevicePrimaryCtxRetain);
  FAKE_LOCKED;
  if (device < 0 || device >= fake_card_count) return CUDA_ERROR_INVALID_DEVICE;
  atomic_fetch_add(&contexts[device].retained, 1);
  fake_level_add(&fake_ledger.objects, 1);
  *context_p = &contexts[device];
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  FAKE_ENTER(cuDevicePrimaryCtxRelease);
  FAKE_LOCKED;
  if (device < 0 || device >= fake_card_count) return CUDA_ERROR_INVALID_DEVICE;
  if (contexts[device].retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  atomic_fetch_sub(&contexts[device].retained, 1);
  fake_level_add(&fake_ledger.objects, -1);
  return CUDA_SUCCESS;
}

static bool is_context(CUcontext context) {
  for (int i = 0; i < fake_card_count; i++)
    if (context == &contexts[i]) return atomic_load(&contexts[i].retained) > 0;
  return false;
}

FAKE_API CUresult cuCtxPushCurrent_v2(CUcontext context) {
  FAKE_ENTER(cuCtxPushCurrent);
  if (!is_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (depth == DEPTH) return CUDA_ERROR_INVALID_VALUE;
  stack[depth++] = context;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuCtxPopCurrent_v2(CUcontext *context_p) {
  FAKE_ENTER(cuCtxPopCurrent);
  if (depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (context_p) *context_p = stack[depth - 1];
  depth--;
  return CUDA_SUCCESS;
}

/* The top is replaced; without a context it goes. */
FAKE_API CUresult cuCtxSetCurrent(CUcontext context) {
  FAKE_ENTER(cuCtxSetCurrent);
  if (context && !is_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (depth > 0) depth--;
  if (context) stack[depth++] = context;
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuCtxGetCurrent(CUcontext *context_p) {
  FAKE_ENTER(cuCtxGetCurrent);
  *context_p = current();
  return CUDA_SUCCESS;
}

FAKE_API CUresult cuCtxGetDevice(CUdevice *device_p) {
  FAKE_ENTER(cuCtxGetDevice);
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  *device_p = device_of(current());
  return CUDA_SUCCESS;
}
