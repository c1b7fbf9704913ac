/* Replaces the functions of NVIDIA's driver (libcuda.so.1) that llama.cpp calls directly. Each function loads the
 * driver at its first call, and forwards all calls. This file is linked instead of the driver, so libllm can be loaded
 * on a machine without a driver. CUDA's runtime also loads the driver only when needed, and then finds no GPU. */
#include <cuda.h>
#include <dlfcn.h>
#include <stddef.h>

static void *driver_call(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL); /* later calls return the same handle; the library is
                                                                    * never unloaded */
    return driver == NULL ? NULL : dlsym(driver, name);
}

/* `signature` has the parameters with types, `arguments` only their names. Any thread. Two threads may look up the
 * function at the same time, because both get the same address. */
#define FORWARD(name, signature, arguments)                                                                            \
    CUresult name signature                                                                                            \
    {                                                                                                                  \
        static CUresult(*call) signature;                                                                              \
        CUresult(*found) signature = __atomic_load_n(&call, __ATOMIC_RELAXED);                                         \
        if (found == NULL) {                                                                                           \
            *(void **)&found = driver_call(#name);                                                                     \
            __atomic_store_n(&call, found, __ATOMIC_RELAXED);                                                          \
        }                                                                                                              \
        return found == NULL ? CUDA_ERROR_NOT_INITIALIZED : found arguments;                                           \
    }

FORWARD(cuGetErrorString, (CUresult error, const char **text), (error, text))
FORWARD(cuDeviceGet, (CUdevice * device, int ordinal), (device, ordinal))
FORWARD(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device), (value, attribute, device))
FORWARD(cuMemGetAllocationGranularity,
        (size_t *granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option),
        (granularity, prop, option))
FORWARD(cuMemAddressReserve,
        (CUdeviceptr * address, size_t size, size_t alignment, CUdeviceptr at, unsigned long long flags),
        (address, size, alignment, at, flags))
FORWARD(cuMemAddressFree, (CUdeviceptr address, size_t size), (address, size))
FORWARD(cuMemCreate,
        (CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags),
        (handle, size, prop, flags))
FORWARD(cuMemRelease, (CUmemGenericAllocationHandle handle), (handle))
FORWARD(cuMemMap,
        (CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
         unsigned long long flags),
        (address, size, offset, handle, flags))
FORWARD(cuMemUnmap, (CUdeviceptr address, size_t size), (address, size))
FORWARD(cuMemSetAccess, (CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t n),
        (address, size, access, n))
