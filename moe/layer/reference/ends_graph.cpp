#include "moe/layer/reference/ends_graph.h"

#include <ATen/ATen.h>

#include "moe/layer/reference/layer_graph.h"

namespace moe {

EndsGraph::EndsGraph(const LayerCase& shape, const LayerSeed& seed, const ReferenceEnds& ends)
    : layer_(shape.layer), ends_(ends) {
  const int64_t m = layer_.model_dim;
  std::vector<GraphWeight> weights{{"embedding", {ends.vocabulary, m}, 4}, {"head", {ends.vocabulary, m}, m}};
  if (layer_.rope_theta == 0) weights.push_back({"places", {layer_.seq, m}, 4});
  if (layer_.norm != Norm::none) weights.push_back({"norm3", {m}, 4, 1});
  weights_ = graph_weights(weights, layer_.dtype, seed);
  for (const auto& [name, weight] : weights_) weight.set_requires_grad(true);
}

at::Tensor EndsGraph::text(int micro_batch, int64_t from) const {
  const at::Tensor all = indices(ends_.tokens[static_cast<size_t>(micro_batch)]).view({-1, layer_.seq + 1});
  return all.narrow(1, from, layer_.seq).flatten();
}

at::Tensor EndsGraph::embed(int micro_batch) const {
  const at::Tensor tokens = text(micro_batch, 0);
  const at::Tensor embedded = weights_.at("embedding").index_select(0, tokens);
  if (layer_.rope_theta > 0) return embedded;
  const at::Tensor places = at::arange(tokens.numel()).remainder(layer_.seq);
  return embedded + weights_.at("places").index_select(0, places);
}

at::Tensor EndsGraph::add_loss(const at::Tensor& output, int micro_batch) {
  const at::Tensor logits = at::matmul(norm_graph(layer_, output, weights_, "norm3"), weights_.at("head").t());
  const at::Tensor picked = at::log_softmax(logits, 1).gather(1, text(micro_batch, 1).unsqueeze(1));
  const at::Tensor loss =
      -picked.sum() / static_cast<double>(picked.numel() * static_cast<int64_t>(ends_.tokens.size()));
  loss_ += loss.item<double>();
  return loss;
}

}  // namespace moe
