#pragma once
// What the page needs to replay a layer: the structure of each phase at each degree, and what its tasks take.
#include <map>
#include <string>
#include <vector>

#include "commands/report/columns.h"
#include "moe/search/layer_search.h"

namespace moe::report {

/// The largest degree of the page's map of degrees.
inline constexpr int kMostDegree = 16;

/// Returns {"lanes": names, "kind", "lane", "class", "chunk", "chunks", "after"}: the last six by task; `after` are the
/// tasks of other lanes that it waits for. What else a task waits for is the one before it on its lane.
Json structure_json(const Structure& structure);

/// Returns {"factors", "stalls"}: by what a task uses and what runs beside it (moe/prices/profile.h), the latter in
/// seconds; null where lanes do not slow each other.
Json contention_json(const Contention& contention);

/// Makes replays of layers, which share structures.
class LayerReplays {
 public:
  /// Returns one schedule of a layer: {"schedule", "variant", "degree_forward", "degree_backward", "equal_degrees",
  /// "memory", "works", "prices", "forward", "backward"}. A phase has a plan for each degree, {"degree", "structure",
  /// "prices", "seconds"}, whose prices are by task. A price is [work, size, seconds that grow with it]. A work
  /// is [kind, phase, network, unit of the size, start-up seconds]. Throws BadInput for what the schedule, layer or
  /// profile does not allow.
  Json schedule_json(const Schedule& schedule, const LayerPricer& pricer, const LayerPricer& without_starts,
                     const DegreeChoice& choice);
  /// Returns the structures so far; plans name them by index.
  const Json& structures() const { return structures_; }

 private:
  struct Decided {
    const Schedule &schedule, &runs;  // what was asked for, and the one that it chose
    const LayerPricer &pricer, &without_starts;
    const DegreeChoice& choice;
    Decision own;
    MemoryEstimate memory;
  };
  Json plans_json(const Decided& of);
  size_t index_of(const StructureKey& key);

  LayerSearch search_;
  std::map<StructureKey, size_t> known_;
  Json structures_ = Json::array();
};

}  // namespace moe::report
