#pragma once
// Cases as records hold them: what they took, what was asked for, and on what they were measured.
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "moe/record/reader.h"

namespace moe::regress {

/// Says what a case took: the median over iterations of the maximum over ranks of its main sample, `total_s` of layers
/// and models, else `seconds`. Seconds are divided by the dilation, as records have them.
struct MainTime {
  std::string sample;
  double seconds = 0;
  std::string fault;  // why there is no such number; empty: there is
};
MainTime main_time(const CaseRecord& record);

/// Returns a parameter as text, or what stands beside parameters: key, family, schedule, degree_forward,
/// degree_backward, backend. Nothing where the case has none of that name.
std::optional<std::string> value_of(const CaseRecord& record, std::string_view name);

/// Returns what a case is of: the first part of its key, and its schedule, else its name (a task's, a module's), its op
/// or its kernel.
std::string family_of(const CaseRecord& record);

/// Returns "NAME: A against B" for the first difference in what decides a case (parameters that both have, dtype,
/// algorithm, schedule, degrees); empty: both are of the same case.
std::string asked_difference(const CaseRecord& a, const CaseRecord& b);
/// Returns the same for machines: their fingerprint where both have one, else processor, cores, memory (within 1 %) and
/// architecture.
std::string machine_difference(const Fields& a, const Fields& b);
/// Returns the same for what else times depend on: version of the measurement, machine, ranks and threads of each;
/// backend, whether the cluster was emulated, and its dilation: as modelled (1) or slower, and then within a factor of
/// 8.
std::string measured_difference(const RunHeader& run_a, const CaseRecord& a, const RunHeader& run_b,
                                const CaseRecord& b);

/// Holds the "KEY=VALUE" items of a flag: a case is kept if, of every KEY, it has one of the values. An item without
/// '=' is one more value of the KEY before.
class CaseFilter {
 public:
  /// Throws BadInput naming --filter.
  explicit CaseFilter(const std::vector<std::string>& items);
  bool keeps(const CaseRecord& record);
  /// Throws BadInput where no case that was looked at has one of the KEYs.
  void require_known() const;

 private:
  std::map<std::string, std::set<std::string>> wanted_;
  std::set<std::string> seen_;
};

}  // namespace moe::regress
