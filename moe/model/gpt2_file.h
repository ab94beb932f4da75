#pragma once
// A model's weights as in GPT-2's public checkpoints (Radford et al. 2019): a safetensors file with wte.weight,
// wpe.weight, for layer N h.N.ln_1, h.N.attn.c_attn (queries, keys and values side by side), h.N.attn.c_proj, h.N.ln_2,
// h.N.mlp.c_fc, h.N.mlp.c_proj, and last ln_f, each a weight and a bias; matrices are (in, out).
//
// A dense layer is here a layer with one expert, which a softmax weighs by 1. Its gate's weights are not in the file.
#include <span>
#include <string>
#include <vector>

#include "moe/layer/parameter.h"
#include "moe/train/checkpoint.h"

namespace moe {

struct Gpt2Shape {
  LayerShape layer;  // completed
  int layers = 1;
  int64_t vocabulary = 0;
  bool tied = false;
};

/// Throws BadInput unless the model is a GPT-2: it names the first setting that differs from GPT-2, and `where` the
/// model was given.
void require_gpt2(const Gpt2Shape& shape, const std::string& where);

/// Fills a rank's part of the weights, any part, in `memory`; no weights: only checks the file. Names may begin with
/// "transformer."; tensors that are no weights (masks, a tied head) are ignored. Only the first seq places are read.
/// Throws BadInput naming file and tensor if a tensor is missing, has another type than F32 or F64, or another shape;
/// and for a file of more layers.
void read_gpt2(const std::string& path, const Gpt2Shape& shape, std::span<const Parameter> weights,
               MemorySpace& memory = cpu_memory());

/// Writes the weights of a checkpoint of such a model. Replaces the whole file.
void write_gpt2(const std::string& path, const Gpt2Shape& shape, const Checkpoint& checkpoint);

}  // namespace moe
