# Builds the files that the Python package loads, in LLM_PACKAGE_DIR: libllm.so and the extension module.

add_library(llm SHARED)
target_link_libraries(llm PRIVATE llm_objects)
set_target_properties(llm PROPERTIES
    LINKER_LANGUAGE CXX
    LINK_DEPENDS "${CMAKE_SOURCE_DIR}/cmake/libllm.map"
    LIBRARY_OUTPUT_DIRECTORY "${LLM_PACKAGE_DIR}"
    BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "$ORIGIN;${LLM_RUNTIME_PATH}")
target_link_options(llm PRIVATE
    "-Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/libllm.map" -Wl,--exclude-libs,ALL -Wl,-z,defs -Wl,--gc-sections)

find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
set(module_source "${CMAKE_BINARY_DIR}/_libllm.c")
file(GLOB public_headers CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/include/*.h")
set(module_builder "${CMAKE_SOURCE_DIR}/daemon/llmd/engine/_native_build.py")
add_custom_command(
    OUTPUT "${module_source}"
    COMMAND ${Python_EXECUTABLE} "${module_builder}"
        --compiler ${CMAKE_C_COMPILER} --include "${CMAKE_SOURCE_DIR}/include" --output "${module_source}"
    # cffi does not write the file again if its content is unchanged. Without `touch`, the file would stay older than
    # the headers, and every build would generate it again.
    COMMAND ${CMAKE_COMMAND} -E touch "${module_source}"
    DEPENDS "${module_builder}" ${public_headers}
    COMMENT "Generating the extension module from llm.h"
    VERBATIM)
add_library(llm_module MODULE "${module_source}")
target_include_directories(llm_module PRIVATE include ${Python_INCLUDE_DIRS})
target_link_libraries(llm_module PRIVATE llm)
set_target_properties(llm_module PROPERTIES
    OUTPUT_NAME _libllm
    PREFIX ""
    SUFFIX ".abi3.so"
    C_VISIBILITY_PRESET default
    LIBRARY_OUTPUT_DIRECTORY "${LLM_PACKAGE_DIR}"
    BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "$ORIGIN")

if(LLM_VARIANT MATCHES "^(portable|wheel-)")
    add_custom_command(TARGET llm POST_BUILD
        COMMAND ${CMAKE_COMMAND} -E copy_directory "${LLM_LLAMA_PREFIX}/run" "${LLM_PACKAGE_DIR}"
        COMMENT "Adding llama.cpp and its CPU backends")
endif()

add_custom_target(package DEPENDS llm llm_module)
