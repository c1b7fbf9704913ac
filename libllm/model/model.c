#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int model_open(const char *name, const model_options *options, model **out, char *error, size_t error_bytes)
{
    static const char simulated[] = "sim:";
    model_options own = *options;

    *out = NULL;
    if (name == NULL || name[0] == '\0') {
        if (error != NULL && error_bytes > 0) {
            snprintf(error, error_bytes, "no model is named: give the path of a GGUF file, or \"sim:dense\"");
        }
        return LLM_INVALID;
    }
    if (strncmp(name, simulated, sizeof simulated - 1) == 0) {
        own.path = name + sizeof simulated - 1;
        return model_sim_open(&own, out, error, error_bytes);
    }
    own.path = name;
    return model_llama_open(&own, out, error, error_bytes);
}

/* The values that mean "not stated", by type. A seed uses UINT64_MAX, because 0 is a valid seed. */
#define UNSTATED_float NAN
#define UNSTATED_int32_t (-1)
#define UNSTATED_uint64_t 0
#define UNSTATED_PARAMETER(type, name, least, most, otherwise, text) .name = UNSTATED_##type,

llm_sampling model_sampling_unstated(void)
{
    llm_sampling s = {LLM_SAMPLING_TABLE(UNSTATED_PARAMETER)};
    s.seed = UINT64_MAX;
    return s;
}
