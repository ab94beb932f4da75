#pragma once
// Profiles composed of a published GPU and a network between nodes, by a name such as h100-4x8-ib-400.
#include <optional>
#include <string>

#include "moe/prices/profile.h"

namespace moe {

/// How a composed profile is named. GPU is one whose node configs/clusters describes (GPU-8.toml or GPU-8-nodes.toml).
inline constexpr std::string_view kComposedForm = "GPU-NODESxGPUS-NETWORK", kComposedExample = "h100-4x8-ib-400";

/// Returns the profile that a name of that form means; none: the name has another form. Inside a node the rows are the
/// GPU's. Between nodes they are modelled and say so (RowVerdict::origin): every GPU has a link of the network's rate,
/// which it uses fully and without a start-up time, so that no collective is faster. Throws BadInput naming what is
/// wrong and the known GPUs or networks.
std::optional<Profile> composed_profile(const std::string& name);

}  // namespace moe
