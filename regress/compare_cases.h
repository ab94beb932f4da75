#pragma once
// Which cases of two sides answer the same question, and what became of each.
#include <optional>
#include <string>
#include <vector>

#include "regress/compare_records.h"
#include "regress/floor.h"
#include "regress/verdict.h"

namespace moe::regress {

/// Holds records measured at one time: the last run of every file.
struct Side {
  struct OfFile {
    std::string file;
    Run run;
  };
  std::string path;
  std::vector<OfFile> files;
};

/// Reads a file, or the *.jsonl of a folder. Throws BadInput where a file is none of records.
Side read_side(const std::string& path);

/// Judges a change of time: it counts from 3 % on, or from what sessions of the same code differ by where that is more
/// (`floor`, a share: Floor::between_sessions). Without a floor it is ambiguous.
inline constexpr double kLeastRatio = 1.03;
Verdict time_verdict(double ratio, std::optional<double> floor);

enum class Metric : uint8_t { time, memory };
std::string_view name_of(Metric metric);

/// One metric of a case that both sides have: seconds (main_time) or peak_bytes.
struct ComparedCase {
  std::string key, group;
  Metric metric = Metric::time;
  double base = 0, head = 0;
  std::optional<double> floor;  // of the time, on this machine
  Verdict verdict = Verdict::same;
  double ratio() const { return head / base; }
};

/// A case that both sides have and that can't be compared, or is broken in HEAD, and why.
struct CaseRemark {
  std::string key, why;
};

/// The geometric mean of ratios.
struct GroupRatio {
  std::string group;
  Metric metric = Metric::time;
  int cases = 0;
  double ratio = 0;
};

struct Comparison {
  std::vector<ComparedCase> cases;  // worst first
  std::vector<CaseRemark> broken;   // BASE has a result, HEAD: wrong, error; or, measured alike, oom, unsupported
  std::vector<CaseRemark> refused;
  std::vector<std::string> only_in_base, only_in_head;  // keys
  std::vector<GroupRatio> groups;                       // of time, then of memory, each sorted by name
};

/// Compares what `filter` keeps. `by` names what groups of means share (value_of). Throws BadInput where no case has
/// it.
Comparison compare_sides(const Side& base, const Side& head, CaseFilter& filter, const std::string& by,
                         const NoiseFloors& floors);

}  // namespace moe::regress
