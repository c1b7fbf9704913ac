#include "model/model.h"

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
