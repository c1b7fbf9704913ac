/* buffer_types.h: finds a layout of weights by its name. Tests and benchmarks use it. */
#ifndef BUFFER_TYPES_H
#define BUFFER_TYPES_H

#include <string.h>

#include <ggml-backend.h>

/* Returns the layout of this name in which the processor can hold weights, or NULL if this build of ggml lacks it. */
static inline ggml_backend_buffer_type_t buffer_type_of(ggml_backend_t processor, const char *name)
{
    ggml_backend_dev_t device = ggml_backend_get_device(processor);
    const ggml_backend_dev_get_extra_bufts_t extra_bufts =
        (ggml_backend_dev_get_extra_bufts_t)ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device),
                                                                              "ggml_backend_dev_get_extra_bufts");
    ggml_backend_buffer_type_t *all = extra_bufts == NULL ? NULL : extra_bufts(device);
    while (all != NULL && *all != NULL && strcmp(ggml_backend_buft_name(*all), name) != 0) {
        all++;
    }
    return all == NULL ? NULL : *all;
}

#endif
