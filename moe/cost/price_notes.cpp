#include "moe/cost/price_notes.h"

#include <algorithm>
#include <fmt/format.h>

#include "moe/plan/volumes.h"

namespace moe {
namespace {

constexpr double kRangeMargin = 0.8;  // a term so far below the least measured, or above the most, is said

}  // namespace

std::string weak_rows(const std::set<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes)
    if (note.starts_with(kWeakRow)) text += (text.empty() ? "" : "; ") + note.substr(kWeakRow.size());
  return text;
}

std::string why_unusable(const Profile& profile, const std::string& row) {
  for (const UnusableRow& unusable : profile.unusable)
    if (unusable.row == row) return fmt::format(": measured, but {}", unusable.reason);
  return {};
}

std::optional<std::string> range_note(const CommRow& row, double bytes) {
  const auto& range = row.range_bytes;
  if (!range || (bytes >= (*range)[0] && bytes <= (*range)[1])) return std::nullopt;
  return fmt::format("outside the fitted range: {} of {} (fitted {} to {})", name_of(row.op), human_bytes(bytes),
                     human_bytes((*range)[0]), human_bytes((*range)[1]));
}

std::optional<std::string> range_note(const ModuleRow& row, double size) {
  const auto& range = row.range;
  if (!range || (size >= (*range)[0] && size <= (*range)[1])) return std::nullopt;
  return fmt::format("outside the fitted range: {} {} of {:.3g} (fitted {:.3g} to {:.3g})", row.name,
                     name_of(row.phase), size, (*range)[0], (*range)[1]);
}

std::set<std::string> range_notes(const TaskRow& row, const TermValues& task) {
  std::set<std::string> notes;
  for (size_t t = 0; t < kTerms; ++t)
    if (row.s_per[t] > 0 && (task[t] < kRangeMargin * row.least[t] || task[t] > row.most[t] / kRangeMargin))
      notes.insert(fmt::format("outside the measured range: {} with {:.3g} {}s (measured {:.3g} to {:.3g})",
                               row_name(row), task[t], term_names()[t], row.least[t], row.most[t]));
  return notes;
}

std::optional<std::string> fan_out_note(const CommRow& row, const LayerCase& shape) {
  const int nodes = expert_nodes(shape.parallel);
  const int64_t limit = shape.layer.node_limit, measured = row.node_limit;
  const bool limited = limit > 0 && limit < nodes;
  if (measured == 0 && limited)
    return fmt::format("node-limit {}: not in the price, {} is not known to send rows once a node", limit,
                       row_name(row));
  const int64_t most = std::min<int64_t>(choices_of(shape), limited ? limit : nodes);  // that a token reaches
  if (measured == 0 || measured >= most) return std::nullopt;
  return fmt::format("{} is of tokens that reach {} nodes at most, priced too low: these reach {:.1f} of {}",
                     row_name(row), measured, nodes_reached(shape), nodes);
}

}  // namespace moe
