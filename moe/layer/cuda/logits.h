#pragma once
// Makes the logits by which a gate compares experts, with GEMMs and kernels, and their backward to the hidden states.
// Gates differ in how they make logits, as their rows say (moe/layer/gates/gate.cpp), and share all that follows
// (gate.cpp).
#include <memory>

#include "moe/layer/cuda/gate_kernels.h"
#include "moe/layer/gates/gate.h"
#include "moe/tensor/cuda/cuda_math.h"

namespace moe::cuda {

class GateLogits {
 public:
  virtual ~GateLogits() = default;
  /// Begins a step as Gate::begin_step does.
  virtual void begin_step(uint64_t, bool) {}
  virtual void forward(TensorView hidden) = 0;
  /// Return the last forward's logits, and the memory for their gradients; both have one stride.
  virtual Logits logits() const = 0;
  virtual Logits d_logits() const = 0;
  /// Makes the parameters' gradients and adds to d_hidden; may change d_logits.
  virtual void backward(const GateBackward& pass) = 0;
  virtual std::vector<Parameter> parameters() = 0;
};

/// Makes a gate's logits; `math` outlives them.
std::unique_ptr<GateLogits> make_logits(LogitsBy by, const PartSetup& setup, CudaMath& math);

}  // namespace moe::cuda
