#include "reproduce/fsmoe_layer.h"

#include <string>

namespace moe {

Model fsmoe_model(std::string_view printed) { return find_model(std::string(printed) + "@fsmoe"); }

LayerCase model_case(std::string_view model, const Profile& profile, int nodes, int64_t batch, int64_t seq,
                     double capacity) {
  LayerShape layer = fsmoe_model(model).layer;
  layer.batch = batch;
  layer.seq = seq;
  layer.top_k = kModelTopK;
  layer.capacity_factor = capacity / kModelTopK;
  ParallelShape parallel;
  parallel.nodes = nodes;
  parallel.ranks_per_node = profile.ranks_per_node;
  return complete(layer, parallel, Rounding::exact);
}

LayerCase table2_case(std::string_view model, const Profile& profile, double capacity) {
  return model_case(model, profile, profile.nodes, 4, 1024, capacity);
}

}  // namespace moe
