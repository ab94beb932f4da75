#include "moe/layer/binding/run_time_sizes.h"

#include <algorithm>

namespace moe::layer {

RunTimeSizes::RunTimeSizes(LayerState& layer, BoundPlan& plan) : layer_(layer), plan_(plan) {
  const RankShape& rank = layer.shape;
  if (rank.shape.layer.capacity_factor) return;
  const auto experts = static_cast<size_t>(rank.experts.total);
  const auto held = static_cast<size_t>(rank.held_groups()) * experts;
  of_ranks_.resize(static_cast<size_t>(rank.shape.parallel.ranks()) * held);
  counts_.members.resize(static_cast<size_t>(layer.comms.of(GroupKind::ep_esp).size()) * held);
  counts_.gated.resize(static_cast<size_t>(rank.groups()) * experts);
  of_ranks_there_ = {layer.memory(), static_cast<int64_t>(of_ranks_.size())};
}

void RunTimeSizes::agree(Stream& stream) {
  const RankShape& rank = layer_.shape;
  if (rank.shape.layer.capacity_factor) return;
  const int64_t experts = rank.experts.total, held = rank.held_groups() * experts;
  const int64_t* own = layer_.routing.filled_there() + rank.first_held_group() * experts;
  layer_.comms.of(GroupKind::none)
      .allgather(own, of_ranks_there_.data(), held * static_cast<int64_t>(sizeof *own), {stream, {}, "counts of rows"});
  stream.synchronize();
  of_ranks_there_.to_host(of_ranks_.data());
  layer_.routing.fetch_filled();
  take_counts();
  for (BoundPhase& phase : plan_.phases) {
    phase.layouts.set_counts(rank, counts_);
    phase.rows.update(phase.layouts.gathered);
  }
  fit();
  place(stream);
}

void RunTimeSizes::place(Stream& stream) {
  if (layer_.memory().kind() == DeviceKind::cpu) return;
  stream.launch([this](void* native) {
    layer_.math().use(native);
    for (BoundPhase& phase : plan_.phases)
      for (RowLayout* layout : phase.layouts.looked_up())
        if (layout->streams() > 0) layer_.device.place(*layout);
  });
  stream.synchronize();
}

void RunTimeSizes::take_counts() {
  const RankShape& rank = layer_.shape;
  if (pads_to_largest_load(rank.shape)) {
    const int64_t largest = padded_rows(rank.shape, *std::ranges::max_element(of_ranks_));
    std::ranges::fill(counts_.members, largest);
    std::ranges::fill(counts_.gated, largest);
    return;
  }
  const int64_t held = rank.held_groups() * rank.experts.total;
  auto to = counts_.members.begin();
  for (const int member : members(rank.shape.parallel, GroupKind::ep_esp, rank.rank))
    to = std::copy_n(of_ranks_.begin() + member * held, held, to);
  std::ranges::copy(layer_.routing.filled, counts_.gated.begin());
}

void RunTimeSizes::fit() {
  for (const Phase phase : {Phase::forward, Phase::backward})
    layer_.buffers.fit(layer_.shape, phase, plan_.of(phase).layouts);
  layer_.parts.expert->reserve(plan_.of(Phase::forward).rows.total());
}

}  // namespace moe::layer
