#include "moe/plan/op.h"

#include <algorithm>

#include "moe/base/enum_array.h"

namespace moe {
namespace {

constexpr EnumArray<Op, OpFacts, 15> kFacts{{{
    {"none"},
    {"alltoall", OpTable::comm, true, false, 1},
    {"allgather", OpTable::comm, true, false, 1},
    {"reducescatter", OpTable::comm, true, true, 1},
    {"allreduce", OpTable::comm, true, true, 2},
    {"sendrecv", OpTable::comm},
    {"a2a-ep-esp", OpTable::comm, false, false, 1},
    {"saa", OpTable::comm, false, false, 1},
    {"gemm", OpTable::compute},
    {"expert", OpTable::compute},
    {"copy", OpTable::compute},
    {"host_copy", OpTable::compute},
    {"attention"},
    {"module", OpTable::module},
    {"task", OpTable::task},
}}};
static_assert(kFacts.back().name == "task" && static_cast<size_t>(Op::task) + 1 == kFacts.size());

Op op_at(size_t index) { return static_cast<Op>(index); }

}  // namespace

const OpFacts& facts_of(Op op) { return kFacts[op]; }
std::string_view name_of(Op op) { return facts_of(op).name; }

std::optional<Op> find_op(std::string_view name) {
  const auto found = std::ranges::find(kFacts, name, &OpFacts::name);
  if (found == kFacts.end()) return std::nullopt;
  return op_at(static_cast<size_t>(found - kFacts.begin()));
}

std::vector<std::string_view> names_of(OpTable table) {
  std::vector<std::string_view> names;
  for (const OpFacts& facts : kFacts)
    if (facts.table == table) names.push_back(facts.name);
  return names;
}

std::vector<Op> collectives() {
  std::vector<Op> all;
  for (size_t i = 0; i < kFacts.size(); ++i)
    if (kFacts[i].collective) all.push_back(op_at(i));
  return all;
}

double wire_share(Op op, int ranks) {
  if (op == Op::sendrecv) return 1;
  return facts_of(op).wire_passes * (static_cast<double>(ranks - 1) / ranks);
}

}  // namespace moe
