#include "moe/cost/price_notes.h"

#include <fmt/format.h>

#include "moe/plan/volumes.h"

namespace moe {

std::string weak_rows(const std::set<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes)
    if (note.starts_with(kWeakRow)) text += (text.empty() ? "" : "; ") + note.substr(kWeakRow.size());
  return text;
}

std::optional<std::string> fan_out_note(const CommRow& row, const LayerCase& shape) {
  const int nodes = expert_nodes(shape.parallel);
  const int64_t limit = shape.layer.node_limit, measured = row.node_limit;
  const bool limited = limit > 0 && limit < nodes;
  if (measured == 0 && limited)
    return fmt::format("node-limit {}: not in the price, {} is not known to send rows once a node", limit,
                       row_name(row));
  if (measured == 0 || measured >= nodes || (limited && limit <= measured)) return std::nullopt;
  return fmt::format(
      "{} is of tokens that reach {} nodes at most, priced too low: these reach {:.1f} of {} "
      "(--node-limit {})",
      row_name(row), measured, nodes_reached(shape), nodes, measured);
}

}  // namespace moe
