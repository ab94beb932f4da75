#pragma once
// A layer, or a model, that ran, as files that other software can check.
//
//   FOLDER/rank-R.safetensors   every rank's part of: input, output, output_gradient (dY), input_gradient (dX), each
//                               weight by its name and its gradient as NAME.gradient; of the rank's own tokens
//                               routing.expert and routing.row (-1: dropped; rows count from 0 in the rank's tokens,
//                               expert by expert), routing.weight, routing.fill (of gates that mix tokens) and
//                               noise (of gates that add it)
//   FOLDER/manifest.json        layer: its shape; parallel: sizes of the groups; flow, schedule, degrees, seed;
//                               group_tokens: capacity counts by them, a rank's own; capacity_rows: of an expert and
//                               group; tolerance: the largest error allowed, relative to a tensor's scale (verify.h);
//                               software; ranks: of each its file, its places in the groups, and which part of the
//                               whole its tensors are: for every axis [first, count, total]
//
// Ranks of a stack have the layers of their stage: a layer's weights and their gradients are "layer-L." and the name,
// what a layer's micro-batch has is "layer-L.micro-batch-M." and the name. The manifest has layers and micro_batches
// too. A layer's input is the output of the layer before it.
//
// A model's ranks have its ends too: embedding, places, head, norm3 and their gradients (moe/model/model_ends.h), of
// the first stage or of the last, and micro-batch-M.tokens and .targets: each token's number and the next one's. The
// manifest has vocabulary, and loss: the mean over all tokens of -log p(next token).
//
// Tokens are those of all DP groups, in order. Weights are (in, out): y = x W, experts' with the expert as first axis;
// but the gate's are (out, in).
#include <span>
#include <string>

#include "moe/comm/world.h"
#include "moe/measure/layers/rank_run.h"
#include "moe/plan/plan.h"

namespace moe::commands {

/// Writes the ranks' tensors. `ranks`: those of this process in rank order, each after at least two passes of `plan`
/// and finish_gradients; every process of `world` calls it, rank 0's writes the manifest. Makes the folder. Throws
/// BadInput naming the file that can't be written.
void dump_layers(const std::string& folder, World& world, std::span<measure::RankRun* const> ranks, const Plan& plan);

}  // namespace moe::commands
