#include "regress/rule_study.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "moe/base/statistics.h"
#include "regress/gate.h"

namespace moe::regress {
namespace {

constexpr std::array<std::string_view, kGateRules> kStudied{"ours", "U-test", "ratio", "Welch"};
constexpr double kOthersLevel = 0.05, kOthersRatio = 1.05;

// Holds one gate's launches; `slowed`: the case whose head is slower by `log_slowdown`.
struct StudiedGate {
  const MachineNoise& noise;
  size_t cases = 0;
  uint64_t seed = 0, number = 0;
  size_t slowed = 0;
  double log_slowdown = 0;
  NoisyLaunches launches() const { return {noise, cases, seed, number}; }
};

// Returns whether a case is found slower by the rule; adds its pairs to `pairs`.
bool finds_slower(const StudiedGate& gate, const Rule& rule, int& pairs) {
  NoisyLaunches launches = gate.launches();
  const auto measure = [&](int, const std::vector<bool>&) {
    std::vector<Pair> measured(gate.cases);
    const bool head_first = launches.uniform() < 0.5;
    for (const bool head : {head_first, !head_first}) {
      const std::vector<double>& times = launches.next();
      for (size_t i = 0; i < gate.cases; ++i) (head ? measured[i].head : measured[i].base) = times[i];
    }
    if (gate.log_slowdown > 0) measured[gate.slowed].head += gate.log_slowdown;
    return measured;
  };
  const GateOutcome outcome = run_gate(gate.cases, rule, measure);
  pairs += outcome.pairs;
  if (gate.log_slowdown > 0) return outcome.judged[gate.slowed].verdict == Verdict::slower;
  return std::ranges::any_of(outcome.judged, [](const Judged& j) { return j.verdict == Verdict::slower; });
}

// Holds all launches of one arm, then all of the other.
struct Blocked {
  std::vector<std::vector<double>> base, head;  // [case][launch]
};

Blocked blocked_launches(const StudiedGate& gate) {
  NoisyLaunches launches = gate.launches();
  Blocked blocked{std::vector<std::vector<double>>(gate.cases), std::vector<std::vector<double>>(gate.cases)};
  for (auto* arm : {&blocked.base, &blocked.head})
    for (int n = 0; n < kBlockedLaunches; ++n) {
      const std::vector<double>& times = launches.next();
      for (size_t i = 0; i < gate.cases; ++i) (*arm)[i].push_back(times[i]);
    }
  if (gate.log_slowdown > 0)
    for (double& time : blocked.head[gate.slowed]) time += gate.log_slowdown;
  return blocked;
}

bool is_slower(GateRule rule, const std::vector<double>& base, const std::vector<double>& head) {
  const double ratio = std::exp(median(head) - median(base));
  if (rule == GateRule::ratio) return ratio > kOthersRatio;
  return ratio > 1 && (rule == GateRule::welch ? welch_p(base, head) : rank_sum_p(base, head)) <= kOthersLevel;
}

bool others_find(GateRule rule, const Blocked& blocked, bool any, size_t slowed) {
  for (size_t i = 0; i < blocked.base.size(); ++i)
    if ((any || i == slowed) && is_slower(rule, blocked.base[i], blocked.head[i])) return true;
  return false;
}

}  // namespace

std::string_view name_of(GateRule rule) { return kStudied[static_cast<size_t>(rule)]; }

std::vector<StudyRow> study_rules(const Rule& rule, size_t cases, int64_t gates, const std::vector<double>& slowdowns,
                                  uint64_t seed) {
  std::vector<StudyRow> rows;
  for (const MachineNoise& noise : machine_noises())
    for (const double slowdown : slowdowns) {
      std::array<StudyRow, kGateRules> of_rule;
      for (size_t r = 0; r < of_rule.size(); ++r) of_rule[r] = {noise.name, static_cast<GateRule>(r), slowdown, gates};
      int pairs = 0;
      for (int64_t gate = 0; gate < gates; ++gate) {
        const auto number = static_cast<uint64_t>(gate);
        const StudiedGate studied{
            noise, cases, seed, number, static_cast<size_t>(number) % cases, std::log1p(slowdown)};
        of_rule[0].found += finds_slower(studied, rule, pairs);
        const Blocked blocked = blocked_launches(studied);
        for (size_t r = 1; r < of_rule.size(); ++r)
          of_rule[r].found += others_find(static_cast<GateRule>(r), blocked, slowdown == 0, studied.slowed);
      }
      of_rule[0].pairs = static_cast<double>(pairs) / static_cast<double>(gates);
      for (size_t r = 1; r < of_rule.size(); ++r) of_rule[r].pairs = kBlockedLaunches;
      rows.insert(rows.end(), of_rule.begin(), of_rule.end());
    }
  return rows;
}

}  // namespace moe::regress
