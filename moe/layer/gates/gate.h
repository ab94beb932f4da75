#pragma once
// A gate decides which experts compute each token, and with what weight. A new one derives from Gate and has a row in
// gate.cpp, and its name and summary in moe/shape/parts.h. A program that uses this library registers its gate at run
// time instead.
#include <memory>
#include <string_view>
#include <vector>

#include "moe/layer/gates/scoring.h"
#include "moe/layer/part.h"
#include "moe/sharding/routing.h"

namespace moe {

/// The input of a gate's backward. `hidden` and `routing` are the last forward's.
struct GateBackward {
  TensorView hidden;  // (tokens, M)
  const Routing& routing;
  TensorView d_weight;  // (tokens, choices); 0 for dropped pairs
  TensorView d_fill;    // likewise, for gates that mix tokens
  TensorView d_hidden;  // (tokens, M): the gate adds to it
  double share = 1;     // factor of the auxiliary losses' gradients: 1 / number of ranks that gate the same tokens
  Into into = Into::overwrite;  // how to write the parameters' gradients
};

class Gate {
 public:
  virtual ~Gate() = default;
  /// Sets the step of all later passes: noise differs from step to step. If not `noisy`, there is no noise, as in
  /// passes that do not train. Call it only between passes.
  virtual void begin_step(uint64_t step, bool noisy) { (void)step, (void)noisy; }
  /// Routes hidden (tokens, M): sets the routing's expert (unless preset), row, filled and weight, and sets
  /// statistics() to the sums over this rank's own tokens.
  virtual void forward(TensorView hidden, Routing& routing) = 0;
  /// Computes this rank's part of the parameters' gradients and adds to d_hidden. Before the call, statistics() must
  /// have been summed over the stage.
  virtual void backward(const GateBackward& pass) = 0;
  /// Returns the parameters: replicated on all ranks, summed over the stage.
  virtual std::vector<Parameter> parameters() = 0;
  /// Returns the float64 sums that the auxiliary losses need, which all ranks of the stage add up. The view is empty if
  /// there are no losses.
  virtual TensorView statistics() { return {}; }
  /// Computes the losses, coefficients applied, from the summed statistics.
  virtual double auxiliary_loss() const { return 0; }
};

/// The auxiliary losses of a gate (gate_parts.h).
enum class Losses : uint8_t { none, z, balance_and_z };

struct AutogradGate;  // reference/gate_graph.h

/// The implementation of a gate; moe/shape/parts.h has its choices and logits.
struct GateRow {
  std::string_view name = {};
  std::unique_ptr<Gate> (*make)(const PartSetup&);
  Losses losses = Losses::none;
  const AutogradGate* reference = nullptr;  // its graph for autograd; null: layers with this gate can't be verified
  Scoring scoring = Scoring::none;          // scoring by its CUDA kernels
};

/// Registers a gate under its name for planning and for running. Call it before other threads start. Throws BadInput if
/// the name is already registered.
void register_gate(const GatePart& part, GateRow row);
/// Returns the row of that name. Throws BadInput listing the known names.
const GateRow& find_gate(std::string_view name);
/// Makes the routing that this rank's gate fills, with its final size. Throws BadInput if the gate does not support the
/// layer's capacity factor, Unsupported if it lacks a loss that has a coefficient.
Routing make_routing(const RankShape& rank, MemorySpace& memory = cpu_memory());
/// Returns "gshard", ...
std::vector<std::string_view> gate_names();

}  // namespace moe
