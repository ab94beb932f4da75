#pragma once
// Cases over many parallel shapes, and layers whose profiles also price what other flows than FSMoE's have.
#include <string>
#include <vector>

#include "moe/schedule/schedule.h"
#include "tests/prices/random_layer.h"

namespace moe::conformance {

/// Returns every shape of 1 to 4 nodes of 1, 2 or 4 ranks with MP, EP and ESP of up to 4 that divide, alike or not;
/// layers alternate between the roundings, FFNs and numbers of key-value heads. T_rank does not divide by most degrees.
std::vector<LayerCase> cases();
std::string text_of(const LayerCase& shape);
/// Returns text_of, schedule, degrees and split, for failures.
std::string text_of(const Schedule& schedule, const LayerCase& shape, const Decision& decision);

/// Returns random_layer with rows for copies and for AllReduce over EDP and, in three of four, times for order and
/// i-order.
random_layer::RandomLayer full_layer(uint64_t seed, bool measured = false);

}  // namespace moe::conformance
