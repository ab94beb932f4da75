#pragma once
// One layer as a TOML file, whose keys are the flags of the command line with underscores.
#include <optional>
#include <string>

#include "moe/base/config.h"
#include "moe/plan/shape.h"

namespace moe {

struct LayerFile {
  std::string name, source, file;
  LayerShape layer;  // keys that are absent have LayerShape's defaults
  /// Holds [parallel]'s dp, mp, ep, esp, pp alone: nodes and ranks a node belong to the cluster. 0: by default.
  ParallelShape parallel;
  std::optional<Rounding> rounding;
};

/// Reads the keys of a layer's sizes and choices that `table` has, batch to hook; the others stay as they are.
void read_layer_keys(const TableReader& table, LayerShape& layer);
/// Reads dp, mp, ep, esp and pp; 0 where absent.
ParallelShape read_parallel_keys(const TableReader& table);

/// Reads a layer's file. Throws BadInput "FILE:LINE: key: found ..., expected ...". Unknown keys are errors.
LayerFile read_layer(const std::string& path);

/// Reads the layer of that name (configs/layers/NAME.toml), or of that path. Throws BadInput listing the known names.
LayerFile find_layer(const std::string& name_or_path);

/// Sizes that a file may hold: products of them stay far from overflow.
inline constexpr Limits kSizeLimits{.least = 1, .most = 1 << 20};
inline constexpr Limits kFactorLimits{.most = 1e6, .above = 0};

}  // namespace moe
