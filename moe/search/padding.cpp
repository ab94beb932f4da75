#include "moe/search/padding.h"

#include <algorithm>
#include <limits>
#include <set>

namespace moe::search {
namespace {

/// Calls body(r_f, r_b) for every pair that schedule, choice and the rows of `pricer` allow.
template <class Body>
void for_each_pair(const Schedule& schedule, const LayerPricer& pricer, const DegreeChoice& choice, Body body) {
  for (const int forward : tried_degrees(choice.forward, pricer))
    for (const int backward : tried_degrees(choice.backward, pricer))
      if (schedule.degrees == DegreePolicy::apart || forward == backward) body(forward, backward);
}

int64_t rows_of(const LayerCase& shape, int forward, int backward) {
  return padded_rows(decided_case(shape, {forward, backward}));
}

LayerPricer with_rows(const LayerPricer& pricer, int64_t rows) {
  LayerCase padded = pricer.shape();
  padded.row_multiple = rows;
  return {pricer.profile(), padded, pricer.options()};
}

// Returns the least that any degrees take, each phase by itself.
double least_of_degrees(LayerReplay layer, const DegreeChoice& choice) {
  const auto least = [&](int fixed, Phase phase) {
    const PhaseBound bound = layer.bound(phase);
    double seconds = std::numeric_limits<double>::max();
    for (const int r : tried_degrees(fixed, layer.pricer)) seconds = std::min(seconds, bound.at(r).seconds);
    return seconds;
  };
  return least(choice.forward, Phase::forward) + least(choice.backward, Phase::backward);
}

}  // namespace

// For every number of rows to which a pair pads, all degrees that divide it are tried as without padding, each phase by
// itself, the least bound first. A pair that needs fewer rows than it had there has its turn with those; it wins with
// more only where a measured curve falls, and then the pairs that do need as many are tried one by one.
LayerResult tune_padded(LayerReplay layer, const DegreeChoice& choice) {
  const Schedule& schedule = layer.schedule;
  const LayerPricer& pricer = layer.pricer;
  std::optional<LayerResult> best;
  std::set<std::string> notes;
  double least_s = std::numeric_limits<double>::max();
  bool exact = true;
  for (const DegreeChoice& sized : sized_choices(schedule, pricer, choice)) {
    std::set<int64_t> wanted;
    for_each_pair(schedule, pricer, sized, [&](int f, int b) { wanted.insert(rows_of(pricer.shape(), f, b)); });
    std::vector<std::pair<double, int64_t>> order;
    for (const int64_t rows : wanted) {
      const LayerPricer padded = with_rows(pricer, rows);
      order.emplace_back(least_of_degrees({schedule, padded, layer.store}, sized), rows);
    }
    std::ranges::sort(order);
    for (const auto& [bound_s, rows] : order) {
      if (best && !better(bound_s, best->total_s())) break;
      const LayerPricer padded = with_rows(pricer, rows);
      const auto keep = [&](const LayerResult& result) {
        if (best && !better(result.total_s(), best->total_s())) return;
        best = result;
        notes = padded.notes();
      };
      const LayerResult any = tune_degrees({schedule, padded, layer.store}, sized);
      least_s = std::min(least_s, any.total_s() / (1 + any.gap));
      exact = exact && any.exact_order;
      if (rows_of(pricer.shape(), any.decision.degree_forward, any.decision.degree_backward) == rows) {
        keep(any);
      } else if (!best || better(any.total_s(), best->total_s())) {
        for_each_pair(schedule, padded, sized, [&](int f, int b) {
          if (rows_of(pricer.shape(), f, b) != rows) return;
          if (f > 1 && too_small(schedule, padded, f, sized.min_chunk_bytes)) return;
          DegreeChoice both = sized;
          both.forward = f, both.backward = b;
          keep(tune_degrees({schedule, padded, layer.store}, both));
        });
      }
    }
  }
  for (const std::string& note : notes) pricer.note(note);
  best->exact_order = exact;
  if (!exact) best->gap = std::max(0.0, best->total_s() / least_s - 1);
  return *best;
}

}  // namespace moe::search
