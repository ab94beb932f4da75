#include "tuner/reproduce/fsmoe_layer.h"

#include <array>

#include "moe/base/registry.h"

namespace moe {
namespace {

struct ModelRow {
  std::string_view name;
  int64_t model_dim, hidden, heads, kv_heads;
  Ffn ffn;
};
constexpr std::array<ModelRow, 3> kModels{{{"gpt2-xl", 1600, 6400, 25, 25, Ffn::gpt},
                                           {"mixtral-7b", 4096, 14336, 32, 8, Ffn::mixtral},
                                           {"mixtral-22b", 6144, 16384, 48, 8, Ffn::mixtral}}};

}  // namespace

Case model_case(std::string_view model, const Profile& profile, int nodes, int64_t batch, int64_t seq,
                double capacity) {
  const ModelRow& row = find_named(kModels, model, "model");
  LayerShape layer;
  layer.batch = batch;
  layer.seq = seq;
  layer.model_dim = row.model_dim;
  layer.hidden = row.hidden;
  layer.heads = row.heads;
  layer.kv_heads = row.kv_heads;
  layer.ffn = row.ffn;
  layer.top_k = kModelTopK;
  layer.capacity_factor = capacity / kModelTopK;
  ParallelShape parallel;
  parallel.nodes = nodes;
  parallel.ranks_per_node = profile.ranks_per_node;
  return complete(layer, parallel, Rounding::exact);
}

Case table2_case(std::string_view model, const Profile& profile, double capacity) {
  return model_case(model, profile, profile.nodes, 4, 1024, capacity);
}

}  // namespace moe
