#pragma once
// Profiles composed of a published GPU and a network between nodes, with names such as h100-4x8-ib-400.
#include <optional>
#include <string>

#include "moe/prices/profile.h"

namespace moe {

/// The form of a composed profile's name. GPU has a node in configs/clusters (GPU-8.toml or GPU-8-nodes.toml).
inline constexpr std::string_view kComposedForm = "GPU-NODESxGPUS-NETWORK", kComposedExample = "h100-4x8-ib-400";

/// Returns the profile that a name of that form describes; none if the name has another form. `nodes` replaces the
/// name's nodes. Inside a node, the rows are the GPU's. Between nodes, they are modelled, which RowVerdict::origin
/// states: every GPU has a link with the network's rate and uses it fully and without a start-up time, so real
/// collectives are not faster. Throws BadInput naming the error and the known GPUs or networks.
std::optional<Profile> composed_profile(const std::string& name, std::optional<int> nodes = {});

}  // namespace moe
