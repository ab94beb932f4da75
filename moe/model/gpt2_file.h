#pragma once
// A model's weights as in GPT-2's public checkpoints (Radford et al. 2019): a safetensors file with wte.weight,
// wpe.weight; for each layer N h.N.ln_1, h.N.attn.c_attn (queries, keys and values side by side), h.N.attn.c_proj,
// h.N.ln_2, h.N.mlp.c_fc and h.N.mlp.c_proj; and ln_f. Each of these has a weight and a bias; matrices are (in, out).
//
// GPT-2's layers are represented by MoE layers with one expert, whose weight is a softmax over one logit, 1. The gate's
// weights are not in the file.
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

/// Throws BadInput, naming the first setting that differs, unless the model is a GPT-2. `where`: the flag or file that
/// gave the model, for the message.
void require_gpt2(const Gpt2Shape& shape, const std::string& where);

/// Fills a rank's parts of the weights, in `memory`; with no weights, only checks the file. Names in the file may begin
/// with "transformer."; tensors that are not weights (masks, a tied head) are ignored. Only the first seq position
/// embeddings are read. Throws BadInput naming file and tensor if a tensor is missing, has another type than F32 or
/// F64, or another shape; and for a file with more layers.
void read_gpt2(const std::string& path, const Gpt2Shape& shape, std::span<const Parameter> weights,
               MemorySpace& memory = cpu_memory());

/// Writes the weights of a checkpoint of such a model. Replaces the whole file.
void write_gpt2(const std::string& path, const Gpt2Shape& shape, const Checkpoint& checkpoint);

}  // namespace moe
