#include "tuner/verify/pick_layers.h"

#include <algorithm>
#include <map>
#include <string>

namespace moe {
namespace {

bool can_run(const SweepRow& row) {
  return row.status == CaseStatus::ok && row.shape.layer.ffn == Ffn::gpt && row.shape.layer.capacity_factor;
}

// "batch 1", "seq 256", ...: the values along which a grid varies.
std::vector<std::string> values_of(const LayerShape& l) {
  return {fmt::format("batch {}", l.batch),
          fmt::format("seq {}", l.seq),
          fmt::format("dim {}", l.model_dim),
          fmt::format("scale {:.3f}", static_cast<double>(l.hidden) / static_cast<double>(l.model_dim)),
          fmt::format("f {}", l.capacity_factor.value_or(0)),
          fmt::format("heads {}", l.heads)};
}

}  // namespace

std::vector<const SweepRow*> pick_layers(const std::vector<SweepRow>& rows, int count) {
  std::vector<const SweepRow*> open, picked;
  for (const SweepRow& row : rows)
    if (can_run(row)) open.push_back(&row);
  std::map<std::string, int> used;
  while (!open.empty() && picked.size() < static_cast<size_t>(count)) {
    const auto repeats = [&](const SweepRow* row) {
      int sum = 0;
      for (const std::string& value : values_of(row->shape.layer)) sum += used[value];
      return sum;
    };
    const auto next = std::ranges::min_element(open, {}, repeats);  // the first of the least
    for (const std::string& value : values_of((*next)->shape.layer)) ++used[value];
    picked.push_back(*next);
    open.erase(next);
  }
  std::ranges::sort(picked);  // they point into `rows`: grid order
  return picked;
}

}  // namespace moe
