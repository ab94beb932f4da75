#pragma once
// A grid of layers: the cartesian product of candidate values, as a TOML file.
//
//   schema = 1                      name, source, cluster (the grid's cluster), capacity_rounding
//   [layers]                        each key has a list of distinct candidates, or one value:
//   batch = [1, 2, 4]               B
//   heads = [8, 16]
//   seq = [512, 1024]               L
//   model_dim = [1024, 2048]        M
//   hidden_scale = [2, 3.5]         H / M; or `hidden`, H itself
//   capacity_factor = [1.2, "*"]    f; "*" drops no token and is planned as f = 1
//   ffn = ["gpt", "mixtral"]        "simple" is FSMoE's name for gpt
//   top_k = 1                       k
//   experts = "nodes"               E: one per node; or a number
//   dtype, gate, order, dispatcher, hook  optional, one value
//   [parallel]                      optional: layers on several sizes and groups of ranks, for any cluster
//   ranks = [8, 16]                 P, a multiple of ranks_per_node
//   ranks_per_node = 4              one value
//   mp = [1, 2]                     optional
//   esp = [1, 2]                    N_ESP
//   memory_bytes = 11811160064      optional: memory of one rank
// further keys of [layers] in a grid with [parallel]:
//   model_dim_per_esp               instead of model_dim: M / N_ESP
//   hidden_per_esp                  instead of hidden: H / N_ESP
//   experts = "esp-groups"          E = P / N_ESP: EP groups span all ranks, and each EP rank has one expert
//
// A sample of the layers of another grid is a file of four keys:
//   schema, name
//   of = "fsmoe-a"                  the name of that grid; its source, cluster and rounding also apply to the sample
//   only = ["B1-h8-...", ...]       names of layers of that grid, each once
//
// Layers are ordered by these tables, [parallel] first; the last list varies fastest.
#include <string>
#include <vector>

#include "moe/shape/shape.h"

namespace moe {

inline constexpr int64_t kMaxGridLayers = 1'000'000;

struct GridLayer {
  /// For example "B1-h8-L256-M1024-H2048-f1.2-gpt"; "fnone" means that no token is dropped. The name ends in "-k2" if
  /// the grid has several top_k, and begins with "P8-mp2-esp4-" if the grid has [parallel].
  std::string name;
  LayerShape shape;
  std::optional<ParallelShape> parallel;  // set if the grid has [parallel]
};

struct Grid {
  std::string name, source, cluster, file;
  std::string sample_of;  // name of the grid that these layers were selected from; empty if this grid is not a sample
  std::string sample_of_file;
  Rounding rounding = Rounding::ragged;
  std::optional<double> memory_bytes;  // memory of one rank, if the grid sets it
  std::vector<GridLayer> layers;
};

/// Reads a grid's file. Throws BadInput "FILE:LINE: key: found ..., expected ..." for any error, for unknown keys, and
/// for more than kMaxGridLayers layers.
Grid read_grid(const std::string& path);

/// Returns the paths of the files that a grid was read from: two for a sample, with the whole grid's file last.
std::vector<std::string> files_of(const Grid& grid);

/// Reads the grid of that name (configs/grids/NAME.toml) or path. Throws BadInput listing the known names.
Grid find_grid(const std::string& name_or_path);

}  // namespace moe
