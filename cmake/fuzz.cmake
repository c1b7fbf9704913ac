# One fuzzer per tests/fuzz/*.c. Each defines LLVMFuzzerTestOneInput.

file(GLOB LLM_FUZZERS CONFIGURE_DEPENDS tests/fuzz/*.c)
if(LLM_FUZZ STREQUAL "driver")
    add_library(llm_fuzz_driver OBJECT cmake/fuzz_driver.c)
    # The driver watches coverage and must not count itself.
    target_compile_options(llm_fuzz_driver PRIVATE -fsanitize-coverage=)
endif()

foreach(fuzzer IN LISTS LLM_FUZZERS)
    get_filename_component(name ${fuzzer} NAME_WE)
    string(REGEX REPLACE "^fuzz_" "" name ${name})
    llm_add_program(fuzz_${name} fuzz ${fuzzer})
    if(LLM_FUZZ STREQUAL "driver")
        target_link_libraries(fuzz_${name} PRIVATE llm_fuzz_driver)
    else()
        target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    endif()
endforeach()
