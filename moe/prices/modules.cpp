#include "moe/prices/modules.h"

#include <algorithm>
#include <array>

#include "moe/base/check.h"

namespace moe {
namespace {

struct KindRow {
  std::string_view name;
  TaskKind kind;
  bool by_byte = false;
};
constexpr std::array kKinds{KindRow{kAttentionModule, TaskKind::attention},
                            KindRow{"gate", TaskKind::gate},
                            KindRow{"order", TaskKind::order, true},
                            KindRow{"i-order", TaskKind::i_order, true},
                            KindRow{"expert", TaskKind::expert},
                            KindRow{"hook", TaskKind::dispatch, true}};

const KindRow* row_of(std::string_view name) {
  for (const KindRow& row : kKinds)
    if (row.name == name.substr(0, name.find(':'))) return &row;
  return nullptr;
}

}  // namespace

std::optional<Module> module_of(std::string_view name) {
  const KindRow* row = row_of(name);
  if (row == nullptr) return std::nullopt;
  const std::string_view part = name.substr(std::min(name.size(), row->name.size() + 1));
  const bool whole = row->kind == TaskKind::attention;
  if (whole ? name != row->name && part != name_of(Recompute::selective) : part.empty()) return std::nullopt;
  return Module{row->kind, part};
}

std::string module_name(TaskKind kind, const LayerCase& shape) {
  const LayerShape& layer = shape.layer;
  switch (kind) {
    case TaskKind::gate:
      return "gate:" + layer.gate;
    case TaskKind::order:
      return "order:" + layer.order;
    case TaskKind::i_order:
      return "i-order:" + layer.order;
    case TaskKind::expert:
    case TaskKind::shared:  // priced as an expert
    case TaskKind::ffn:     // priced as an expert
      return fmt::format("expert:{}", name_of(layer.ffn));
    case TaskKind::dispatch:
    case TaskKind::combine:
    case TaskKind::exchange:
      return "hook:" + layer.hook;
    default:
      return shape.parallel.recomputes_scores() ? fmt::format("{}:{}", kAttentionModule, name_of(Recompute::selective))
                                                : std::string(kAttentionModule);
  }
}

bool is_priced_by_byte(std::string_view name) {
  const KindRow* row = row_of(name);
  return row != nullptr && row->by_byte;
}

LayerCase with_module(LayerCase shape, const Module& module) {
  LayerShape& layer = shape.layer;
  if (module.kind == TaskKind::attention)
    shape.parallel.recompute = module.part.empty() ? Recompute::none : Recompute::selective;
  if (module.kind == TaskKind::gate) layer.gate = module.part;
  if (module.kind == TaskKind::order || module.kind == TaskKind::i_order) layer.order = module.part;
  if (module.kind == TaskKind::expert) layer.ffn = ffn_from(module.part, "expert");
  if (module.kind == TaskKind::dispatch) layer.hook = module.part;
  return shape;
}

double module_size(const Module& module, Phase phase, const LayerCase& shape, Flow flow) {
  const Work work = whole_work(module.kind, phase, shape, flow);
  return std::max(work.bytes, work.flops);
}

}  // namespace moe
