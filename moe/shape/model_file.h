#pragma once
// A model as a TOML file: MoE layers of one shape, dense layers between them, and optionally layers without the window.
//
//   schema = 1                 name, source
//   layers = 32
//   moe_every = 2              optional: every second layer has experts: 1, 3, 5 .., counted from 0
//   first_dense = 3            optional: number of first layers that have no experts
//   dense_layers = [0, 7]      optional: further layers without experts, counted from 0
//   dense_hidden = 18432       hidden size of a dense layer's feed-forward, if any of these three keys is set
//   windowed_layers = "10"     optional: 1 for a layer with [layer] window, 0 for one without; repeats over the layers
//   vocabulary = 32000         optional: without it, the memory of embedding and output projection is not counted
//   tied_embedding = false     optional: the output projection uses the weights of the embedding
//   qk_norm = true             all keys of ModelTraits are optional; exports contain them, plans do not use them
//   [layer]                    the keys of a layer file (moe/shape/layer_file.h), batch to hook
//   [parallel]                 optional: dp, mp, ep, esp, pp
//   [[on]]                     optional: values for the clusters whose profiles have these names
//   clusters = ["testbed-b"]
//   layers = 7                 also batch, seq, experts, ep
#include <optional>
#include <string>
#include <vector>

#include "moe/shape/dense_layers.h"
#include "moe/shape/model_traits.h"

namespace moe {

/// Values that replace the model's on the named clusters; an empty one leaves the model's value.
struct ModelOverride {
  std::vector<std::string> clusters;
  std::optional<int> layers, ep;
  std::optional<int64_t> batch, seq, experts;
};

struct Model {
  std::string name, source, file;
  std::string origin;  // such as "config.json of qwen3_moe"; empty if read from a model file
  LayerShape layer;    // experts 0: one per node
  bool names_dtype = false;
  ParallelShape parallel;  // only sizes of groups, 0: the default; nodes and ranks per node are the cluster's
  int layers = 1;
  DenseRule dense;
  std::string windowed_layers;  // pattern for whole_layers(); empty: no layer differs from `layer`
  int64_t vocabulary = 0;       // 0: unknown
  bool tied_embedding = false;
  ModelTraits traits;
  std::vector<ModelOverride> overrides;  // at most one for each cluster
};

/// The suffix of a profile that was fitted on the cluster whose name comes before it.
inline constexpr std::string_view kFitted = "-fitted";

/// Reads a model's file. Throws BadInput "FILE:LINE: key: found ..., expected ...". Unknown keys are errors.
Model read_model(const std::string& path);

/// Returns the path of the model of that name (configs/models/NAME.toml), or the path itself; for a folder that
/// contains a config.json, the path of that file. Throws BadInput listing the known names.
std::string find_model_file(const std::string& name_or_path);

/// Reads the model of that name or path: a model file, or a Hugging Face config.json (moe/shape/hf_config.h).
Model find_model(const std::string& name_or_path);

/// Returns the text of a model file from which this model, without overrides, can be read.
std::string model_toml(const Model& model);

/// Returns the model with its override for that cluster applied, if it has one, and without overrides. A profile that
/// was fitted on a cluster (kFitted) counts as that cluster.
Model model_on_cluster(Model model, const std::string& cluster);

}  // namespace moe
