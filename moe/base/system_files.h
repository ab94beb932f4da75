#pragma once
// Reads files of /proc and /sys. Any of them may be missing, unreadable, or contain anything.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moe {

/// A file tree like a machine's: `root` is prepended to every path; an empty root is this machine's own tree.
class SystemFiles {
 public:
  explicit SystemFiles(std::string root = "") : root_(std::move(root)) {}

  static constexpr size_t kMax = 1 << 20;
  /// Returns the text of a file, at most `most` bytes of it, without blanks at its end; none if it can't be read.
  std::optional<std::string> text(const std::string& path, size_t most = kMax) const;
  /// Returns the number that the file begins with; none if the file is missing or begins with no number.
  std::optional<double> number(const std::string& path) const;
  /// Returns the names in a folder, sorted; empty if there is no such folder.
  std::vector<std::string> names(const std::string& folder) const;
  bool has(const std::string& path) const;

 private:
  std::string root_;
};

/// Returns the number that a text begins with, after blanks; none if it is not a finite number.
std::optional<double> leading_number(std::string_view text);
/// Returns the text after "KEY:" in the first line that begins with it, without blanks around it; none if no line does.
std::optional<std::string> value_of_key(std::string_view text, std::string_view key);
/// Returns the count of numbers in a list like "0-3,8", the kernel's notation for sets of CPUs; none for another text.
std::optional<int64_t> count_of_list(std::string_view list);
/// Returns the words of a text.
std::vector<std::string> words_in(std::string_view text);

/// The time of all cores together since the machine started, in the kernel's ticks.
struct CpuTimes {
  double busy = 0, idle = 0, steal = 0;  // steal: time in which other guests of the host used the core
  double total() const { return busy + idle + steal; }
};
/// Returns the times in the first line of /proc/stat; none if it has no times.
std::optional<CpuTimes> cpu_times(const SystemFiles& files);
/// Returns the number of cores that are online, at least 1.
int64_t online_cores(const SystemFiles& files);
/// Returns the bytes of a row of /proc/meminfo.
std::optional<double> memory_bytes(const SystemFiles& files, std::string_view key);
/// Returns the share of the last 10 s in which some task waited for the resource (cpu, memory, io); none if the
/// kernel does not report it (before 4.20).
std::optional<double> pressure_of(const SystemFiles& files, const std::string& resource);

// Limits set by the control groups of this process, of both versions: the least limit of its own group and those above
// it.

/// Returns the CPU time that this process may use, in cores; none if it has no limit.
std::optional<double> cpu_quota(const SystemFiles& files = SystemFiles());

struct MemoryLimit {
  double limit_bytes = 0, used_bytes = 0;  // both of the same control group; cached files count as used
};
/// Returns the tightest limit of memory; none if only the machine's memory limits it.
std::optional<MemoryLimit> memory_limit(const SystemFiles& files = SystemFiles());

}  // namespace moe
