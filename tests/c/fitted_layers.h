/* fitted_layers.h: how many layers model_llama_loading would put on devices; nothing is loaded. */
#ifndef FITTED_LAYERS_H
#define FITTED_LAYERS_H

#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of the model that `options` names, whose file has n_bytes; -1: all. */
int32_t fitted_layers(const model_options *options, uint64_t n_bytes);

#ifdef __cplusplus
}
#endif
#endif
