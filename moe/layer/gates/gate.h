#pragma once
// A gate decides which experts compute each token, and with what weight. A new one: derive, and add a row to gate.cpp.
#include <memory>
#include <string_view>
#include <vector>

#include "moe/layer/parameter.h"
#include "moe/layer/routing.h"

namespace moe {

class Gate {
 public:
  virtual ~Gate() = default;
  /// Routes hidden (tokens, M): sets expert, row, filled and weight.
  virtual void forward(TensorView hidden, Routing& routing) = 0;
  /// From d_weight (tokens, top_k), which is 0 for dropped pairs: overwrites the parameters' gradients with this rank's
  /// part and adds to d_hidden (tokens, M). `hidden` and `routing` are the last forward's.
  virtual void backward(TensorView hidden, const Routing& routing, TensorView d_weight, TensorView d_hidden) = 0;
  /// Replicated on all ranks, summed over the stage.
  virtual std::vector<Parameter> parameters() = 0;
};

struct GateSetup {
  const RankShape& rank;
  LayerSeed seed;
};

struct GateRow {
  std::string_view name;
  std::unique_ptr<Gate> (*make)(const GateSetup&);
};

/// Throws BadInput listing the known names.
std::unique_ptr<Gate> make_gate(std::string_view name, const GateSetup& setup);
/// "gshard", ...
std::vector<std::string_view> gate_names();

}  // namespace moe
