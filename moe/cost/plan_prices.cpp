// What a pricer makes of a whole plan.
#include "moe/cost/pricer.h"

namespace moe {

void LayerPricer::price(const Structure& structure, const std::vector<GradientSlice>& slices,
                        std::vector<double>& seconds) const {
  seconds.resize(structure.classes.size());
  struct Pair {
    int chunks = 0;
    double longer = 0, shorter = 0;
  };
  std::array<std::array<Pair, kTaskKinds>, 2> known;  // chunks have one of two sizes: price each once
  for (size_t i = 0; i < seconds.size(); ++i) {
    const WorkClass& wc = structure.classes[i];
    if (sends_gradients(wc.kind)) {
      seconds[i] = gradient_seconds(slices[static_cast<size_t>(wc.slice)].bytes(), wc.kind);
    } else if (!is_chunked(wc.kind)) {
      seconds[i] = dense_seconds(wc.kind, wc.phase, structure.flow);
    } else {
      Pair& pair = known[static_cast<size_t>(wc.phase)][static_cast<size_t>(wc.kind)];
      if (pair.chunks != wc.chunks) {
        pair = {wc.chunks, part_seconds(wc, structure.flow, 1), part_seconds(wc, structure.flow, 0)};
      }
      seconds[i] = wc.chunk < rows_ % wc.chunks ? pair.longer : pair.shorter;
    }
  }
}

// One of `wc.chunks` parts, of `more` rows more than the shortest. Parts that are not cut by rows are equal; SAA's
// exchanges together cost one AlltoAll.
double LayerPricer::part_seconds(const WorkClass& wc, Flow flow, int more) const {
  const bool exact = shape_.rounding == Rounding::exact;
  const double rows = exact ? exact_rows_ : static_cast<double>(rows_);
  if (wc.kind == TaskKind::exchange) {
    const Curve& c = curve(flow, wc.kind, wc.phase);
    return c.price.seconds(rows * c.unit) / wc.chunks + profile_.task_overhead_s;
  }
  if (exact || traits_of(flow).home_by_peers) return chunk_seconds(wc.kind, wc.phase, rows / wc.chunks, flow);
  return chunk_seconds(wc.kind, wc.phase, static_cast<double>(rows_ / wc.chunks + more), flow);
}

std::string weak_rows(const std::set<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes)
    if (note.starts_with(kWeakRow)) text += (text.empty() ? "" : "; ") + note.substr(kWeakRow.size());
  return text;
}

std::vector<double> price(const LayerPricer& pricer, const Plan& plan) {
  std::vector<double> seconds;
  if (plan.shape == pricer.shape())
    pricer.price(*plan.structure, plan.slices, seconds);
  else  // with experts packed
    LayerPricer(pricer.profile(), plan.shape, pricer.options()).price(*plan.structure, plan.slices, seconds);
  for (size_t i = 0; i < seconds.size(); ++i)
    if (is_end(plan.structure->classes[i].kind)) seconds[i] = pricer.end_seconds(plan.works[i]);
  return seconds;
}

}  // namespace moe
