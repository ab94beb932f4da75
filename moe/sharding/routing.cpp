#include "moe/sharding/routing.h"

#include <algorithm>

namespace moe {

Routing::Routing(const RoutingShape& shape, DType weights, MemorySpace& memory)
    : RoutingShape(shape),
      expert(static_cast<size_t>(pairs())),
      row(static_cast<size_t>(pairs()), kDropped),
      filled(static_cast<size_t>(groups() * experts)),
      weight({tokens, choices}, weights, memory) {
  if (memory.kind() == DeviceKind::cpu) return;
  for (Array<int32_t>* of_pairs : {&device.expert, &device.row, &device.slot_of}) *of_pairs = {memory, pairs()};
  device.pair_of = {memory, groups() * experts * slots()};
  device.filled = {memory, groups() * experts};
}

void Routing::send() const {
  if (device.expert.size() > 0) device.expert.from_host(expert.data());
}

void Routing::fetch() {
  if (device.expert.size() == 0) return;
  device.expert.to_host(expert.data());
  device.row.to_host(row.data());
  fetch_filled();
}

void Routing::fetch_filled() {
  if (device.filled.size() > 0) device.filled.to_host(filled.data());
}

void assign_rows(Routing& r) {
  std::fill(r.filled.begin(), r.filled.end(), 0);
  const auto pairs = static_cast<size_t>(r.group_tokens * r.choices), step = static_cast<size_t>(r.choices);
  for (int64_t group = 0; group < r.groups(); ++group) {
    int64_t* filled = r.filled.data() + group * r.experts;
    const size_t first = static_cast<size_t>(group) * pairs;
    for (size_t choice = 0; choice < step; ++choice)
      for (size_t pair = first + choice; pair < first + pairs; pair += step) {
        int64_t& used = filled[r.expert[pair]];
        r.row[pair] = used < r.rows ? static_cast<int32_t>(used++) : Routing::kDropped;
      }
  }
}

}  // namespace moe
