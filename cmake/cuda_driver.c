/* What llama.cpp calls of NVIDIA's driver itself, forwarded to libcuda.so.1 when it is first called. Linked in place of that
 * library: without a driver libllm can be loaded all the same, and CUDA's runtime, which looks for the driver in this way,
 * too, finds no GPU. */
#include <cuda.h>
#include <dlfcn.h>
#include <stddef.h>

static void *driver_call(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL); /* counted: the same one every time, and it stays */
    return driver == NULL ? NULL : dlsym(driver, name);
}

/* `signature` with types, `arguments` without. Any thread; two at once find the same. */
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
