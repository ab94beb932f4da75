#pragma once
// The sub-modules that [[module]] rows price: their names, and the part of a layer that each computes.
#include <optional>
#include <string>
#include <string_view>

#include "moe/plan/plan.h"

namespace moe {

struct Module {
  TaskKind kind = TaskKind::attention;
  std::string_view part;  // name in the registry, "gshard"; for attention empty or "selective" (Recompute)
};

/// Reads a module's name: "attention", "attention:selective", "gate:NAME", "order:NAME", "i-order:NAME", "expert:NAME",
/// "hook:NAME"; returns none for any other name.
std::optional<Module> module_of(std::string_view name);
/// Returns the module of a computation of this layer, or of one that runs around an exchange (a hook, which runs twice,
/// on the bytes that are sent). The way back of an order has a row of its own or, if that is missing, uses the order's;
/// the same holds for attention that recomputes its scores.
std::string module_name(TaskKind kind, const LayerCase& shape);
/// The name of attention that keeps its scores.
inline constexpr std::string_view kAttentionModule = "attention";

/// Returns whether a module has no FLOPs and is priced by the bytes of the rows that it reads or writes (Work::bytes).
bool is_priced_by_byte(std::string_view name);
/// Returns `shape` with this module in it.
LayerCase with_module(LayerCase shape, const Module& module);
/// Returns the FLOPs or bytes of one whole phase of a module.
double module_size(const Module& module, Phase phase, const LayerCase& shape, Flow flow = Flow::sharded);

}  // namespace moe
