#pragma once
// Profiles composed of the preset of a GPU and a model of the network between nodes, with names such as
// h100-4x8-ib-400.
#include <optional>
#include <string>

#include "moe/prices/profile.h"

namespace moe {

/// The form of a composed profile's name. GPU has a node in configs/clusters (GPU-8.toml or GPU-8-nodes.toml).
inline constexpr std::string_view kComposedForm = "GPU-NODESxGPUS-NETWORK", kComposedExample = "h100-4x8-ib-400";

/// Returns the profile that a name of this form describes; empty if the name has another form. `nodes` replaces the
/// number of nodes in the name. Rows inside a node are those of the GPU's preset. Rows between nodes are modelled:
/// every GPU has a link with the network's rate and uses all of it without a start-up time, so real collectives are at
/// best as fast. Their RowVerdict::origin says so. Throws BadInput naming the error and the known GPUs or networks.
std::optional<Profile> composed_profile(const std::string& name, std::optional<int> nodes = {});

}  // namespace moe
