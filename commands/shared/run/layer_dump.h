#pragma once
// Writes the tensors of a layer or model that ran to files, which other software can check.
//
//   FOLDER/rank-R.safetensors   one rank's part of input, output, output_gradient (dY), input_gradient (dX), and of
// each
//                               weight NAME and its gradient NAME.gradient; and for the rank's own tokens
//                               routing.expert, routing.row (numbered from 0 within an expert; -1: dropped),
//                               routing.weight, routing.fill (gates that mix tokens) and noise (gates that add noise)
//   FOLDER/manifest.json        layer: its shape; parallel: sizes of the groups; flow, schedule, degrees, seed;
//                               group_tokens: tokens of a rank by which capacity is computed; capacity_rows: capacity
//                               of an expert for these tokens; tolerance: largest allowed error, relative to a
//                               tensor's scale (verify.h); software; ranks: each rank's file, its index in every
//                               group, and its part of each whole tensor: [first, count, total] for every axis
//
// If several layers run, a rank has the layers of its stage. The names of weights and their gradients begin with
// "layer-L.", the names of other tensors with "layer-L.micro-batch-M.". The manifest also has layers and micro_batches.
// A layer's input is the output of the layer before it.
//
// For a model, ranks of the first and the last stage also have embedding, places, head, norm3 and their gradients
// (moe/model/model_ends.h), and micro-batch-M.tokens and .targets: the numbers of each token and of its target. The
// manifest also has vocabulary, and loss: the mean over all tokens of -log p(target).
//
// The whole tensors have the tokens of all DP groups, in order. Weights have the axes (in, out), so y = x W, and
// experts' weights have the expert as first axis. Only the gate's weights have the axes (out, in).
#include <span>
#include <string>

#include "moe/comm/world.h"
#include "moe/measure/layers/rank_run.h"
#include "moe/plan/plan.h"

namespace moe::commands {

/// Writes the tensors of the ranks into the folder, which it creates. `ranks` are this process's ranks in rank order,
/// each after at least two passes of `plan` and after finish_gradients. Every process of `world` has to call it; rank
/// 0's process writes the manifest. Throws BadInput with the name of a file that cannot be written.
void dump_layers(const std::string& folder, World& world, std::span<measure::RankRun* const> ranks, const Plan& plan);

}  // namespace moe::commands
