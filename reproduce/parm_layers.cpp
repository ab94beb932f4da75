#include "reproduce/parm_layers.h"

#include <array>

#include "moe/base/check.h"
#include "moe/plan/grid.h"
#include "moe/plan/memory.h"
#include "moe/search/layer_search.h"
#include "reproduce/priced.h"
#include "reproduce/printed_rows.h"

namespace moe::reproduce {
namespace {

constexpr std::array<std::string_view, 5> kSchedules{kParmBaseline, "parm-s1", "parm-s2-aas", "parm-s2", "parm"};

// Returns whether the layer fits its GPUs' memory under the baseline, which the paper ran too.
bool fits(const LayerCase& shape, double capacity_bytes) {
  MemoryRequest request;
  request.shape = shape;
  request.dense_part = false;
  request.flow = Flow::replicated;
  return !misfit(estimate_memory(request), capacity_bytes);
}

const std::vector<TaskKind> kLeftOut{TaskKind::attention, TaskKind::mp_allreduce, TaskKind::gradient};

// Returns what a computation of the baseline's layer takes; it runs in sequence.
double computation_seconds(const Profile& profile, const LayerCase& shape, const LayerResult& tuned) {
  const auto counted = [](const WorkClass& c) { return c.kind == TaskKind::gate || c.kind == TaskKind::expert; };
  return seconds_counting(counted, find_schedule(kParmBaseline), LayerPricer(profile, shape), tuned.decision);
}

// Prices the layer; returns whether every row is there.
bool price_layer(LayerSearch& search, const Profile& profile, const Assumptions* assumed, ParmLayer& layer,
                 std::set<std::string>& missing) {
  const LayerCase& shape = layer.shape;
  for (const std::string_view schedule : kSchedules) {
    const auto tuned = tuned_from_print(search, schedule, {profile, assumed, missing}, shape);
    if (!tuned) return false;
    layer.seconds[schedule] = seconds_without(kLeftOut, schedule, profile, shape, *tuned);
    if (schedule == kParmBaseline)
      layer.communication_s = layer.seconds[schedule] - computation_seconds(profile, shape, *tuned);
  }
  return true;
}

}  // namespace

Profile parm_cluster(std::string_view testbed) {
  const bool a = testbed == "testbed-a";
  Profile profile;
  profile.name = a ? "parm-a" : "parm-b";
  profile.nodes = a ? 1 : 8;
  profile.ranks_per_node = a ? 8 : 4;
  for (const PrintedCoefficient& row : printed_parm_coefficients())
    for (const int ranks : {2, 4}) {
      if (row.testbed != testbed) continue;
      CommRow gather;
      gather.op = Op::allgather;
      gather.network = Network::intra;
      gather.ranks = ranks;
      gather.alpha_s = row.alpha_s;
      gather.beta_s_per_byte = row.beta_s_per_element / bytes_of(DType::float32);
      profile.comm.push_back(gather);
    }
  return profile;
}

std::vector<ParmLayer> parm_layers(std::string_view testbed, const Assumptions* assumed,
                                   std::set<std::string>& missing) {
  const Profile profile = with_assumed(parm_cluster(testbed), assumed);
  const Grid grid = find_grid(profile.name);
  std::vector<ParmLayer> layers;
  LayerSearch search;
  for (const GridLayer& configured : grid.layers) {
    const LayerCase shape = complete(configured.shape, *configured.parallel, grid.rounding);
    if (!fits(shape, grid.memory_bytes.value_or(0))) continue;
    ParmLayer& layer = layers.emplace_back();
    layer.shape = shape;
    if (!price_layer(search, profile, assumed, layer, missing)) return {};
  }
  return layers;
}

}  // namespace moe::reproduce
