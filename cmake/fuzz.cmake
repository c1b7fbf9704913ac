# Builds one fuzzer per file in tests/fuzz. Each file defines LLVMFuzzerTestOneInput.

file(GLOB LLM_FUZZERS CONFIGURE_DEPENDS tests/fuzz/*.c tests/fuzz/*.cpp)
# Only libllm and the fuzzers are instrumented for coverage. The driver is not, because it would count its own code.
if(LLM_FUZZ STREQUAL "driver")
    set(coverage -fsanitize-coverage=trace-pc)
    add_library(llm_fuzz_driver OBJECT cmake/fuzz_driver.c)
else()
    set(coverage -fsanitize=fuzzer-no-link)
endif()
target_compile_options(llm_objects PRIVATE ${coverage})

foreach(fuzzer IN LISTS LLM_FUZZERS)
    get_filename_component(name ${fuzzer} NAME_WE)
    string(REGEX REPLACE "^fuzz_" "" name ${name})
    llm_add_program(fuzz_${name} fuzz ${fuzzer})
    target_compile_options(fuzz_${name} PRIVATE ${coverage})
    if(LLM_FUZZ STREQUAL "driver")
        target_link_libraries(fuzz_${name} PRIVATE llm_fuzz_driver)
    else()
        target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    endif()
endforeach()
