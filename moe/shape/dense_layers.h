#pragma once
// Layers of a model whose feed-forward is dense, between its MoE layers.
//
// A dense layer is an MoE layer without routed experts: attention, followed by a feed-forward that processes every
// token, as a shared expert does. So its case is that of an MoE layer without experts, with the dense hidden size as
// the shared expert's: volumes, gradients, memory and weights follow from the same formulas.
#include <cstdint>
#include <string>
#include <vector>

#include "moe/shape/shape.h"

namespace moe {

struct DenseLayers {
  int64_t hidden = 0;    // hidden size before sharding over MP; 0: all layers are MoE layers
  std::vector<bool> is;  // by layer; later layers, and the model's ends, are not dense

  bool has(int layer) const { return layer >= 0 && layer < std::ssize(is) && is[layer]; }
  /// Counts the dense layers among [first, last).
  int in(int first, int last) const;
  /// Returns whether none of the first `layers` layers is dense.
  bool none(int layers) const { return in(0, layers) == 0; }
  /// Returns the dense layers of a model that has only the first `layers` layers.
  DenseLayers first(int layers) const;
  bool operator==(const DenseLayers&) const = default;
};

/// The rule that decides which layers of a model of any depth are dense: the first ones, all except every n-th (layers
/// n - 1, 2 n - 1, .. have experts, counted from 0), and those listed by number.
struct DenseRule {
  int64_t hidden = 0;
  int first = 0, every = 1;
  std::vector<int> listed;
  DenseLayers of(int layers) const;
  bool operator==(const DenseRule&) const = default;
};

inline bool is_dense(const LayerCase& shape) { return shape.layer.experts == 0; }

/// Returns the case of a dense layer of a model whose MoE layers have the case `shape`. Throws BadInput naming
/// dense_hidden if MP does not divide it, or if its weights are too many to count.
LayerCase dense_case(const LayerCase& shape, int64_t hidden);

/// The cases of a model's MoE layers and dense layers.
class LayerCases {
 public:
  LayerCases(const LayerCase& shape, const DenseLayers& dense)
      : moe_(shape), dense_(dense.hidden > 0 ? dense_case(shape, dense.hidden) : shape), layers_(dense) {}
  const LayerCase& of(int layer) const { return layers_.has(layer) ? dense_ : moe_; }
  const LayerCase& dense() const { return dense_; }
  const LayerCase& moe() const { return moe_; }
  bool is_dense(int layer) const { return layers_.has(layer); }

 private:
  LayerCase moe_, dense_;
  DenseLayers layers_;
};

/// Returns "48 layers", or "12 layers, 6 MoE" for a model with dense layers.
std::string count_layers(int layers, const DenseLayers& dense);
/// Returns "48 layers of B1 ..", "12 layers, 6 MoE of B1 .. and 6 dense of H3072".
std::string describe_layers(int layers, const DenseLayers& dense, const LayerShape& layer);

}  // namespace moe
