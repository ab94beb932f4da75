// Prices a step mostly by derived rows: few profiles have any for groups of a whole stage, or for what the optimizer
// does.
#include "moe/cost/step_prices.h"

namespace moe::cost {

class StepPrices {
 public:
  explicit StepPrices(const LayerPricer& pricer) : pricer_(pricer), find_(pricer.rows_of_profile()) {}
  double seconds(TaskKind kind, const Work& work) const;

 private:
  std::optional<double> sum_seconds(GroupKind kind, double bytes) const;
  std::optional<double> derived_sum_seconds(GroupKind kind, double bytes) const;
  double touching_seconds(TaskKind kind, double bytes) const;
  double exchanged_seconds(const Work& work) const;
  double of_row(const CommRow& row, double bytes) const { return find_.curve_of(row, bytes).seconds(bytes); }
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
    case TaskKind::stage_weights:
      return pricer_.gathered_seconds(work) + find_.profile().task_overhead_s;
    case TaskKind::tied_gradient:
      return exchanged_seconds(work) + find_.profile().task_overhead_s;
    default:
      break;
  }
  const std::optional<double> seconds = sum_seconds(work.group, work.bytes);
  if (!seconds)
    note(fmt::format("not priced: {}, an allreduce over {} for which the profile has no rows", name_of(kind),
                     name_of(work.group)));
  return seconds.value_or(0) + find_.profile().task_overhead_s;
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

// Returns the seconds of an exchange between the first stage and the last one, both ways at once.
double StepPrices::exchanged_seconds(const Work& work) const {
  const Group ends{work.group, 2, pricer_.groups()[static_cast<size_t>(work.group)].network};
  const bool borrows = find_.options().nearest && find_.nearest_row(Op::sendrecv, ends) != nullptr;
  if (const CommRow* row = find_.comm_row(Op::sendrecv, ends)) return of_row(*row, work.bytes);
  if (borrows) return of_row(find_.comm_row_or_nearest(Op::sendrecv, ends), work.bytes);
  note("not priced: tied_gradient, a sendrecv for which the profile has no row");
  return 0;
}

// Returns the seconds of a sum over a group of that kind, by its row or by what other rows tell.
std::optional<double> StepPrices::sum_seconds(GroupKind kind, double bytes) const {
  const Group& group = pricer_.groups()[static_cast<size_t>(kind)];
  if (group.network == Network::none) return 0;
  if (const CommRow* row = find_.comm_row(Op::allreduce, group)) return of_row(*row, bytes);
  if (const std::optional<double> derived = derived_sum_seconds(kind, bytes)) return derived;
  const CommRow *scatter = find_.comm_row(Op::reducescatter, group), *gather = find_.comm_row(Op::allgather, group);
  if (scatter != nullptr && gather != nullptr) {
    note(fmt::format("derived: {} allreduce = reducescatter + allgather of the same volume", name_of(group.network)));
    return of_row(*scatter, bytes) + of_row(*gather, bytes);
  }
  if (!find_.options().nearest || find_.nearest_row(Op::allreduce, group) == nullptr) return std::nullopt;
  return of_row(find_.comm_row_or_nearest(Op::allreduce, group), bytes);
}

std::optional<double> StepPrices::derived_sum_seconds(GroupKind kind, double bytes) const {
  const auto& of = pricer_.groups();
  const auto one_after_other = [&](GroupKind first, GroupKind second) -> std::optional<double> {
    const std::optional<double> one = sum_seconds(first, bytes), other = sum_seconds(second, bytes);
    if (!one || !other) return std::nullopt;
    note(fmt::format("derived: allreduce over a {} = over {}, then over {}", name_of(kind), name_of(first),
                     name_of(second)));
    return *one + *other;
  };
  if (kind == GroupKind::stage) return one_after_other(GroupKind::mp, GroupKind::dp);
  if (kind == GroupKind::world) return one_after_other(GroupKind::stage, GroupKind::pp);
  if (kind == GroupKind::pp) {  // to the last stage and back
    const Group& pp = of[static_cast<size_t>(kind)];
    const CommRow* row = find_.comm_row(Op::sendrecv, {kind, 2, pp.network});
    if (row == nullptr) return std::nullopt;
    note("derived: allreduce over pp = sendrecv from stage to stage and back");
    return 2 * (pp.size - 1) * of_row(*row, bytes);
  }
  const Group &edp = of[static_cast<size_t>(GroupKind::edp)], &dp = of[static_cast<size_t>(GroupKind::dp)];
  if (kind != GroupKind::edp || dp.network != edp.network || dp.size < edp.size) return std::nullopt;
  const std::optional<double> over_dp = sum_seconds(GroupKind::dp, bytes);
  if (over_dp) note("derived: allreduce over edp = over dp, which has no fewer ranks");
  return over_dp;
}

}  // namespace moe::cost
