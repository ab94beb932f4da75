#include "commands/report/layer_replays.h"

#include <algorithm>
#include <numeric>

#include "moe/base/enum_array.h"

namespace moe::report {
namespace {

/// The distinct prices of one schedule's plans.
class PriceList {
 public:
  PriceList(const LayerPricer& pricer, const LayerPricer& without_startup_seconds)
      : pricer_(pricer), without_starts_(without_startup_seconds) {}

  /// Returns the index of every task's price.
  Json prices_of(const Structure& structure, const std::vector<GradientSlice>& slices) {
    pricer_.price(structure, slices, seconds_);
    without_starts_.price(structure, slices, growing_);
    std::vector<Network> networks(structure.tasks.size(), Network::none);
    for (const Task& task : structure.tasks) networks[task.id] = pricer_.groups()[task.group].network;
    Json list = Json::array();
    for (size_t i = 0; i < structure.tasks.size(); ++i) {
      const Task& task = structure.tasks[i];
      const Work work = work_of(task, pricer_.shape(), slices, structure.flow);
      const bool computes = work.flops > 0;
      const Json of{name_of(task.kind), name_of(task.phase), name_of(networks[i]), computes ? "flops" : "bytes",
                    rounded(seconds_[i] - growing_[i], kExact)};
      const size_t known = index_in(works_, of);
      list.push_back(
          index_in(prices_, {known, rounded(computes ? work.flops : work.bytes), rounded(growing_[i], kExact)}));
    }
    return list;
  }
  Json take_works() { return std::move(works_.list); }
  Json take_prices() { return std::move(prices_.list); }

 private:
  static constexpr int kExact =
      12;  // digits of a price; sums of many prices on the page have to agree with the program's
  struct Distinct {
    std::map<std::string, size_t> known;  // index by the value's text
    Json list = Json::array();
  };
  static size_t index_in(Distinct& distinct, Json value) {
    const auto [entry, fresh] = distinct.known.emplace(value.dump(), distinct.list.size());
    if (fresh) distinct.list.push_back(std::move(value));
    return entry->second;
  }

  const LayerPricer &pricer_, &without_starts_;
  std::vector<double> seconds_, growing_;
  Distinct works_, prices_;
};

// Returns the degrees at which both phases are planned. If one phase's degree changes the other's time, or if a degree
// takes long to decide, the list is empty, and only the decided degrees are used.
std::vector<int> degrees_of(const Schedule& schedule, const LayerPricer& pricer) {
  const bool apart = schedule.degrees == DegreePolicy::apart || schedule.degrees == DegreePolicy::shared;
  if (!apart || schedule.searched_order || schedule.packs_experts || pricer.shape().rounding == Rounding::lcm)
    return {};
  std::vector<int> degrees(std::min(kMaxDegree, largest_degree(pricer)));
  std::iota(degrees.begin(), degrees.end(), 1);
  return degrees;
}

Json memory_json(const MemoryEstimate& m) {
  return {{"weights_bytes", rounded(m.weights)},
          {"gradients_bytes", rounded(m.gradients)},
          {"optimizer_bytes", rounded(m.optimizer)},
          {"activations_bytes", rounded(m.activations)},
          {"buffers_bytes", rounded(m.buffers)}};
}

}  // namespace

Json structure_json(const Structure& structure) {
  Json lanes = Json::array(), kind = Json::array(), lane = Json::array(), chunk = Json::array(), chunks = Json::array(),
       after = Json::array();
  for (const Lane& one : structure.lanes) lanes.push_back(name_of(one.kind));
  for (const Task& task : structure.tasks) {
    kind.push_back(static_cast<int>(task.kind));
    lane.push_back(task.lane);
    chunk.push_back(task.chunk);
    chunks.push_back(task.chunks);
    after.push_back(cross_lane_dependencies(structure, task));
  }
  return {{"lanes", std::move(lanes)}, {"kind", std::move(kind)},     {"lane", std::move(lane)},
          {"chunk", std::move(chunk)}, {"chunks", std::move(chunks)}, {"after", std::move(after)}};
}

Json contention_json(const Contention& contention) {
  if (contention.none()) return nullptr;
  EnumArray<Resource, EnumArray<Resource, double, kContendedResources>, kContendedResources> factors{};
  for (auto& row : factors) row.fill(1);
  for (const ContentionPair& pair : contention_pairs()) factors[pair.slowed][pair.by] = contention.*pair.factor;
  return {{"factors", factors}, {"stalls", contention.stall_s}};
}

size_t LayerReplays::index_of(const StructureKey& key) {
  const auto [entry, fresh] = known_.emplace(key, structures_.size());
  if (fresh) structures_.push_back(structure_json(*build_structure(key)));
  return entry->second;
}

Json LayerReplays::schedule_json(const Schedule& schedule, const LayerPricer& pricer,
                                 const LayerPricer& without_startup_seconds, const DegreeChoice& choice) {
  const LayerResult decided = search_.tune(schedule, pricer, choice);
  const Schedule& runs = decided.decision.variant ? *decided.decision.variant : schedule;
  if (const LayerCase shape = decided_case(pricer.shape(), decided.decision); shape != pricer.shape()) {
    const LayerPricer other(pricer.profile(), shape, pricer.options());
    const LayerPricer growing(without_startup_seconds.profile(), shape, pricer.options());
    Decision inside = decided.decision;
    inside.packing = 1;
    return plans_json({schedule, runs, other, growing, choice, inside, decided.memory});
  }
  return plans_json({schedule, runs, pricer, without_startup_seconds, choice, decided.decision, decided.memory});
}

Json LayerReplays::plans_json(const DecidedSchedule& of) {
  const auto& [schedule, runs, pricer, without_startup_seconds, choice, own, memory] = of;
  PriceList prices(pricer, without_startup_seconds);
  search::LayerReplay replay = search_.replay(runs, pricer);
  const auto plan_of = [&](const Decision& decision, Phases phases) {
    const bool forward = phases == Phases::forward;
    const GradientPlacement placement =
        forward ? GradientPlacement{} : placement_of(runs, pricer.groups(), pricer.shape(), decision);
    const StructureKey key = structure_key(runs, pricer.outline(), decision, placement, phases);
    const std::shared_ptr<const Structure> structure = build_structure(key);
    const auto slices =
        structure->slices > 0 ? slices_of(runs, pricer.shape(), decision) : std::vector<GradientSlice>();
    return Json{{"degree", forward ? decision.degree_forward : decision.degree_backward},
                {"structure", index_of(key)},
                {"prices", prices.prices_of(*structure, slices)},
                {"seconds", rounded(replay.seconds(decision, phases))}};
  };
  Json forward = Json::array(), backward = Json::array();
  forward.push_back(plan_of(own, Phases::forward));
  backward.push_back(plan_of(own, Phases::backward));
  for (const int degree : degrees_of(runs, pricer)) {
    DegreeChoice at = choice;
    at.forward = at.backward = degree;
    const Decision decision = search_.tune(runs, pricer, at).decision;
    if (degree != own.degree_forward) forward.push_back(plan_of(decision, Phases::forward));
    if (degree != own.degree_backward) backward.push_back(plan_of(decision, Phases::backward));
  }
  return {{"schedule", schedule.name},
          {"variant", runs.name},
          {"degree_forward", own.degree_forward},
          {"degree_backward", own.degree_backward},
          {"equal_degrees", runs.degrees == DegreePolicy::shared},
          {"forwards", forwards_of(pricer.outline())},
          {"memory", memory_json(memory)},
          {"works", prices.take_works()},
          {"prices", prices.take_prices()},
          {"forward", std::move(forward)},
          {"backward", std::move(backward)}};
}

}  // namespace moe::report
