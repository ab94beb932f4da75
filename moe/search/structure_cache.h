#pragma once
// Structures compiled for replay, built once: a grid's layers share them.
#include <map>
#include <memory>

#include "moe/cost/simulator.h"
#include "moe/schedule/schedule.h"

namespace moe {

struct CompiledStructure {
  explicit CompiledStructure(const StructureKey& key) : structure(build_structure(key)), replay(*structure) {}
  std::shared_ptr<const Structure> structure;
  Replay replay;
};

class StructureCache {
 public:
  const CompiledStructure& get(const StructureKey& key) {
    auto& entry = entries_[key];
    if (!entry) entry = std::make_unique<CompiledStructure>(key);
    return *entry;
  }

 private:
  std::map<StructureKey, std::unique_ptr<CompiledStructure>> entries_;
};

}  // namespace moe
