#pragma once
// The sub-modules that [[module]] rows price: their names, and what of a layer each of them does.
#include <optional>
#include <string>
#include <string_view>

#include "moe/plan/plan.h"

namespace moe {

struct Module {
  TaskKind kind = TaskKind::attention;
  std::string_view part;  // its name in the registry, "gshard"; of attention: empty
};

/// Reads "attention", "gate:NAME", "order:NAME", "i-order:NAME", "expert:NAME", "hook:NAME"; empty for any other name.
std::optional<Module> module_of(std::string_view name);
/// Returns the module that a computation of this layer is, or that is called around an exchange (a hook, twice: on the
/// bytes that are sent). An order's way back has a row of its own or, without one, the order's.
std::string module_name(TaskKind kind, const LayerShape& layer);

/// Returns whether a module has no FLOPs: it is priced by the bytes of the rows that it reads or writes (Work::bytes).
bool is_priced_by_byte(std::string_view name);
/// `layer` with this module in it.
LayerShape with_module(LayerShape layer, const Module& module);
/// FLOPs or bytes of one whole phase.
double module_size(const Module& module, Phase phase, const LayerCase& shape, Flow flow = Flow::sharded);

}  // namespace moe
