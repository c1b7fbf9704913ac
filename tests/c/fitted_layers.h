/* fitted_layers.h: computes how many layers model_llama_loading would put on devices, without loading the model. */
#ifndef FITTED_LAYERS_H
#define FITTED_LAYERS_H

#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns this number for the model in `options`, whose file has n_bytes bytes. -1 means all layers. */
int32_t fitted_layers(const model_options *options, uint64_t n_bytes);

#ifdef __cplusplus
}
#endif
#endif
