#pragma once
// A grid: the cartesian product of candidate values, as a TOML file.
//
//   schema = 1                      name, source, cluster (the one it belongs to), capacity_rounding
//   [layers]                        a list of distinct candidates each, or one value:
//   batch = [1, 2, 4]               B
//   heads = [8, 16]
//   seq = [512, 1024]               L
//   model_dim = [1024, 2048]        M
//   hidden_scale = [2, 3.5]         H / M; or `hidden`, H itself
//   capacity_factor = [1.2, "*"]    f; "*" drops no token and is planned as f = 1
//   ffn = ["gpt", "mixtral"]        "simple" is FSMoE's word for gpt
//   top_k = 1                       k
//   experts = "nodes"               E: one a node; or a number
//   dtype, gate, order, dispatcher, hook  optional, one value
//   [parallel]                      optional: layers on several shapes of ranks, whatever the cluster has
//   ranks = [8, 16]                 P, a multiple of ranks_per_node
//   ranks_per_node = 4              one value
//   mp = [1, 2]                     optional, as is
//   esp = [1, 2]                    N_ESP
//   memory_bytes = 11811160064      optional: of one rank
// and beside it, in [layers]:
//   model_dim_per_esp               in the place of model_dim: M / N_ESP
//   hidden_per_esp                  in the place of hidden: H / N_ESP
//   experts = "esp-groups"          E = P / N_ESP, one on each position of the EP group, which spans all ranks
//
// A sample of another grid's layers is a file of four keys:
//   schema, name
//   of = "fsmoe-a"                  the grid: its source, cluster and rounding hold here too
//   only = ["B1-h8-...", ...]       names of its layers, each once
//
// Layers come in the order of these tables, [parallel] first, the last list varying fastest.
#include <string>
#include <vector>

#include "moe/shape/shape.h"

namespace moe {

inline constexpr int64_t kMostGridLayers = 1'000'000;

struct GridLayer {
  /// The name is "B1-h8-L256-M1024-H2048-f1.2-gpt"; fnone: drops nothing; "-k2" at the end where the grid has several
  /// k; "P8-mp2-esp4-" before it where the grid has [parallel].
  std::string name;
  LayerShape shape;
  std::optional<ParallelShape> parallel;  // of a grid with [parallel]
};

struct Grid {
  std::string name, source, cluster, file;
  std::string sample_of;  // the grid whose layers these are; empty: this is a whole one
  std::string sample_of_file;
  Rounding rounding = Rounding::ragged;
  std::optional<double> memory_bytes;  // of one rank, where the grid says so
  std::vector<GridLayer> layers;
};

/// Reads a grid's file. Throws BadInput "FILE:LINE: key: found ..., expected ...". Unknown keys are errors, as are more
/// than kMostGridLayers layers.
Grid read_grid(const std::string& path);

/// Returns the files that a grid was read from: a sample's own, and that of the grid whose sample it is.
std::vector<std::string> files_of(const Grid& grid);

/// Reads the grid of that name (configs/grids/NAME.toml), or of that path. Throws BadInput listing the known names.
Grid find_grid(const std::string& name_or_path);

}  // namespace moe
