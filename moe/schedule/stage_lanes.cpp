#include "moe/schedule/stage_lanes.h"

#include <algorithm>

namespace moe::schedule {
namespace {

std::vector<Lane> lanes_of(LaneLayout layout, int stage) {
  std::vector<Lane> lanes{{LaneKind::compute, stage, false, false, {}}};
  if (layout == LaneLayout::one_comm) {
    lanes.push_back({LaneKind::comm, stage, true, true, {}});
  } else {
    lanes.push_back({LaneKind::inter, stage, true, false, {}});
    lanes.push_back({LaneKind::intra, stage, false, true, {}});
  }
  if (layout == LaneLayout::by_network_copy) lanes.push_back({LaneKind::copy, stage, false, false, {}});
  return lanes;
}

// Says whether a task is one of a step's collectives, but those of experts.
bool sums_for_all(TaskKind kind) {
  return kind == TaskKind::stage_gradient || kind == TaskKind::norm || kind == TaskKind::stage_weights ||
         kind == TaskKind::tied_gradient;
}

}  // namespace

StageLanes::StageLanes(LaneLayout layout, const Networks& networks, int stages) : layout_(layout), networks_(networks) {
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Lane> lanes = lanes_of(layout, stage);
    const Network gradients = networks[static_cast<size_t>(GroupKind::dp)];
    if (layout == LaneLayout::by_network_gradient)
      lanes.push_back({LaneKind::gradient, stage, gradients == Network::inter, gradients == Network::intra, {}});
    if (stages > 1) lanes.push_back({LaneKind::receive, stage, false, false, {}});
    a_stage_ = lanes.size();
    lanes_.insert(lanes_.end(), lanes.begin(), lanes.end());
  }
}

int StageLanes::of(GroupKind group, int stage) const {
  const size_t first = static_cast<size_t>(stage) * a_stage_;
  if (group == GroupKind::none) return static_cast<int>(first);  // compute
  const Network network = networks_[static_cast<size_t>(group)];
  for (size_t lane = first + 1; lane < first + a_stage_; ++lane)
    if (lanes_[lane].owns(network)) return static_cast<int>(lane);
  return -1;
}

int StageLanes::of_gradients(int stage) const {
  if (layout_ != LaneLayout::by_network_gradient) return of(GroupKind::dp, stage);
  return lane_of(LaneKind::gradient, stage);
}

int StageLanes::lane_of(LaneKind kind, int stage) const {
  const auto first = lanes_.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(stage) * a_stage_);
  return static_cast<int>(std::ranges::find(first, lanes_.end(), kind, &Lane::kind) - lanes_.begin());
}

// Says whether a group's collectives have the gradients' lane: their network is that of the gradients.
bool StageLanes::shares_gradients(GroupKind group) const {
  return networks_[static_cast<size_t>(group)] == networks_[static_cast<size_t>(GroupKind::dp)];
}

int StageLanes::of(TaskKind kind, Flow flow, int stage) const {
  if (kind == TaskKind::recv) return lane_of(LaneKind::receive, stage);
  const bool sums = kind == TaskKind::gradient || sums_for_all(kind) || kind == TaskKind::weights;
  if (sums && shares_gradients(group_of(flow, kind))) return of_gradients(stage);
  if (kind != TaskKind::copy && kind != TaskKind::home_copy) return of(group_of(flow, kind), stage);
  const int compute = of(GroupKind::none, stage);
  return layout_ == LaneLayout::by_network_copy ? compute + 3 : std::max(of(GroupKind::mp, stage), compute);
}

}  // namespace moe::schedule
