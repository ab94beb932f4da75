#pragma once
// Improves where a model's gradients go where layers' times don't add up: under contention, and where one layer runs on
// into the next.
#include "moe/search/model_partition.h"
#include "moe/search/model_replay.h"

namespace moe::search {

/// Descends from the result and other starts to where no small move of the whole model's replay is faster.
void improve_by_replay(const ModelQuestion& asked, ModelReplay& replay, const Decision& layer, ModelResult& result);

}  // namespace moe::search
