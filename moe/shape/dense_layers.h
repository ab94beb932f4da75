#pragma once
// The kinds of a model's layers: MoE or dense, each with sliding-window attention or with attention over all tokens.
//
// A dense layer has attention and one feed-forward that processes every token. Its case is that of an MoE layer with 0
// routed experts and a shared expert of the dense hidden size, so the formulas of MoE layers also give its volumes,
// gradients, memory and weights. Layers with and without a window differ only in the attention scores.
#include <cstdint>
#include <string>
#include <vector>

#include "moe/base/enum_array.h"
#include "moe/shape/shape.h"

namespace moe {

/// Some of a model's layers.
struct LayerSet {
  std::vector<bool> by_layer;  // by layer; later layers, and the model's ends, are not among them

  bool has(int layer) const { return layer >= 0 && layer < std::ssize(by_layer) && by_layer[layer]; }
  /// Counts those among [first, last).
  int count(int first, int last) const;
  /// Returns whether none of the first `layers` layers is among them.
  bool has_none(int layers) const { return count(0, layers) == 0; }
  /// Returns those of a model that has only the first `layers` layers; an empty set if there are none.
  LayerSet first(int layers) const;
  bool operator==(const LayerSet&) const = default;
};

/// Layers with a dense feed-forward in place of experts.
struct DenseLayers : LayerSet {
  int64_t hidden = 0;  // hidden size before sharding over MP; 0: all layers are MoE layers

  /// Returns those of a model that has only the first `layers` layers; no hidden size if there are none.
  DenseLayers first(int layers) const;
  bool operator==(const DenseLayers&) const = default;
};

/// Returns the layers whose attention covers all tokens, in a model of `layers` layers whose other layers have the
/// case's window. The pattern has a digit for each layer and repeats: 1 for a window, 0 for none, as "10" for a window
/// in every second layer. An empty pattern: all layers have the window.
LayerSet whole_layers(std::string_view pattern, int layers);
/// Returns such a pattern, with a digit for each layer; empty if all have the window.
std::string windowed_pattern(const LayerSet& whole, int layers);

/// The kinds of layers. Attention of a whole_ kind sees all tokens; that of the others sees the case's window.
enum class LayerKind : uint8_t { moe, dense, whole_moe, whole_dense };
inline constexpr size_t kLayerKinds = 4;
inline constexpr EnumArray<LayerKind, LayerKind, kLayerKinds> kAllLayerKinds{
    LayerKind::moe, LayerKind::dense, LayerKind::whole_moe, LayerKind::whole_dense};
constexpr bool is_dense(LayerKind kind) { return kind == LayerKind::dense || kind == LayerKind::whole_dense; }
constexpr bool is_whole(LayerKind kind) { return kind == LayerKind::whole_moe || kind == LayerKind::whole_dense; }
inline LayerKind layer_kind(const DenseLayers& dense, const LayerSet& whole, int layer) {
  if (whole.has(layer)) return dense.has(layer) ? LayerKind::whole_dense : LayerKind::whole_moe;
  return dense.has(layer) ? LayerKind::dense : LayerKind::moe;
}

/// A rule for dense layers that applies to a model of any depth. A layer is dense if it is one of the first `first`, if
/// `listed` has its number, or if its number + 1 is not a multiple of `every`. Layers are numbered from 0.
struct DenseRule {
  int64_t hidden = 0;
  int first = 0, every = 1;
  std::vector<int> listed;
  DenseLayers expand(int layers) const;
  bool operator==(const DenseRule&) const = default;
};

inline bool is_dense(const LayerCase& shape) { return shape.layer.experts == 0; }

/// Returns the case of a dense layer of a model whose MoE layers have the case `shape`. Throws BadInput naming
/// dense_hidden if MP does not divide it, or if its weights are too many to count.
LayerCase dense_case(const LayerCase& shape, int64_t hidden);

/// Returns the case without its window: attention sees all tokens.
LayerCase whole_case(LayerCase shape);

/// The cases of a model's layers.
class LayerCases {
 public:
  /// `shape`: the case of an MoE layer, with the window if the model has one.
  LayerCases(const LayerCase& shape, DenseLayers dense, LayerSet whole);
  const LayerCase& at(int layer) const { return cases_[layer_kind(layers_, whole_, layer)]; }
  const LayerCase& dense() const { return cases_[LayerKind::dense]; }
  const LayerCase& moe() const { return cases_[LayerKind::moe]; }
  bool is_dense(int layer) const { return layers_.has(layer); }

 private:
  EnumArray<LayerKind, LayerCase, kLayerKinds> cases_;
  DenseLayers layers_;
  LayerSet whole_;
};

/// Returns "48 layers", or "12 layers, 6 MoE" for a model with dense layers.
std::string count_layers(int layers, const DenseLayers& dense);
/// Returns "48 layers of B1 .." or "12 layers, 6 MoE of B1 .. and 6 dense of H3072". If only some layers have a window,
/// ", a window of 128 tokens in 6 of them" follows.
std::string describe_layers(int layers, const DenseLayers& dense, const LayerSet& whole, const LayerShape& layer);

}  // namespace moe
