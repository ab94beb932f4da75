#pragma once
// Reads times in the output of commands that are not moetune's.
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

/// The samples of a case in one launch.
struct CaseTimes {
  std::vector<std::vector<double>> samples;  // seconds[iteration][rank]
  double peak_bytes = 0;                     // peak memory of the tensors; 0: not counted
  /// Returns the median over iterations of the maximum over ranks.
  double seconds() const;
};

/// Returns RANGE of a metric "nsys:RANGE"; none for other metrics.
std::optional<std::string> range_of_metric(const std::string& metric);

/// Returns the ranks' times of each occurrence of a range, from an SQLite export of Nsight Systems
/// (commands::range_seconds). Throws BadInput if no kernel was launched inside an occurrence, or if ranks have
/// different numbers of occurrences.
CaseTimes range_times(const commands::NsysExport& from, const std::string& range);

/// How to find times in the output of a command.
class OutputMetric {
 public:
  struct CommandTimes {
    std::map<std::string, CaseTimes> cases = {};     // by name, which is empty if the output has one case
    std::map<std::string, std::string> not_ok = {};  // reasons why cases have no time, by name
    bool is_rate = false;                            // times are seconds per unit of work, such as a sample
    std::vector<double> flops_per_s = {};            // FLOP/s of a GPU by iteration; empty: the log has none
  };

  /// `text` is one of:
  /// gbench                 google/benchmark's JSON
  /// megatron, nemo, megatron-bridge, deepspeed: the iterations in such a log, except the first
  /// nsys:RANGE             the occurrences of an NVTX range in the last *.sqlite that the output names
  /// number                 the lines that consist of one number
  /// a regular expression   its one group is a number
  /// `unit` is s, ms, us, ns or 1/s (a rate) for the last two; empty: s. Throws BadInput "WHERE: ...".
  OutputMetric(const std::string& text, const std::string& unit, const std::string& where);

  /// The folder and the start of a command: names of files in its output are relative to the folder, and older files
  /// are ignored.
  struct Place {
    std::string folder = {};  // empty: the current folder
    std::filesystem::file_time_type started = {};
  };

  /// Reads the output of a command.
  CommandTimes in(const std::string& output, const Place& place) const;
  /// Returns the metric as the constructor got it.
  const std::string& text() const { return text_; }

 private:
  /// A form of lines; a line's time is the sum of the groups of `pattern`.
  struct Line {
    std::regex pattern;
    double unit_s = 1;
    bool is_rate = false;
    std::optional<std::regex> teraflops = {};  // TFLOP/s of a GPU on the same line; none: the log has none
  };

  CommandTimes benchmarks_in(std::string_view output) const;
  CommandTimes numbers_in(std::string_view output, const Line& line) const;
  CommandTimes ranges_in(std::string_view output, const Place& place) const;

  std::string text_;
  std::optional<std::string> range_;  // RANGE of nsys:RANGE
  std::vector<Line> lines_;           // forms; the first one that the output has is read; empty: nsys or gbench
  bool first_warms_ = false;          // the first iteration is a warm-up and does not count
};

/// Returns the metrics of OutputMetric that read a training's log. A training may print lines of several logs; the log
/// with the most information about an iteration comes first.
std::vector<std::string> known_log_formats();

}  // namespace moe::regress
