// The papers' closed forms against the replay of the structures, for random times: MoNTA's Algorithms 1 and 2 and
// Eq. 11, Parm's Eqs. 1, 7 and 11, the phases of SAA. What a task takes is set by kind here, or priced by hand.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <stdexcept>

#include "moe/base/random.h"
#include "moe/search/layer_search.h"
#include "moe/simulator/simulator.h"
#include "tests/properties/cases.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

using conformance::full_layer;
using random_layer::RandomLayer;
using Times = std::map<TaskKind, double>;

// AlltoAll between nodes, MP and ESP inside them.
constexpr std::array<Network, kGroupKinds> kNetworks{Network::none,  Network::inter, Network::intra, Network::intra,
                                                     Network::inter, Network::none,  Network::inter, Network::none};

class Replayed {
 public:
  Replayed(std::string_view schedule, int degree, int peers, const Times& times)
      : structure_(build_structure(
            {&find_schedule(schedule), Phases::forward, degree, degree, {}, {}, {}, kNetworks, peers})) {
    std::vector<double> seconds;
    for (const Task& task : structure_->tasks) {
      const auto found = times.find(task.kind);
      seconds.push_back(found == times.end() ? 0 : found->second);
    }
    timeline_ = simulate(*structure_, seconds);
  }
  double start(TaskKind kind) const {
    double first = timeline_.makespan_s;
    for (const Task& task : structure_->tasks)
      if (task.kind == kind) first = std::min(first, timeline_.start_s[task.id]);
    return first;
  }
  double end(TaskKind kind) const {
    double last = 0;
    for (const Task& task : structure_->tasks)
      if (task.kind == kind) last = std::max(last, timeline_.end_s[task.id]);
    return last;
  }

 private:
  std::shared_ptr<const Structure> structure_;
  Timeline timeline_;
};

double draw(uint64_t seed, uint64_t index) { return 1e-5 * std::pow(10, 3 * random_uniform(seed, 5, index)); }

// The dispatch chain ends where the expert starts; the chain home begins where the partial sums are reduced.
void expect_chains(std::string_view schedule, int n, const Times& times, double closed_form, uint64_t seed) {
  const Replayed replayed(schedule, n, 1, times);
  const double from = replayed.start(TaskKind::dispatch), home = replayed.end(TaskKind::reducescatter);
  ASSERT_NEAR(replayed.start(TaskKind::expert) - from, closed_form, 1e-12 * closed_form)
      << schedule << ", dispatch in " << n << " chunks, seed " << seed;
  ASSERT_NEAR(replayed.start(TaskKind::i_order) - home, closed_form, 1e-9 * closed_form)
      << schedule << ", combine in " << n << " chunks, seed " << seed;
}

TEST(Monta, ClosedFormsAreTheReplay) {
  int copies_bind = 0;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    const double aa = draw(seed, 0), ag = draw(seed, 1), d2d = draw(seed, 2);
    const int n = 2 + static_cast<int>(seed % 9);
    const Times times{{TaskKind::dispatch, aa}, {TaskKind::combine, aa},        {TaskKind::allgather, ag},
                      {TaskKind::gather, ag},   {TaskKind::copy, d2d},          {TaskKind::home_copy, d2d},
                      {TaskKind::expert, 1e-4}, {TaskKind::reducescatter, 2e-4}};
    expect_chains("monta-o1", 1, times, aa + ag, seed);  // Eq. 11
    expect_chains("monta-o2", 1, times, aa + ag, seed);  // one chunk needs no copy
    expect_chains("monta-o3", 1, times, aa + ag, seed);
    expect_chains("monta-o2", n, times, aa < ag + d2d ? aa + n * (ag + d2d) : n * aa + ag + d2d, seed);
    // Algorithm 2 has no case in which the copies bind: they run one after the other all the same.
    const bool bind = d2d > std::max(aa, ag);
    copies_bind += bind;
    expect_chains("monta-o3", n, times,
                  bind      ? aa + ag + n * d2d
                  : aa < ag ? aa + n * ag + d2d
                            : n * aa + ag + d2d,
                  seed);
    if (HasFailure()) return;
  }
  EXPECT_GT(copies_bind, 200);
}

TEST(Monta, BaselineIsASequence) {
  const Times times{
      {TaskKind::dispatch, 3e-4}, {TaskKind::expert, 5e-4}, {TaskKind::allreduce, 7e-4}, {TaskKind::combine, 3e-4}};
  const Replayed replayed("monta-baseline", 1, 1, times);
  EXPECT_NEAR(replayed.end(TaskKind::combine) - replayed.start(TaskKind::dispatch), 18e-4, 1e-15);
}

// The phases by a table of who has passed where: exchanges in turn on one network, sums and gathers as slices come.
TEST(Saa, PhasesOverlapAndTheirExchangesAreOneAlltoAll) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const int peers = 1 + static_cast<int>(seed % 8);
    const double exchange = draw(seed, 0), sum = draw(seed, 1), gather = draw(seed, 2);
    const Times times{{TaskKind::dispatch, 1e-4},
                      {TaskKind::expert, 2e-4},
                      {TaskKind::exchange, exchange},
                      {TaskKind::sum, sum},
                      {TaskKind::gather, gather}};
    const Replayed replayed("parm-s2", 1, peers, times);
    double exchanged = replayed.end(TaskKind::expert), summed = 0, gathered = 0;
    for (int peer = 0; peer < peers; ++peer) {
      exchanged += exchange;
      summed = std::max(summed, exchanged) + sum;
      gathered = std::max(gathered, summed) + gather;
    }
    ASSERT_NEAR(replayed.end(TaskKind::exchange), exchanged, 1e-15) << "seed " << seed;
    ASSERT_NEAR(replayed.end(TaskKind::gather), gathered, 1e-15) << "seed " << seed;
    const double most = std::max({exchange, sum, gather}), begin = replayed.end(TaskKind::expert);
    ASSERT_NEAR(gathered - begin, exchange + sum + gather + (peers - 1) * most, 1e-12) << "seed " << seed;
  }
}

const CommRow* find_row(const Profile& profile, Op op, const Group& group) {
  for (const CommRow& r : profile.comm)
    if (r.op == op && r.network == group.network && r.ranks == group.size) return &r;
  return nullptr;
}

// alpha + n beta of a group, by hand; nothing over one rank.
class ByHand {
 public:
  explicit ByHand(const RandomLayer& layer)
      : layer_(layer), groups_(groups_of(layer.shape.parallel)), t_rank_(capacity_rows(layer.shape)) {
    const LayerShape& l = layer.shape.layer;
    if (layer.shape.rounding == Rounding::exact) t_rank_ = capacity_exact(layer.shape);
    n_ = 4 * t_rank_ * static_cast<double>(l.experts * l.model_dim);
    blm_ = 4.0 * static_cast<double>(l.batch * l.seq * l.model_dim);
  }
  double comm(Op op, GroupKind kind, double bytes) const {
    const Group& group = groups_[kind];
    if (group.size == 1) return 0;
    const CommRow* r = find_row(layer_.profile, op, group);
    if (r == nullptr && op == Op::allreduce && group.network == Network::intra)  // derived
      return comm(Op::reducescatter, kind, bytes) + comm(Op::allgather, kind, bytes) - layer_.profile.task_overhead_s;
    if (r == nullptr) throw std::runtime_error(fmt::format("no {} row: {}", name_of(op), layer_.text));
    return r->alpha_s + bytes * r->beta_s_per_byte + layer_.profile.task_overhead_s;
  }
  /// Parm Eq. 4: as EP's, of the same volume.
  double fused_alltoall(double bytes) const {
    if (groups_[GroupKind::ep_esp].size == 1) return 0;
    const bool ep = groups_[GroupKind::ep].size > 1;
    return comm(Op::alltoall, ep ? GroupKind::ep : GroupKind::ep_esp, bytes);
  }
  double expert(double copies) const {
    const LayerShape& l = layer_.shape.layer;
    const ComputeRow& gemm = layer_.profile.compute[0];
    const int g = l.ffn == Ffn::gpt ? 2 : 3;
    const double macs = g * n_ / 4 * static_cast<double>(l.hidden) * copies;
    return g * gemm.alpha_s + 2 * macs * gemm.beta_s_per_flop + layer_.profile.task_overhead_s;
  }
  double copy(double bytes) const {
    const ComputeRow& r = layer_.profile.compute[1];
    return r.alpha_s + bytes * r.beta_s_per_byte + layer_.profile.task_overhead_s;
  }
  double n() const { return n_; }
  double blm() const { return blm_; }
  const Group& group(GroupKind kind) const { return groups_[kind]; }

 private:
  const RandomLayer& layer_;
  Groups groups_;
  double t_rank_, n_ = 0, blm_ = 0;
};

// First start of a chunked task to the last end, of the schedules that have one chunk: sums of priced operations.
TEST(Sequences, TakeTheSumOfTheirOperations) {
  LayerSearch search;
  std::map<std::string_view, int> compared;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    const RandomLayer layer = full_layer(seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    const ByHand by(layer);
    const double mp = layer.shape.parallel.mp, esp = layer.shape.parallel.esp, n = by.n(), etm = n * mp;
    const double fused = by.fused_alltoall(etm * esp / mp), gather = by.comm(Op::allgather, GroupKind::mp, etm);
    const double sum = esp > 1 ? by.copy(etm * esp / mp) : 0;
    const auto a2a = [&](double bytes) { return by.comm(Op::alltoall, GroupKind::ep, bytes); };
    const std::map<std::string_view, double> expected{
        {"ds-moe", 2 * a2a(n) + by.comm(Op::allgather, GroupKind::esp, n * esp) + by.expert(1) +
                       by.comm(Op::reducescatter, GroupKind::esp, n * esp)},
        {"ds-moe-replicated",
         2 * a2a(etm * esp) + by.expert(mp) + by.comm(Op::allreduce, GroupKind::esp, etm * esp)},  // Eq. 1
        {"parm-s1", 2 * fused + by.expert(1) + sum},
        {"parm-s2-aas", 2 * fused + by.expert(1) + sum + gather},
        {"monta-baseline", 2 * a2a(etm) + by.expert(1) + by.comm(Op::allreduce, GroupKind::esp, etm)},
        {"monta-o1", 2 * (a2a(etm / mp) + gather) + by.expert(1) + by.comm(Op::reducescatter, GroupKind::esp, etm)}};
    for (const auto& [name, seconds] : expected) {
      const Schedule& schedule = find_schedule(name);
      if (!any_decision::fits(schedule, layer.shape)) continue;
      const LayerResult result = search.evaluate(schedule, pricer, {});
      ASSERT_NEAR(result.moe_forward_s, seconds, 1e-9 * result.total_s()) << name << ", " << layer.text;
      ++compared[name];
    }
  }
  EXPECT_EQ(compared.size(), 6u);
}

// Nothing runs beside anything: both phases take the sum of all their tasks, gradients included.
TEST(Sequences, OverlapNothing) {
  LayerSearch search;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const RandomLayer layer = full_layer(seed);
    const LayerPricer pricer(layer.profile, layer.shape);
    for (const char* name : {"ds-moe", "ds-moe-replicated", "parm-s1", "parm-s2-aas", "monta-baseline", "monta-o1"}) {
      const Schedule& schedule = find_schedule(name);
      if (!any_decision::fits(schedule, layer.shape)) continue;
      const Plan plan = build_plan(schedule, layer.shape, {});
      const std::vector<double> seconds = price(pricer, plan);
      double sum = 0;
      for (const Task& task : plan.tasks()) sum += seconds[task.id];
      const double total = search.tune(schedule, pricer).total_s();
      ASSERT_NEAR(total, sum, 1e-12 * sum) << name << ", " << layer.text;
    }
  }
}

// t_D1 <= t_D2 (Parm's Algorithm 1), D2's overlap measured (row saa) or replayed: the phases by hand. Where the phases
// count their sums over ESP, D1 counts its own too. The row is of N_MP = N_ESP = ranks of a node; others are replayed.
TEST(Parm, ChoosesByItsCostModel) {
  LayerSearch search;
  std::map<std::pair<bool, bool>, int> chosen;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    RandomLayer layer = full_layer(seed);
    if (seed % 3 == 0) layer.profile.compute[1].beta_s_per_byte *= 0.01;  // so that sums hide too
    const bool has_row = seed % 2 == 0;
    const bool measured = has_row && layer.shape.parallel.mp == layer.shape.parallel.ranks_per_node &&
                          layer.shape.parallel.esp == layer.shape.parallel.mp;
    const ByHand by(layer);
    const Group both = by.group(GroupKind::ep_esp);
    const double mp = layer.shape.parallel.mp, esp = layer.shape.parallel.esp, etm = by.n() * mp;
    const double y = etm * esp, fused = by.fused_alltoall(y / mp);
    CommRow saa;
    saa.op = Op::saa;
    saa.network = both.network;
    saa.ranks = both.size;
    saa.alpha_s = draw(seed, 8);
    saa.beta_s_per_byte = (fused + by.comm(Op::allgather, GroupKind::mp, etm)) * random_uniform(seed, 5, 9) / (y / mp);
    if (has_row && both.size > 1) layer.profile.comm.push_back(saa);
    const int peers = layer.shape.parallel.ep;
    const double overhead = layer.profile.task_overhead_s;
    const bool exchanges = both.size > 1, gathers = mp > 1, shared = both.network == by.group(GroupKind::mp).network;
    double exchanged = 0, summed = 0, gathered = 0;
    for (int peer = 0; peer < peers; ++peer) {  // on one network a gather goes before the next exchange
      if (exchanges)
        exchanged = (shared ? std::max(exchanged, gathered) : exchanged) + (fused - overhead) / peers + overhead;
      summed = esp > 1 ? std::max(summed, exchanged) + by.copy(y / mp / peers) : exchanged;
      gathered = gathers ? std::max(gathered, summed) + by.comm(Op::allgather, GroupKind::mp, etm / peers) : summed;
    }
    const double overlap = measured && exchanges ? saa.alpha_s + y / mp * saa.beta_s_per_byte : gathered;
    const double sum = (measured && exchanges) || esp == 1 ? 0 : by.copy(y / mp);
    const double d1 = 2 * fused + sum + by.comm(Op::allgather, GroupKind::mp, by.blm()), d2 = fused + overlap;
    if (std::abs(d1 - d2) <= 1e-9 * d1) continue;
    const LayerPricer pricer(layer.profile, layer.shape);
    const LayerResult result = search.tune(find_schedule("parm"), pricer);
    ASSERT_EQ(result.decision.variant->name, d1 < d2 ? "parm-s1" : "parm-s2")
        << "t_D1 " << d1 << ", t_D2 " << d2 << ", " << layer.text;
    ASSERT_EQ(result.total_s(), search.tune(*result.decision.variant, pricer).total_s());
    ++chosen[{measured, d1 < d2}];
  }
  for (const auto& [which, count] : chosen)
    fmt::print("{}: {} layers take {}\n", which.first ? "saa measured" : "saa replayed", count,
               which.second ? "S1" : "S2");
  EXPECT_EQ(chosen.size(), 4u);
}

}  // namespace
}  // namespace moe
