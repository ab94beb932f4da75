#include "tuner/verify/pick_layers.h"

#include <algorithm>

namespace moe {

std::vector<const SweepRow*> pick_layers(const std::vector<SweepRow>& rows, int count) {
  std::vector<const SweepRow*> can_run, picked;
  for (const SweepRow& row : rows)
    if (row.status == CaseStatus::ok && row.shape.layer.ffn == Ffn::gpt && row.shape.layer.capacity_factor)
      can_run.push_back(&row);
  const size_t n = std::min(can_run.size(), static_cast<size_t>(count));
  // The middle of n equal parts, so that neither end of the grid is preferred.
  for (size_t i = 0; i < n; ++i) picked.push_back(can_run[(2 * i + 1) * can_run.size() / (2 * n)]);
  return picked;
}

}  // namespace moe
