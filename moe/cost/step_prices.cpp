// Prices a step mostly by derived rows: few profiles have any for groups of a whole stage, or for what the optimizer
// does.
#include "moe/cost/step_prices.h"

namespace moe::cost {

class StepPrices {
 public:
  explicit StepPrices(const LayerPricer& pricer) : pricer_(pricer), find_(pricer.rows_of_profile()) {}
  double seconds(TaskKind kind, const Work& work) const;

 private:
  double touching_seconds(TaskKind kind, double bytes) const;
  double collective_seconds(TaskKind kind, const Work& work) const;
  void note(std::string text) const { find_.note(std::move(text)); }

  const LayerPricer& pricer_;
  const RowFinder& find_;
};

double step_seconds(const LayerPricer& pricer, TaskKind kind, const Work& work) {
  return StepPrices(pricer).seconds(kind, work);
}

double StepPrices::seconds(TaskKind kind, const Work& work) const {
  if (work.op == Op::none) return 0;
  switch (kind) {
    case TaskKind::optimizer:
    case TaskKind::squares:
      return touching_seconds(kind, work.bytes) + find_.profile().task_overhead_s;
    case TaskKind::weights:
    case TaskKind::expert_weights:
      return pricer_.dense_seconds(kind, Phase::backward);
    default:
      return collective_seconds(kind, work) + find_.profile().task_overhead_s;
  }
}

// Returns the seconds by a row of the task itself, or of copying what it reads and writes.
double StepPrices::touching_seconds(TaskKind kind, double bytes) const {
  if (bytes == 0) return 0;
  for (const TaskRow& row : find_.profile().tasks) {
    if (row.name != name_of(kind) || row.phase != Phase::step || row.dtype != find_.shape().layer.dtype) continue;
    const TermValues terms = touching_terms(kind, bytes);
    for (const std::string& range : range_notes(row, terms)) note(range);
    return dot(find_.used(row).s_per, terms);
  }
  if (const ComputeRow* row = find_.copy_row()) {
    note(fmt::format("derived: {} = a copy of what it reads and writes", name_of(kind)));
    return row->alpha_s + bytes * row->beta_s_per_byte;
  }
  note(fmt::format("not priced: {}, for which the profile has no row and none of copies", name_of(kind)));
  return 0;
}

// Returns the seconds by a row or a rule, or none and a note.
double StepPrices::collective_seconds(TaskKind kind, const Work& work) const {
  if (const auto curve = pricer_.collective(work.op, work.group, work.bytes)) return curve->seconds(work.bytes);
  find_.note(fmt::format("not priced: {}, {} {} over {} for which the profile has no rows", name_of(kind),
                         work.op == Op::allreduce || work.op == Op::allgather ? "an" : "a", name_of(work.op),
                         name_of(work.group)));
  return 0;
}

}  // namespace moe::cost
