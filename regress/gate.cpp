#include "regress/gate.h"

#include <cmath>

namespace moe::regress {
namespace {

void add(const std::vector<Pair>& measured, const std::vector<bool>& wanted, std::vector<Pair> Evidence::*stage,
         std::vector<Evidence>& evidence) {
  for (size_t i = 0; i < measured.size(); ++i)
    if (wanted[i] && std::isfinite(measured[i].log_ratio())) (evidence[i].*stage).push_back(measured[i]);
}

}  // namespace

GateOutcome run_gate(size_t cases, const Rule& rule, const MeasurePair& measure, const TellSecond& tell) {
  GateOutcome out;
  out.evidence.resize(cases);
  const std::vector<bool> all(cases, true);
  while (out.pairs < rule.first_pairs) add(measure(out.pairs++, all), all, &Evidence::first, out.evidence);
  std::vector<bool> suspects;
  std::vector<std::vector<Pair>> first_of_suspects;
  for (const Evidence& evidence : out.evidence) {
    suspects.push_back(is_suspect(evidence.first, rule));
    if (suspects.back()) first_of_suspects.push_back(evidence.first);
  }
  const int more = fresh_pairs(first_of_suspects, rule);
  if (more > 0 && tell) tell(more, suspects);
  for (int i = 0; i < more; ++i) add(measure(out.pairs++, suspects), suspects, &Evidence::second, out.evidence);
  out.judged = judge(out.evidence, rule);
  return out;
}

}  // namespace moe::regress
