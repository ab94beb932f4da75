#pragma once
// Reads files of /proc and /sys, any of which may be missing, closed to us, or hold anything.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moe {

/// A tree that looks like a machine's: `root` stands before every path; empty: this machine's own.
class SystemFiles {
 public:
  explicit SystemFiles(std::string root = "") : root_(std::move(root)) {}

  static constexpr size_t kMost = 1 << 20;
  /// Returns the text of a file, at most `most` bytes of it, without blanks at its end; none where it can't be read.
  std::optional<std::string> text(const std::string& path, size_t most = kMost) const;
  /// Returns the number that the file begins with; none where there is no such file, or no number.
  std::optional<double> number(const std::string& path) const;
  /// Returns what is in a folder, sorted; nothing where there is no such folder.
  std::vector<std::string> names(const std::string& folder) const;
  bool has(const std::string& path) const;

 private:
  std::string root_;
};

/// Returns the number that a text begins with, behind blanks; none where it is no finite number.
std::optional<double> leading_number(std::string_view text);
/// Returns what stands behind "KEY:" in the first line that begins with it, without blanks around it; none: no line.
std::optional<std::string> value_of_key(std::string_view text, std::string_view key);
/// Returns how many a list like "0-3,8" names, as the kernel writes sets of CPUs; none where it is no such list.
std::optional<int64_t> count_of_list(std::string_view list);
/// Returns the words of a text.
std::vector<std::string> words_in(std::string_view text);

/// Counts the time of all cores together since the machine started, in the kernel's ticks.
struct CpuTimes {
  double busy = 0, idle = 0, steal = 0;  // steal: other guests of the host had the core
  double total() const { return busy + idle + steal; }
};
/// Returns the first line of /proc/stat; none where it has no times.
std::optional<CpuTimes> cpu_times(const SystemFiles& files);
/// Returns how many cores the machine runs, at least 1.
int64_t online_cores(const SystemFiles& files);
/// Returns the bytes of a row of /proc/meminfo.
std::optional<double> memory_bytes(const SystemFiles& files, std::string_view key);
/// Returns the share of the last 10 s in which something waited for the resource (cpu, memory, io); none where the
/// kernel does not tell (before 4.20).
std::optional<double> pressure_of(const SystemFiles& files, const std::string& resource);

// Reads what the control groups of this process, of both versions, leave it: the least of its own group and those
// above.

/// Returns how many cores' time this process may use; none: as much as the machine has.
std::optional<double> cpu_quota(const SystemFiles& files = SystemFiles());

struct MemoryLimit {
  double limit_bytes = 0, used_bytes = 0;  // of the group that limits; files that it read count as used
};
/// Returns the tightest limit of memory; none: nothing limits it but the machine.
std::optional<MemoryLimit> memory_limit(const SystemFiles& files = SystemFiles());

}  // namespace moe
