#pragma once
// FSMoE's 1458 layers, swept once a reading, for every table that asks.
#include <map>
#include <string_view>
#include <vector>

#include "reproduce/fsmoe_reading.h"
#include "verbs/sweep.h"

namespace moe::reproduce {

/// Returns Table 5's schedules, in its order.
std::vector<const Schedule*> table5_schedules();

/// Holds the figures of one sweep.
struct SweptReading {
  Reading reading;
  std::vector<verbs::ScheduleSummary> schedules;  // table5_schedules' order
  const verbs::ScheduleSummary& find(std::string_view schedule) const;
};

class SweepStore {
 public:
  const SweptReading& of(const Reading& reading);
  /// Sweeps what is not swept yet, on all cores; the results do not depend on how many.
  void prepare(const std::vector<Reading>& readings);

 private:
  std::map<Reading, SweptReading> swept_;
};

}  // namespace moe::reproduce
