#pragma once
// Layers of a model whose feed-forward is dense, between those that have experts.
//
// A dense layer is what an MoE layer is without its routed experts: attention, and behind it a feed-forward that every
// token passes, as a shared expert is one. So its case is an MoE layer's with no experts, and with the dense hidden
// size in the place of the shared expert's: volumes, gradients, memory and weights follow by the same formulas.
#include <cstdint>
#include <string>
#include <vector>

#include "moe/shape/shape.h"

namespace moe {

struct DenseLayers {
  int64_t hidden = 0;    // before sharding over MP; 0: every layer has experts
  std::vector<bool> is;  // by layer; those beyond, and a model's ends, have experts

  bool has(int layer) const { return layer >= 0 && layer < std::ssize(is) && is[layer]; }
  /// Counts the dense layers among [first, last).
  int in(int first, int last) const;
  /// Returns whether none of the first `layers` is dense.
  bool none(int layers) const { return in(0, layers) == 0; }
  /// Returns the dense layers of a model of the first `layers` alone.
  DenseLayers first(int layers) const;
  bool operator==(const DenseLayers&) const = default;
};

/// Which layers of a model are dense, however many it has: the first ones, all but every n-th (n - 1, 2 n - 1, ..
/// have experts, counted from 0), and some by their numbers.
struct DenseRule {
  int64_t hidden = 0;
  int first = 0, every = 1;
  std::vector<int> listed;
  DenseLayers of(int layers) const;
  bool operator==(const DenseRule&) const = default;
};

inline bool is_dense(const LayerCase& shape) { return shape.layer.experts == 0; }

/// Returns the case of a dense layer beside MoE layers of the case `shape`. Throws BadInput naming dense_hidden where
/// MP does not divide it, or where its weights are too many to count.
LayerCase dense_case(const LayerCase& shape, int64_t hidden);

/// The cases of a model's layers, of both kinds.
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

/// Returns "48 layers", or of a model with dense ones "12 layers, 6 MoE".
std::string count_layers(int layers, const DenseLayers& dense);
/// Returns "48 layers of B1 ..", "12 layers, 6 MoE of B1 .. and 6 dense of H3072".
std::string describe_layers(int layers, const DenseLayers& dense, const LayerShape& layer);

}  // namespace moe
