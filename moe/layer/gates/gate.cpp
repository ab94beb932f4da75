#include "moe/layer/gates/gate.h"

#include <array>

#include "moe/base/registry.h"
#include "moe/layer/gates/gshard.h"

namespace moe {
namespace {

constexpr std::array kGates{GateRow{"gshard", make_gshard_gate}};

}  // namespace

std::unique_ptr<Gate> make_gate(std::string_view name, const GateSetup& setup) {
  return find_named(kGates, name, "gate").make(setup);
}

std::vector<std::string_view> gate_names() {
  std::vector<std::string_view> names;
  for (const GateRow& row : kGates) names.push_back(row.name);
  return names;
}

}  // namespace moe
