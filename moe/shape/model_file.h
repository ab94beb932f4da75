#pragma once
// A model of MoE layers, all alike, and of dense ones between them, as a TOML file.
//
//   schema = 1                 name, source
//   layers = 32
//   moe_every = 2              optional: every second layer has experts: 1, 3, 5 .., counted from 0
//   first_dense = 3            optional: so many first layers have none
//   dense_layers = [0, 7]      optional: nor have these, counted from 0
//   dense_hidden = 18432       with any of the three: hidden size of a dense layer's feed-forward
//   vocabulary = 32000         optional: the memory of embedding and output projection counts only where it is given
//   tied_embedding = false     optional: the output projection is the embedding
//   qk_norm = true             optional: the published model norms queries and keys; exports say it, plans leave it out
//   [layer]                    the keys of a layer file (moe/shape/layer_file.h), batch to hook
//   [parallel]                 optional: dp, mp, ep, esp, pp
//   [[on]]                     optional: what differs on some clusters, by the names of their profiles
//   clusters = ["testbed-b"]
//   layers = 7                 also batch, seq, experts, ep
#include <optional>
#include <string>
#include <vector>

#include "moe/shape/dense_layers.h"

namespace moe {

/// What a model takes instead on the clusters named; empty: as everywhere.
struct ModelOverride {
  std::vector<std::string> clusters;
  std::optional<int> layers, ep;
  std::optional<int64_t> batch, seq, experts;
};

struct Model {
  std::string name, source, file;
  std::string origin;      // "config.json of qwen3_moe"; empty: a model file
  LayerShape layer;        // experts 0: one a node
  ParallelShape parallel;  // sizes of groups alone, 0: by default; nodes and ranks a node belong to the cluster
  int layers = 1;
  DenseRule dense;
  int64_t vocabulary = 0;  // 0: unknown
  bool tied_embedding = false, qk_norm = false;
  std::vector<ModelOverride> overrides;  // a cluster is named at most once
};

/// Ends the name of a profile that was fitted on the cluster named before it.
inline constexpr std::string_view kFitted = "-fitted";

/// Reads a model's file. Throws BadInput "FILE:LINE: key: found ..., expected ...". Unknown keys are errors.
Model read_model(const std::string& path);

/// Returns the path of the model of that name (configs/models/NAME.toml), or that path; of a folder that holds a
/// config.json, the path of that. Throws BadInput listing the known names.
std::string find_model_file(const std::string& name_or_path);

/// Reads the model of that name or path: a model file, or a Hugging Face config.json (moe/shape/hf_config.h).
Model find_model(const std::string& name_or_path);

/// Returns the text of a model file that reads as this model, without overrides.
std::string model_toml(const Model& model);

/// Returns the model as it is on the cluster of that name: its override applied, where it has one, and none left. A
/// profile that was fitted on a cluster (kFitted) is that cluster.
Model on_cluster(Model model, const std::string& cluster);

}  // namespace moe
