#pragma once
// X-MoE's gate: logits = cos(W_proj x, w_e) / temperature, where W_proj, w_e and the temperature are learned. It
// chooses the k largest; weight = the expert's probability, a softmax over all logits (Chi et al. 2022, section 3.2).
// W_proj projects to E / 2 dimensions as in the paper, but to at least 16 (the paper's number for 32 experts) and at
// most M. The temperature begins at about 0.3, as in the paper. Norms below 1e-12 count as 1e-12.
// The gate has the balance and the z loss (gate_parts.h).
#include <memory>

#include "moe/layer/gates/gate_parts.h"

namespace moe {

std::unique_ptr<Gate> make_xmoe_gate(const PartSetup& setup);
extern const AutogradGate kXMoeReference;  // reference/gates/xmoe_graph.cpp

/// The gate's parameters, filled, and their gradients, on any device.
class XMoeWeights {
 public:
  explicit XMoeWeights(const PartSetup& setup);

  const GateProjection& projection() const { return projection_; }
  TensorView embeddings() const { return embeddings_; }      // (1, E, width)
  TensorView d_embeddings() const { return d_embeddings_; }  // likewise
  TensorView temperature() const { return temperature_; }    // (1, 1, 1)
  TensorView d_temperature() const { return d_temperature_; }
  int64_t width() const { return width_; }  // width of the low-dimensional space of scores
  DType dtype() const { return embeddings().dtype(); }
  std::vector<Parameter> parameters() const;

 private:
  int64_t width_;
  GateProjection projection_;
  Weight embeddings_, d_embeddings_, temperature_, d_temperature_;
};

}  // namespace moe
