#pragma once
// One layer as a TOML file, whose keys are the flags of the command line with underscores.
#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "moe/shape/layer_fields.h"

namespace moe {

struct LayerFile {
  std::string name, source, file;
  LayerShape layer;  // absent keys have LayerShape's defaults
  bool names_dtype = false;
  /// Only the kParallelKeys of [parallel] are set, 0: the default. Nodes and ranks per node are properties of the
  /// cluster.
  ParallelShape parallel;
  std::optional<Rounding> rounding;
};

/// The keys of [parallel] in files, and of a layer's groups in plans and records.
inline constexpr std::array<std::string_view, 8> kParallelKeys{"dp", "cp",  "cp_exchange", "mp",
                                                               "ep", "esp", "pp",          "placement"};

/// Sets the fields of `layer` whose keys `table` has; the other fields keep their values. Throws BadInput naming file,
/// line and key.
void read_layer_keys(const TableReader& table, LayerShape& layer);
/// Reads kParallelKeys; absent keys give 0, except that cp and pp are 1 and placement is ESP inside.
ParallelShape read_parallel_keys(const TableReader& table);

/// Returns the array of `keys` followed by `others`.
template <size_t N, size_t M>
constexpr std::array<std::string_view, N + M> with(const std::array<std::string_view, N>& keys,
                                                   const std::array<std::string_view, M>& others) {
  std::array<std::string_view, N + M> all;
  std::ranges::copy(others, std::ranges::copy(keys, all.begin()).out);
  return all;
}
template <size_t N, size_t M>
constexpr std::array<std::string_view, N + M> with(const std::array<std::string_view, N>& keys,
                                                   const std::string_view (&others)[M]) {
  return with(keys, std::to_array(others));
}

/// Reads a layer's file. Throws BadInput "FILE:LINE: key: found ..., expected ...". Unknown keys are errors.
LayerFile read_layer(const std::string& path);

/// Reads the layer of that name (configs/layers/NAME.toml) or path. Throws BadInput listing the known names.
LayerFile find_layer(const std::string& name_or_path);

/// Limits of sizes in files: a product of three sizes fits into int64_t.
inline constexpr Limits kSizeLimits{.min = 1, .max = 1 << 20};

}  // namespace moe
