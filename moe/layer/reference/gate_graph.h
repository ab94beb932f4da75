#pragma once
// The gates' graphs, one file each; gate_graph.cpp lists them.
#include "moe/layer/reference/graph_parts.h"

namespace moe {

struct GateGraphRow {
  std::string_view name;
  std::vector<GraphWeight> (*weights)(const Case& shape);
  GateGraph (*graph)(const GateGraphInputs& inputs);
};

extern const GateGraphRow kGShardGraph;

}  // namespace moe
