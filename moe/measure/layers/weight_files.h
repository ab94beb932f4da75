#pragma once
// Reads a model's weights from a file and writes them into one (moe/model/gpt2_file.h), whatever ranks hold them.
#include <string>
#include <vector>

#include "moe/comm/world.h"
#include "moe/measure/layers/rank_run.h"
#include "moe/model/gpt2_file.h"

namespace moe::measure {

/// Reads the weights. All processes call this and the next, each with its ranks that ran `plan`.
void take_weights(const std::string& file, World& world, const std::vector<RankRun*>& ranks, const Plan& plan);
/// Writes the weights; parts lie in FILE.parts until the file is written.
void save_weights(const std::string& file, World& world, const std::vector<RankRun*>& ranks, const Plan& plan);

}  // namespace moe::measure
