#include "verbs/run/op_request.h"

#include <algorithm>
#include <optional>

#include "moe/device/gpu_settings.h"
#include "verbs/run/layer_plan.h"
#include "verbs/run/task_records.h"

namespace moe::verbs {
namespace {

// Leaves out cases that do not fit: each rank has the buffers of two ops, since one is timed beside another; threads
// share one GPU.
void leave_out_too_large(const Target& target, std::vector<measure::OpCase>& cases) {
  constexpr double kShareOfFree = 0.8;  // the rest is for workspaces, and what is in pieces
  World* processes = target.ranks.processes;
  auto left = static_cast<double>(free_gpu_bytes(processes ? processes->topology().local_rank : 0));
  if (processes)
    for (const auto& rank : gather(*processes, std::vector<std::vector<double>>{{left}}))
      left = std::min(left, rank.front());
  const double ranks = processes ? 1 : target.cluster.nodes * target.cluster.ranks_per_node;
  std::erase_if(cases, [&](const measure::OpCase& c) { return 2 * ranks * buffer_bytes(c) > kShareOfFree * left; });
}

// Returns a profile of the rows that measuring leaves, with prices that mean nothing.
Profile expected_profile(const Target& target, const OpRequest& request, const std::vector<LayerJob>& profiled_layers) {
  Profile expected = target.cluster;
  const auto add = [&](CommRow row) {
    row.alpha_s = 1e-6;
    row.beta_s_per_byte = 1e-9;
    expected.comm.push_back(std::move(row));
  };
  const auto add_gemm = [&](DType dtype) {
    expected.compute.push_back({.op = Op::gemm, .dtype = dtype, .alpha_s = 1e-6, .beta_s_per_flop = 1e-9});
  };
  for (const measure::OpCase& c : cases_of(target, request))
    if (c.op == Op::gemm)
      add_gemm(c.dtype);
    else if (c.op != Op::module)
      add({.op = c.op, .network = c.network, .ranks = c.ranks});
  for (const LayerJob& layer : profiled_layers) {
    for (CommRow& row : rows_of_tasks(layer)) add(std::move(row));
    add_gemm(layer.shape.layer.dtype);  // its computations have rows of their own
  }
  return expected;
}

}  // namespace

std::vector<measure::OpCase> cases_of(const Target& target, const OpRequest& request) {
  auto cases = target.emulated ? measure::emulated_cases(target.cluster, request.sizes)
                               : measure::real_cases(target.cluster, target.backend(), request.sizes,
                                                     target.ranks.device, request.sums);
  std::ranges::move(measure::module_cases(request.modules, target.cluster), std::back_inserter(cases));
  if (!target.emulated && target.ranks.device == DeviceKind::cuda) leave_out_too_large(target, cases);
  if (request.only.empty()) return cases;
  for (const Op op : request.only)
    require<BadInput>(std::ranges::find(cases, op, &measure::OpCase::op) != cases.end(),
                      "op {}: found nothing of it to time on {}, expected another op", name_of(op),
                      target.cluster.name);
  std::erase_if(cases, [&](const measure::OpCase& c) { return !request.only.contains(c.op); });
  return cases;
}

std::vector<std::pair<Network, measure::RankGroup>> groups_of_stages(const std::vector<LayerJob>& layers) {
  std::vector<std::pair<Network, measure::RankGroup>> sums;
  for (const LayerJob& layer : layers)
    for (const GroupKind kind : {GroupKind::dp, GroupKind::edp}) {
      const ParallelShape& parallel = layer.shape.parallel;
      const std::vector<int> ranks = members(parallel, kind, 0);
      if (parallel.pp == 1 || ranks.size() == 1) continue;
      sums.push_back({groups_of(parallel)[static_cast<size_t>(kind)].network,
                      {static_cast<int>(ranks.size()), ranks[1] - ranks[0]}});
    }
  return sums;
}

void require_prices(const Target& target, const OpRequest& request, const std::vector<LayerJob>& layers,
                    const std::vector<LayerJob>& profiled_layers) {
  const Profile expected = expected_profile(target, request, profiled_layers);
  std::optional<Unsupported> refusal;
  for (const LayerJob& layer : layers)
    for (const Schedule* schedule : layer.schedules) try {
        const Plan plan = plan_nominally(layer, *schedule, 1).run.plan;
        price(LayerPricer(expected, layer.shape, layer.pricing), plan);
        return;
      } catch (const Unsupported& error) {
        if (!refusal) refusal = error;
      }
  if (refusal) throw *refusal;
}

}  // namespace moe::verbs
