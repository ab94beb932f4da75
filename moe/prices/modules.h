#pragma once
// The modules that [[module]] rows price: their names, and the part of a layer that each computes.
#include <optional>
#include <string>
#include <string_view>

#include "moe/plan/plan.h"

namespace moe {

struct Module {
  TaskKind kind = TaskKind::attention;
  std::string_view part;  // name of the part, such as "gshard"; of attention: empty or "selective" (Recompute)
};

/// Reads a module's name: "attention", "attention:selective", "gate:NAME", "order:NAME", "i-order:NAME", "expert:NAME",
/// "hook:NAME"; returns none for any other name.
std::optional<Module> module_of(std::string_view name);
/// Returns the name of the module that a task of this layer runs: of a computation or, for an exchange, of its hook,
/// which runs before and after it on the bytes that are sent. If i-order or attention that recomputes its scores has no
/// row, the row of order or of plain attention is used.
std::string module_name(TaskKind kind, const LayerCase& shape);
/// The name of the module of attention that keeps its scores.
inline constexpr std::string_view kAttentionModule = "attention";

/// Returns whether the price of a module is per byte of the rows that it reads or writes (Work::bytes), because it has
/// no FLOPs.
bool is_priced_by_byte(std::string_view name);
/// Returns `shape` with the layer's part replaced by this module.
LayerCase with_module(LayerCase shape, const Module& module);
/// Returns the size of one phase of a module over all rows: FLOPs, or bytes if is_priced_by_byte().
double module_size(const Module& module, Phase phase, const LayerCase& shape, Flow flow = Flow::sharded);

}  // namespace moe
