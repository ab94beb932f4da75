#pragma once
// What other people's commands measure, read from what they print.
#include <filesystem>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "commands/regress/rule.h"
#include "commands/shared/nsys_export.h"

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

/// Returns the ranks' times of each occurrence of a range, from an SQLite export of Nsight Systems
/// (commands::range_seconds). Throws BadInput if no kernel was launched inside an occurrence, or if ranks have
/// different numbers of occurrences.
CaseTimes range_times(const commands::NsysExport& from, const std::string& range);

/// How to find times in the output of a command.
class OutputMetric {
 public:
  struct Found {
    std::map<std::string, CaseTimes> cases = {};     // by name; the only one of a command has the name ""
    std::map<std::string, std::string> not_ok = {};  // by name, why a case has no time
    bool is_rate = false;                            // times are those of one unit of work, such as a sample
    std::vector<double> flops_per_s = {};            // of a GPU, by iteration, where a training's log says them
  };

  /// `text`: gbench (google/benchmark's JSON), megatron, nemo, megatron-bridge or deepspeed (the iterations of such a
  /// log but the first), nsys:RANGE (the occurrences of a range in the last file *.sqlite that is named), number (the
  /// lines that are a number alone), or a regular expression whose group is a number. `unit`, of the last two: s, ms,
  /// us, ns, or 1/s for rates; empty: s. Throws BadInput "WHERE: ...".
  OutputMetric(const std::string& text, const std::string& unit, const std::string& where);

  /// Where and when a command ran: files that it names are of that folder, and no older.
  struct Place {
    std::string folder = {};  // empty: this one
    std::filesystem::file_time_type started = {};
  };

  /// Reads the output of a command.
  Found in(const std::string& output, const Place& place) const;
  /// Returns "megatron", "number", ... as it was given.
  const std::string& text() const { return text_; }

 private:
  /// A line's form; its time is the sum of its groups.
  struct Line {
    std::regex pattern;
    double unit_s = 1;
    bool is_rate = false;
    std::optional<std::regex> teraflops = {};  // a second, of a GPU, on the same line; none: it says none
  };

  Found benchmarks_in(std::string_view output) const;
  Found numbers_in(std::string_view output, const Line& line) const;
  Found ranges_in(std::string_view output, const Place& place) const;

  std::string text_;
  std::optional<std::string> range_;  // of nsys
  std::vector<Line> lines_;           // of which the first counts that an output has; none: nsys, or JSON
  bool first_warms_ = false;
};

/// Returns the logs that OutputMetric knows by name, those that say most about an iteration first: a training may print
/// lines of several.
std::vector<std::string> known_logs();

}  // namespace moe::regress
