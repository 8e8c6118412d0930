/* NVIDIA's driver: what is used of libcuda.so.1, which is opened when it is first asked for. Nothing of CUDA is needed to build or link. Types,
 * values and names are those of its header, version 13.0. */
#ifndef TREADLE_MEMORY_DRIVER_CUDA_H
#define TREADLE_MEMORY_DRIVER_CUDA_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;

typedef struct CUuuid_st {
  char bytes[16];
} CUuuid;

typedef struct CUmemLocation_st {
  int type, id;
} CUmemLocation;

typedef struct CUmemAllocationProp_st {
  int type, requestedHandleTypes;
  CUmemLocation location;
  void *win32HandleMetaData;
  struct {
    unsigned char compressionType, gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
} CUmemAllocationProp;

typedef struct CUmemAccessDesc_st {
  CUmemLocation location;
  int flags;
} CUmemAccessDesc;

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,

  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91,
  CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
  CU_DEVICE_ATTRIBUTE_MPS_ENABLED = 133,

  CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
  CU_POINTER_ATTRIBUTE_MAPPED = 13,
  CU_MEMORYTYPE_DEVICE = 2,

  CU_MEM_ALLOCATION_TYPE_PINNED = 1,
  CU_MEM_LOCATION_TYPE_DEVICE = 1,
  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1,
  CU_MEM_ACCESS_FLAGS_PROT_READ = 1,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
  CU_MEMHOSTREGISTER_PORTABLE = 1,
  CU_MEMHOSTREGISTER_DEVICEMAP = 2,

  CU_STREAM_DEFAULT = 0, /* it waits for the default stream, which waits for it */
  CU_EVENT_DEFAULT = 0,
  CU_EVENT_DISABLE_TIMING = 2,
  CU_STREAM_CAPTURE_STATUS_NONE = 0,
  CU_STREAM_PER_THREAD = 2, /* a handle */
  CU_STREAM_CAPTURE_MODE_RELAXED = 2
};

/* F(name of the member, name in the library, parameters) */
#define TREADLE_CUDA_FUNCTIONS(F)                                                                          \
  F(init, "cuInit", (unsigned flags))                                                                      \
  F(version, "cuDriverGetVersion", (int *version))                                                         \
  F(error_name, "cuGetErrorName", (CUresult error, const char **text))                                     \
  F(error_text, "cuGetErrorString", (CUresult error, const char **text))                                   \
  F(device_count, "cuDeviceGetCount", (int *count))                                                        \
  F(device_get, "cuDeviceGet", (CUdevice * device, int ordinal))                                           \
  F(device_name, "cuDeviceGetName", (char *name, int bytes, CUdevice device))                              \
  F(device_uuid, "cuDeviceGetUuid_v2", (CUuuid * uuid, CUdevice device))                                   \
  F(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, CUdevice device))                \
  F(can_access_peer, "cuDeviceCanAccessPeer", (int *can, CUdevice device, CUdevice peer))                  \
  F(context_retain, "cuDevicePrimaryCtxRetain", (CUcontext * context, CUdevice device))                    \
  F(context_release, "cuDevicePrimaryCtxRelease_v2", (CUdevice device))                                    \
  F(context_push, "cuCtxPushCurrent_v2", (CUcontext context))                                              \
  F(context_pop, "cuCtxPopCurrent_v2", (CUcontext * context))                                              \
  F(memory_info, "cuMemGetInfo_v2", (size_t * free, size_t * all))                                         \
  F(granularity, "cuMemGetAllocationGranularity",                                                          \
    (size_t * bytes, const CUmemAllocationProp *prop, int which))                                          \
  F(handle_create, "cuMemCreate",                                                                          \
    (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp *prop,                 \
     unsigned long long))                                                                                  \
  F(handle_release, "cuMemRelease", (CUmemGenericAllocationHandle handle))                                 \
  F(handle_export, "cuMemExportToShareableHandle",                                                         \
    (void *shareable, CUmemGenericAllocationHandle handle, int type, unsigned long long flags))            \
  F(handle_import, "cuMemImportFromShareableHandle",                                                       \
    (CUmemGenericAllocationHandle * handle, void *shareable, int type))                                    \
  F(reserve, "cuMemAddressReserve",                                                                        \
    (CUdeviceptr * at, size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags))      \
  F(reserve_free, "cuMemAddressFree", (CUdeviceptr at, size_t bytes))                                      \
  F(map, "cuMemMap",                                                                                       \
    (CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,                     \
     unsigned long long flags))                                                                            \
  F(unmap, "cuMemUnmap", (CUdeviceptr at, size_t bytes))                                                   \
  F(set_access, "cuMemSetAccess",                                                                          \
    (CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count))                           \
  F(alloc, "cuMemAlloc_v2", (CUdeviceptr * at, size_t bytes))                                              \
  F(alloc_free, "cuMemFree_v2", (CUdeviceptr at))                                                          \
  F(host_register, "cuMemHostRegister_v2", (void *host, size_t bytes, unsigned flags))                     \
  F(host_unregister, "cuMemHostUnregister", (void *host))                                                  \
  F(pointer_attribute, "cuPointerGetAttribute", (void *value, int attribute, CUdeviceptr at))              \
  F(stream_create, "cuStreamCreate", (CUstream * stream, unsigned flags))                                  \
  F(stream_destroy, "cuStreamDestroy_v2", (CUstream stream))                                               \
  F(stream_wait_event, "cuStreamWaitEvent", (CUstream stream, CUevent event, unsigned flags))              \
  F(stream_synchronize, "cuStreamSynchronize", (CUstream stream))                                          \
  F(stream_is_capturing, "cuStreamIsCapturing", (CUstream stream, int *status))                            \
  F(capture_mode, "cuThreadExchangeStreamCaptureMode", (int *mode))                                        \
  F(event_create, "cuEventCreate", (CUevent * event, unsigned flags))                                      \
  F(event_destroy, "cuEventDestroy_v2", (CUevent event))                                                   \
  F(event_record, "cuEventRecord", (CUevent event, CUstream stream))                                       \
  F(event_query, "cuEventQuery", (CUevent event))                                                          \
  F(event_seconds, "cuEventElapsedTime_v2", (float *milliseconds, CUevent begin, CUevent end))             \
  F(copy, "cuMemcpyAsync", (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))              \
  F(set, "cuMemsetD8Async", (CUdeviceptr at, unsigned char byte, size_t bytes, CUstream stream))           \
  F(module_load, "cuModuleLoadData", (CUmodule * module, const void *image))                               \
  F(module_unload, "cuModuleUnload", (CUmodule module))                                                    \
  F(module_function, "cuModuleGetFunction", (CUfunction * function, CUmodule module, const char *name))    \
  F(function_load, "cuFuncLoad", (CUfunction function))                                                    \
  F(launch, "cuLaunchKernel",                                                                              \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,             \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters,        \
     void **extra))

#define TREADLE_CUDA_MEMBER(member, symbol, parameters) CUresult(*member) parameters;
typedef struct treadle_cuda_driver {
  TREADLE_CUDA_FUNCTIONS(TREADLE_CUDA_MEMBER)
} treadle_cuda_driver;
#undef TREADLE_CUDA_MEMBER

/* Memory of a card that other processes can be given by a descriptor: what pools are made of. */
static inline CUmemAllocationProp treadle_cuda_memory_of(CUdevice card) {
  return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                               .location = {CU_MEM_LOCATION_TYPE_DEVICE, card}};
}

/* The driver of this process, started. Refused, with what is missing: the library, a function of it, a driver below 13.0, a process that was forked
 * from one that had started it. Any thread. */
treadle_status treadle_cuda_driver_get(const treadle_cuda_driver **driver_p);

/* A number that stands for a card's UUID, never 0: equal in all processes that see the card; 0: the driver does not say. */
uint64_t treadle_cuda_card_id(const treadle_cuda_driver *driver, CUdevice card);

/* "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (out of memory)", into a buffer of the calling thread. */
const char *treadle_cuda_words(const treadle_cuda_driver *driver, const char *call, CUresult result);

#endif
