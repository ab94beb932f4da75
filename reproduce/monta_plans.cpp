#include "reproduce/monta_plans.h"

#include <algorithm>

#include "moe/base/check.h"
#include "moe/plan/model_file.h"
#include "moe/search/layer_search.h"
#include "reproduce/priced.h"

namespace moe::reproduce {
namespace {

constexpr std::string_view kA800 = "a800", kModel = "moe-2x70b";
constexpr int kThousand = 1024;  // as sequence lengths count

LayerCase layer_of(const Profile& profile, int thousand_tokens) {
  Model model = find_model(std::string(kModel));
  model.layer.seq = int64_t{thousand_tokens} * kThousand;
  model.parallel.nodes = profile.nodes;
  model.parallel.ranks_per_node = profile.ranks_per_node;
  return complete(model.layer, model.parallel, Rounding::ragged);
}

// Returns whether a task of either phase exchanges; what lays a chunk out anew belongs to its exchange.
bool is_exchange(TaskKind kind) {
  constexpr std::array kKinds{TaskKind::dispatch, TaskKind::allgather, TaskKind::copy,
                              TaskKind::combine,  TaskKind::gather,    TaskKind::home_copy};
  return std::ranges::find(kKinds, kind) != kKinds.end();
}

bool is_way_out(const WorkClass& c) {
  return c.phase == Phase::forward &&
         (c.kind == TaskKind::dispatch || c.kind == TaskKind::allgather || c.kind == TaskKind::copy);
}

}  // namespace

Profile monta_cluster(const Assumptions* assumed) {
  Profile profile = find_profile(std::string(kA800));
  profile.contention = {};
  return with_assumed(std::move(profile), assumed);
}

std::string_view schedule_of(MontaStrategy strategy) {
  static constexpr std::array<std::string_view, 4> kNames{"monta-baseline", "monta-o1", "monta-o2", "monta-o3"};
  return kNames[static_cast<size_t>(strategy)];
}

MontaExperts monta_experts(const Profile& profile) {
  constexpr double kAdamBytes = 16;  // of a parameter: weight, gradient, master weight, two moments
  const Model model = find_model(std::string(kModel));
  const LayerShape& l = model.layer;
  const auto parameters = static_cast<double>(model.layers * l.experts * gemms_of(l.ffn) * l.model_dim * l.hidden);
  return {kAdamBytes * parameters / (profile.nodes * profile.ranks_per_node), model.layers};
}

MontaLayer::MontaLayer(const Profile& profile, int thousand_tokens)
    : pricer_(profile, layer_of(profile, thousand_tokens)) {}

double MontaLayer::bytes() const {
  return whole_work(TaskKind::dispatch, Phase::forward, pricer_.shape(), Flow::tensor).bytes;
}

Decision MontaLayer::decision(MontaStrategy strategy, int chunks) const {
  if (strategy == MontaStrategy::baseline || strategy == MontaStrategy::o1) chunks = 1;
  return {chunks, chunks};
}

double MontaLayer::exchange_s(MontaStrategy strategy, int chunks) const {
  return seconds_counting(is_way_out, find_schedule(schedule_of(strategy)), pricer_, decision(strategy, chunks));
}

MontaStep MontaLayer::step(MontaStrategy strategy, int chunks) const {
  const Schedule& schedule = find_schedule(schedule_of(strategy));
  const Decision d = decision(strategy, chunks);
  const auto no_gradients = [](const WorkClass& c) { return c.kind != TaskKind::gradient; };
  const auto the_rest = [&](const WorkClass& c) { return no_gradients(c) && !is_exchange(c.kind); };
  MontaStep step;
  step.seconds = seconds_counting(no_gradients, schedule, pricer_, d);
  step.exchange_s = step.seconds - seconds_counting(the_rest, schedule, pricer_, d);
  for (const Work& work : build_plan(schedule, pricer_.shape(), d).works) step.flops += work.flops;
  return step;
}

Decision MontaLayer::choice() const {
  LayerSearch search;
  return search.tune(find_schedule("monta"), pricer_).decision;
}

MontaStrategy least_exchange(const MontaLayer& layer, int chunks) {
  return *std::ranges::min_element(kMontaStrategies, {}, [&](MontaStrategy s) { return layer.exchange_s(s, chunks); });
}

}  // namespace moe::reproduce
