#include "moe/layer/reference/detail/ends_graph.h"

#include <ATen/ATen.h>
#include <algorithm>

#include "moe/layer/reference/detail/graph_terms.h"
#include "moe/layer/reference/detail/layer_graph.h"

namespace moe {

EndsGraph::EndsGraph(const LayerCase& shape, const LayerSeed& seed, const ReferenceEnds& ends)
    : shape_(shape), layer_(shape.layer), ends_(ends) {
  const int64_t m = layer_.model_dim;
  std::vector<GraphWeight> weights{{"embedding", {ends.vocabulary, m}, ends.tied ? m : 4}};
  if (!ends.tied) weights.push_back({"head", {ends.vocabulary, m}, m});
  if (layer_.rope_theta == 0) weights.push_back({"places", {layer_.seq, m}, 4});
  const std::string_view norm = layer_.norm == Norm::post_layernorm ? "norm0" : "norm3";
  for (const GraphWeight& weight : norm_weights(layer_, norm)) weights.push_back(weight);
  weights_ = graph_weights(weights, layer_.dtype, seed);
  for (const auto& [name, weight] : weights_) weight.set_requires_grad(true);
  for (const auto& targets : ends.targets)
    counted_ += std::ranges::count_if(targets, [](int32_t target) { return target >= 0; });
}

at::Tensor EndsGraph::embed(int micro_batch) const {
  const at::Tensor tokens = indices(ends_.inputs[micro_batch]);
  at::Tensor embedded = weights_.at("embedding").index_select(0, tokens);
  if (layer_.rope_theta == 0) {
    std::vector<int32_t> places_of(tokens.numel());
    const LayerCase part = part_case(shape_, micro_batch % static_cast<int>(layer_.parts));
    for (size_t t = 0; t < places_of.size(); ++t)
      places_of[t] = static_cast<int32_t>(sample_order_index(part, static_cast<int64_t>(t)) % layer_.seq);
    const at::Tensor places = indices(places_of);
    embedded = embedded + weights_.at("places").index_select(0, places);
  }
  return layer_.norm == Norm::post_layernorm ? norm_graph(layer_, embedded, weights_, "norm0") : embedded;
}

at::Tensor EndsGraph::add_loss(const at::Tensor& output, int micro_batch) {
  const bool post = layer_.norm == Norm::post_layernorm;
  const at::Tensor normed = post ? output : norm_graph(layer_, output, weights_, "norm3");
  const at::Tensor targets = indices(ends_.targets[micro_batch]);
  const at::Tensor counted = at::nonzero(targets >= 0).flatten();
  const at::Tensor logits =
      product(normed.index_select(0, counted), weights_.at(ends_.tied ? "embedding" : "head").t());
  const at::Tensor picked = log_softmax_of(logits, 1).gather(1, targets.index_select(0, counted).unsqueeze(1));
  const at::Tensor loss = -picked.sum() / static_cast<double>(counted_);
  loss_ += loss.item<double>();
  return loss;
}

}  // namespace moe
