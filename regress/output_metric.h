#pragma once
// What other people's commands measure, read from what they print.
#include <filesystem>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <string_view>

#include "regress/rule.h"
#include "verbs/nsys_export.h"

namespace moe::regress {

/// What one launch measured of a case.
struct CaseTimes {
  std::vector<std::vector<double>> samples;  // seconds[iteration][rank]
  double peak_bytes = 0;                     // of the tensors; 0: not counted
  /// The median over iterations of the maximum over ranks.
  double seconds() const;
};

/// Returns the range of a metric "nsys:RANGE"; none: it is another metric.
std::optional<std::string> range_of_metric(const std::string& metric);

/// Returns what ranks took for each occurrence of a range, as an SQLite export of Nsight Systems says
/// (verbs::range_seconds). Throws BadInput where no kernel was launched inside one, or ranks have different numbers of
/// them.
CaseTimes range_times(const verbs::NsysExport& from, const std::string& range);

/// How to find times in the output of a command.
class OutputMetric {
 public:
  struct Found {
    std::map<std::string, CaseTimes> cases = {};     // by name; the only one of a command has the name ""
    std::map<std::string, std::string> not_ok = {};  // by name, why a case has no time
  };

  /// `text`: gbench (google/benchmark's JSON), megatron (the iterations of Megatron-LM's log but the first), nsys:RANGE
  /// (the occurrences of a range in the last file *.sqlite that is named), number (the lines that are a number alone),
  /// or a regular expression whose group is a number. `unit`, of the last two: s, ms, us, ns, or 1/s for rates; empty:
  /// s. Throws BadInput "WHERE: ...".
  OutputMetric(const std::string& text, const std::string& unit, const std::string& where);

  /// Where and when a command ran: files that it names are of that folder, and no older.
  struct Place {
    std::string folder = {};  // empty: this one
    std::filesystem::file_time_type started = {};
  };

  /// Reads the output of a command. A time of a rate is that of one unit of work.
  Found in(const std::string& output, const Place& place) const;
  /// Returns "megatron", "number", ... as it was given.
  const std::string& text() const { return text_; }

 private:
  Found benchmarks_in(std::string_view output) const;
  Found numbers_in(std::string_view output) const;
  Found ranges_in(std::string_view output, const Place& place) const;

  std::string text_;
  std::optional<std::string> range_;   // of nsys
  std::optional<std::regex> pattern_;  // none: google/benchmark's JSON, or nsys
  double unit_s_ = 1;
  bool rate_ = false, first_warms_ = false;
};

}  // namespace moe::regress
