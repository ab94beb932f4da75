#include "reproduce/fsmoe_layer.h"

#include <string>

#include "moe/plan/model_file.h"

namespace moe::reproduce {

Model fsmoe_model(std::string_view printed) { return find_model(std::string(printed) + "@fsmoe"); }

LayerCase table2_case(std::string_view model, const Profile& profile, double capacity) {
  LayerShape layer = fsmoe_model(model).layer;
  layer.batch = 4;
  layer.seq = 1024;
  layer.top_k = kModelTopK;
  layer.capacity_factor = capacity / kModelTopK;
  ParallelShape parallel;
  parallel.nodes = profile.nodes;
  parallel.ranks_per_node = profile.ranks_per_node;
  return complete(layer, parallel, Rounding::exact);
}

}  // namespace moe::reproduce
