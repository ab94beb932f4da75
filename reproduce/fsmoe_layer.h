#pragma once
// The layers of FSMoE's models (sections 2 and 6.4) on its testbeds: E = nodes, MP = ESP = GPUs of a node.
#include <string>
#include <string_view>

#include "moe/cost/profile.h"
#include "moe/plan/model_file.h"
#include "moe/plan/volumes.h"

namespace moe::reproduce {

/// Are k and f of section 6.4.
inline constexpr int kModelTopK = 2;
inline constexpr double kModelCapacityFactor = 1.2;

/// Returns FSMoE's variant of a model, by the name that its tables print: "mixtral-7b".
Model fsmoe_model(std::string_view printed);

/// Returns Table 2's layer of a model, B = 4, L = 1024, on the profile's cluster, unrounded. `capacity` is k f, with
/// k = 2.
LayerCase table2_case(std::string_view model, const Profile& profile, double capacity);

}  // namespace moe::reproduce
