#include "tests/layer/local_layers.h"

#include <algorithm>
#include <limits>

#include "moe/layer/binding.h"
#include "moe/tensor/element.h"
#include "moe/tensor/host_copy.h"

namespace moe {

LocalLayers::LocalLayers(const LayerCase& shape, const LayerSeed& seed, Flow flow, const LayersOn& on)
    : world_(shape.parallel.ranks()),
      device_(on.streams()),
      layer_devices_(static_cast<size_t>(shape.parallel.ranks())),
      owned_(layer_devices_.size()) {
  world_.run([&](int rank) {
    const auto world = world_.communicator(rank);
    if (on.layer) layer_devices_[rank] = on.layer();
    owned_[rank] =
        std::make_unique<MoeLayer>(rank_shape(shape, rank, flow), seed, LayerComms::split(*world, shape.parallel),
                                   on.layer ? *layer_devices_[rank] : cpu_layer_device());
  });
  for (const auto& layer : owned_) ranks_.push_back(layer.get());
}

void poison(MoeLayer& layer) {
  const auto fill = [&](TensorView t) {
    const HostCopy here(t, layer.memory());
    with_element(here.view().dtype(), [&](auto zero) {
      using T = decltype(zero);
      std::fill_n(here.view().as<T>(), t.elements(), std::numeric_limits<T>::quiet_NaN());
    });
    here.send();
  };
  fill(layer.output());
  fill(layer.input_gradient());
  for (const Parameter& p : layer.parameters()) fill(p.gradient);
}

void LocalLayers::poison() {
  for (MoeLayer* rank : ranks_) moe::poison(*rank);
}

void LocalLayers::pass(const Plan& plan, int passes, const Wrap& wrap) {
  world_.run([&](int rank) {
    LayerBinding binding(*ranks_[rank], plan);
    Executor executor(*device_, plan.structure);
    const std::unique_ptr<Binding> wrapped = wrap ? wrap(binding, rank) : nullptr;
    for (int i = 0; i < passes; ++i) executor.run(wrapped ? *wrapped : binding);
  });
}

void LocalLayers::forward(const Plan& plan) const {
  world_.run([&](int rank) {
    LayerBinding binding(*ranks_[rank], plan);
    Executor executor(*device_, plan.structure);
    executor.run(binding, {}, Phase::forward);
  });
}

void LocalLayers::run(const Plan& plan, int passes, const Wrap& wrap) {
  pass(plan, passes, wrap);
  world_.run([&](int rank) {
    const auto stream = device_->make_stream("finish");
    ranks_[rank]->finish_gradients(*stream);
    stream->synchronize();
  });
}

int64_t LocalLayers::dropped() const {
  int64_t dropped = 0;
  for (const MoeLayer* rank : ranks_) dropped += std::ranges::count(rank->routing().row, Routing::kDropped);
  return dropped;
}

int64_t LocalLayers::idle_experts() const {
  std::vector<int64_t> tokens(ranks_.front()->routing().experts);
  for (const MoeLayer* rank : ranks_)
    for (const int32_t expert : rank->routing().expert)
      if (expert >= 0) ++tokens.at(expert);  // Expert Choice has pairs without one
  return std::ranges::count(tokens, 0);
}

Plan plan_for(const LayerCase& shape, std::string_view schedule, int degree_forward, int degree_backward,
              double gar_share) {
  const Schedule& row = find_schedule(schedule);
  const auto first = static_cast<int64_t>(gar_share * static_cast<double>(gradient_bytes(shape)));
  return build_plan(row, shape, with_split(row, degree_forward, degree_backward, first));
}

}  // namespace moe
