#pragma once
// Data with which the page replays a layer: the structure of each phase at each degree, and the prices of its tasks.
#include <map>
#include <string>
#include <vector>

#include "commands/report/columns.h"
#include "moe/search/layer_search.h"

namespace moe::report {

/// The largest degree of the page's map of degrees.
inline constexpr int kMaxDegree = 16;

/// Returns {"lanes": names, "kind", "lane", "class", "chunk", "chunks", "after"}; the last six are by task. `after`:
/// the tasks of other lanes that a task waits for. It also waits for the previous task on its lane.
Json structure_json(const Structure& structure);

/// Returns {"factors", "stalls"} by what a task uses and what runs beside it (moe/prices/profile.h), stalls in seconds;
/// null if lanes do not slow each other.
Json contention_json(const Contention& contention);

/// Makes replays of layers that share structures.
class LayerReplays {
 public:
  /// Returns one schedule of a layer: {"schedule", "variant", "degree_forward", "degree_backward", "equal_degrees",
  /// "memory", "works", "prices", "forward", "backward"}. A phase has a plan for each degree, {"degree", "structure",
  /// "prices", "seconds"}, with the prices by task. A price is [work, size, seconds that grow with the size]. A work is
  /// [kind, phase, network, unit of the size, start-up seconds]. Throws BadInput if the schedule, layer or profile does
  /// not allow it.
  Json schedule_json(const Schedule& schedule, const LayerPricer& pricer, const LayerPricer& without_startup_seconds,
                     const DegreeChoice& choice);
  /// Returns the structures so far; plans refer to them by index.
  const Json& structures() const { return structures_; }

 private:
  struct DecidedSchedule {
    const Schedule &schedule, &runs;  // the requested schedule, and the variant that it chose
    const LayerPricer &pricer, &without_startup_seconds;
    const DegreeChoice& choice;
    Decision own;
    MemoryEstimate memory;
  };
  Json plans_json(const DecidedSchedule& of);
  size_t index_of(const StructureKey& key);

  LayerSearch search_;
  std::map<StructureKey, size_t> known_;
  Json structures_ = Json::array();
};

}  // namespace moe::report
