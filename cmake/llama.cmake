# Defines the target llama_engine: the headers and libraries of the llama.cpp build in LLM_LLAMA_PREFIX.

find_package(Threads REQUIRED)
file(STRINGS "${LLM_LLAMA_PREFIX}/description.txt" LLM_LLAMA_VERSION REGEX "^source ")
string(REGEX REPLACE "^source ([^ ]+) ([^ ]+) .*" "\\1 \\2" LLM_LLAMA_VERSION "${LLM_LLAMA_VERSION}")
file(STRINGS "${LLM_LLAMA_PREFIX}/description.txt" LLM_LLAMA_AMX REGEX "^amx ")
string(REPLACE "amx " "" LLM_LLAMA_AMX "${LLM_LLAMA_AMX}")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${LLM_LLAMA_PREFIX}/description.txt")

add_library(llama_engine INTERFACE)
# llama.cpp's common headers are included as <common/chat.h> and so on. Without the folder, names like chat.h would be
# ambiguous.
target_include_directories(llama_engine SYSTEM INTERFACE "${LLM_LLAMA_PREFIX}/include")

# LLM_GPU is the name of the GPU backend. It is shown to users.
foreach(gpu IN ITEMS CUDA Vulkan HIP)
    string(TOLOWER "ggml-${gpu}" library)
    if(EXISTS "${LLM_LLAMA_PREFIX}/lib/lib${library}.a" OR EXISTS "${LLM_LLAMA_PREFIX}/run/lib${library}.so")
        target_compile_definitions(llama_engine INTERFACE LLM_GPU="${gpu}")
    endif()
endforeach()

if(LLM_VARIANT MATCHES "^(portable|wheel-)")
    # When libllm starts, it loads the backends for this processor from its own folder.
    target_compile_definitions(llama_engine INTERFACE LLM_BACKEND_DL=1)
    foreach(library llama-common llama ggml ggml-base)
        target_link_libraries(llama_engine INTERFACE "${LLM_LLAMA_PREFIX}/lib/lib${library}.so")
    endforeach()
    # Before glibc 2.34, shm_open is in librt.
    target_link_libraries(llama_engine INTERFACE Threads::Threads ${CMAKE_DL_LIBS} m rt)
    return()
endif()

# The archives refer to each other in both directions, so the linker must search them repeatedly.
file(GLOB LLAMA_ARCHIVES "${LLM_LLAMA_PREFIX}/lib/*.a")
target_link_libraries(llama_engine INTERFACE -Wl,--start-group ${LLAMA_ARCHIVES} -Wl,--end-group)

if(EXISTS "${LLM_LLAMA_PREFIX}/lib/libggml-cuda.a")
    file(STRINGS "${LLM_LLAMA_PREFIX}/description.txt" flags REGEX "^flags .* -DCUDAToolkit_ROOT=")
    if(flags MATCHES "-DCUDAToolkit_ROOT=([^ ]+)")
        set(CUDAToolkit_ROOT "${CMAKE_MATCH_1}")
    endif()
    find_package(CUDAToolkit REQUIRED)
    target_link_libraries(llama_engine INTERFACE CUDA::cudart CUDA::cublas) # NVIDIA's driver is not linked here:
                                                                            # libcuda-driver.a is among the archives
                                                                            # above
    if(NOT CUDAToolkit_LIBRARY_DIR IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
        set(LLM_RUNTIME_PATH "${CUDAToolkit_LIBRARY_DIR}")
    endif()
endif()
if(EXISTS "${LLM_LLAMA_PREFIX}/lib/libggml-vulkan.a")
    find_package(Vulkan REQUIRED)
    target_link_libraries(llama_engine INTERFACE Vulkan::Vulkan)
endif()
if(EXISTS "${LLM_LLAMA_PREFIX}/lib/libggml-hip.a")
    list(APPEND CMAKE_PREFIX_PATH "$ENV{ROCM_PATH}" /opt/rocm)
    find_package(hip REQUIRED)
    find_package(hipblas REQUIRED)
    find_package(rocblas REQUIRED)
    target_link_libraries(llama_engine INTERFACE hip::host roc::rocblas roc::hipblas)
    if(NOT hip_LIB_INSTALL_DIR IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
        set(LLM_RUNTIME_PATH "${hip_LIB_INSTALL_DIR}")
    endif()
endif()

target_link_libraries(llama_engine INTERFACE Threads::Threads ${CMAKE_DL_LIBS} m)
