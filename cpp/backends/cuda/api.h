// The part of NVIDIA's driver interface that this folder uses, declared here with its public names
// and layouts, so that a build needs no toolkit. The library is opened at run time.
#pragma once
#include <cstddef>
#include <string>

namespace accel::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUkernel = struct CUkern_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphExec = struct CUgraphExec_st*;
struct CUuuid {
  char bytes[16];
};
struct CUDA_KERNEL_NODE_PARAMS_v2 {
  CUfunction func;
  unsigned int gridDimX, gridDimY, gridDimZ;
  unsigned int blockDimX, blockDimY, blockDimZ;
  unsigned int sharedMemBytes;
  void** kernelParams;
  void** extra;
  CUkernel kern;
  CUcontext ctx;
};
struct CUgraphEdgeData {
  unsigned char from_port, to_port, type, reserved[5];
};
static_assert(sizeof(CUgraphEdgeData) == 8, "as the driver has it");

enum : CUresult {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_ECC_UNCORRECTABLE = 214,
  CUDA_ERROR_NVLINK_UNCORRECTABLE = 220,
  CUDA_ERROR_CONTAINED = 226,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_TIMEOUT = 702,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_ASSERT = 710,
  CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_TENSOR_MEMORY_LEAK = 721,
  CUDA_ERROR_UNKNOWN = 999,
};
// Of devices, functions, streams, events, host memory and the compiler of PTX.
enum : int {
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
  CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
  CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9,
  CU_JIT_ERROR_LOG_BUFFER = 5,
  CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
};
enum : unsigned {
  CU_STREAM_NON_BLOCKING = 1,
  CU_EVENT_BLOCKING_SYNC = 1,
  CU_EVENT_DISABLE_TIMING = 2,
  CU_MEMHOSTALLOC_PORTABLE = 1,
};
// Of edges: when all groups of the kernel in front have let the next one start, or have ended; and
// that the kernel behind waits by itself for the end of the one in front.
enum : unsigned char {
  CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC = 1,
  CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC = 1,
};

// F(name without "cu", suffix of the symbol, parameters)
#define ACCEL_CUDA_FUNCTIONS(F)                                                                  \
  F(Init, , (unsigned))                                                                          \
  F(DriverGetVersion, , (int*))                                                                  \
  F(GetErrorName, , (CUresult, const char**))                                                    \
  F(GetErrorString, , (CUresult, const char**))                                                  \
  F(DeviceGetCount, , (int*))                                                                    \
  F(DeviceGet, , (CUdevice*, int))                                                               \
  F(DeviceGetName, , (char*, int, CUdevice))                                                     \
  F(DeviceGetUuid, _v2, (CUuuid*, CUdevice))                                                     \
  F(DeviceTotalMem, _v2, (size_t*, CUdevice))                                                    \
  F(DeviceGetAttribute, , (int*, int, CUdevice))                                                 \
  F(DevicePrimaryCtxRetain, , (CUcontext*, CUdevice))                                            \
  F(DevicePrimaryCtxRelease, _v2, (CUdevice))                                                    \
  F(CtxPushCurrent, _v2, (CUcontext))                                                            \
  F(CtxPopCurrent, _v2, (CUcontext*))                                                            \
  F(MemGetInfo, _v2, (size_t*, size_t*))                                                         \
  F(MemAlloc, _v2, (CUdeviceptr*, size_t))                                                       \
  F(MemFree, _v2, (CUdeviceptr))                                                                 \
  F(MemHostAlloc, , (void**, size_t, unsigned))                                                  \
  F(MemFreeHost, , (void*))                                                                      \
  F(MemcpyHtoDAsync, _v2, (CUdeviceptr, const void*, size_t, CUstream))                          \
  F(MemcpyDtoHAsync, _v2, (void*, CUdeviceptr, size_t, CUstream))                                \
  F(MemcpyDtoDAsync, _v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                          \
  F(MemsetD8Async, , (CUdeviceptr, unsigned char, size_t, CUstream))                             \
  F(ModuleLoadDataEx, , (CUmodule*, const void*, unsigned, int*, void**))                        \
  F(ModuleUnload, , (CUmodule))                                                                  \
  F(ModuleGetFunction, , (CUfunction*, CUmodule, const char*))                                   \
  F(FuncGetAttribute, , (int*, int, CUfunction))                                                 \
  F(FuncSetAttribute, , (CUfunction, int, int))                                                  \
  F(OccupancyMaxActiveBlocksPerMultiprocessor, , (int*, CUfunction, int, size_t))                \
  F(LaunchKernel, ,                                                                              \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
     void**, void**))                                                                            \
  F(StreamCreate, , (CUstream*, unsigned))                                                       \
  F(StreamDestroy, _v2, (CUstream))                                                              \
  F(StreamSynchronize, , (CUstream))                                                             \
  F(EventCreate, , (CUevent*, unsigned))                                                         \
  F(EventDestroy, _v2, (CUevent))                                                                \
  F(EventRecord, , (CUevent, CUstream))                                                          \
  F(EventQuery, , (CUevent))                                                                     \
  F(EventSynchronize, , (CUevent))                                                               \
  F(EventElapsedTime, , (float*, CUevent, CUevent))                                              \
  F(GraphCreate, , (CUgraph*, unsigned))                                                         \
  F(GraphDestroy, , (CUgraph))                                                                   \
  F(GraphAddKernelNode, _v2,                                                                     \
    (CUgraphNode*, CUgraph, const CUgraphNode*, size_t, const CUDA_KERNEL_NODE_PARAMS_v2*))      \
  F(GraphAddEmptyNode, , (CUgraphNode*, CUgraph, const CUgraphNode*, size_t))                    \
  F(GraphInstantiateWithFlags, , (CUgraphExec*, CUgraph, unsigned long long))                    \
  F(GraphExecKernelNodeSetParams, _v2,                                                           \
    (CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v2*))                               \
  F(GraphLaunch, , (CUgraphExec, CUstream))                                                      \
  F(GraphExecDestroy, , (CUgraphExec))
// Null where the driver is older than they are: of CUDA 12.3.
#define ACCEL_CUDA_LATER_FUNCTIONS(F) \
  F(GraphAddDependencies, _v2,        \
    (CUgraph, const CUgraphNode*, const CUgraphNode*, const CUgraphEdgeData*, size_t))

struct Driver {
#define ACCEL_CUDA_MEMBER(name, suffix, parameters) CUresult(*name) parameters;
  ACCEL_CUDA_FUNCTIONS(ACCEL_CUDA_MEMBER)
  ACCEL_CUDA_LATER_FUNCTIONS(ACCEL_CUDA_MEMBER)
#undef ACCEL_CUDA_MEMBER
};

// The driver, opened and initialised by the first call that succeeds, and never closed. Null: the
// stage that failed and why. Makes no context.
struct Absence {
  std::string stage, why;
};
const Driver* driver(Absence* absence);

// "CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected".
std::string text_of(const Driver& api, CUresult result);

}  // namespace accel::cuda
