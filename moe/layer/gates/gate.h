#pragma once
// A gate decides which experts compute each token, and with what weight. A new one derives from Gate and has a row in
// gate.cpp, and its name and summary in moe/shape/parts.h; a program that uses this library registers it instead.
#include <memory>
#include <string_view>
#include <vector>

#include "moe/layer/gates/scoring.h"
#include "moe/layer/part.h"
#include "moe/sharding/routing.h"

namespace moe {

/// What reaches a gate on the way back. `hidden` and `routing` are the last forward's.
struct GateBackward {
  TensorView hidden;  // (tokens, M)
  const Routing& routing;
  TensorView d_weight;  // (tokens, choices); 0 for dropped pairs
  TensorView d_fill;    // likewise, of gates that mix tokens
  TensorView d_hidden;  // (tokens, M): to be added to
  double share = 1;     // of the auxiliary losses' gradients: 1 / the ranks that add up theirs for the same tokens
  Into into = Into::overwrite;  // the parameters' gradients
};

class Gate {
 public:
  virtual ~Gate() = default;
  /// Sets the step of passes from now on: noise differs from step to step. Not `noisy`: there is none, as
  /// where nothing is learned. It is called between passes alone.
  virtual void begin_step(uint64_t step, bool noisy) { (void)step, (void)noisy; }
  /// Routes hidden (tokens, M): sets expert (unless preset), row, filled and weight, and leaves this rank's own tokens'
  /// part in statistics().
  virtual void forward(TensorView hidden, Routing& routing) = 0;
  /// Makes this rank's part of the parameters' gradients and adds to d_hidden. statistics() are summed by then.
  virtual void backward(const GateBackward& pass) = 0;
  /// Shows the parameters: replicated on all ranks, summed over the stage.
  virtual std::vector<Parameter> parameters() = 0;
  /// Shows the float64 sums over all tokens of the stage that the auxiliary losses need; no data: none.
  virtual TensorView statistics() { return {}; }
  /// Computes the losses, coefficients applied, from the summed statistics.
  virtual double auxiliary_loss() const { return 0; }
};

/// Names the auxiliary losses that a gate has (gate_parts.h).
enum class Losses : uint8_t { none, z, balance_and_z };

struct AutogradGate;  // reference/gate_graph.h

/// What runs of a gate; its choices and logits stand in moe/shape/parts.h.
struct GateRow {
  std::string_view name = {};
  std::unique_ptr<Gate> (*make)(const PartSetup&);
  Losses losses = Losses::none;
  const AutogradGate* reference = nullptr;  // its graph for autograd; null: layers with it can't be verified
  Scoring scoring = Scoring::none;          // of its CUDA kernels
};

/// Makes a gate known to all that plans and runs, under the name of both. Call it before other threads run. Throws
/// BadInput for a name that is known.
void register_gate(const GatePart& part, GateRow row);
/// Returns the row of that name. Throws BadInput listing the known names.
const GateRow& find_gate(std::string_view name);
/// Makes the routing that this rank's gate fills, sized once. Throws BadInput if the gate can't be had with the layer's
/// capacity factor, Unsupported if it lacks a loss that has a coefficient.
Routing make_routing(const RankShape& rank, MemorySpace& memory = cpu_memory());
/// Returns "gshard", ...
std::vector<std::string_view> gate_names();

}  // namespace moe
