#include "moe/base/system_files.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

namespace moe {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr double kKiB = 1024, kMaxKiB = 0x1p50;
constexpr size_t kMaxReadBytes = 4096;  // most bytes that the kernel returns from such a file in one read

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

template <class Number>
std::optional<Number> whole_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

}  // namespace

std::optional<std::string> SystemFiles::text(const std::string& path, size_t most) const {
  // O_NONBLOCK, because a test's tree or a driver may have a pipe there.
  const int file = ::open((root_ + path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return {};
  std::string text;
  ssize_t got = 0;
  do {
    const size_t size = text.size();
    text.resize(std::min(size + kMaxReadBytes, most));
    do got = ::read(file, text.data() + size, text.size() - size);
    while (got < 0 && errno == EINTR);
    text.resize(size + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  } while (got > 0 && text.size() < most);
  ::close(file);
  if (got < 0) return {};
  text.erase(text.find_last_not_of(kBlanks) + 1);
  return text;
}

std::optional<double> SystemFiles::number(const std::string& path) const {
  const auto found = text(path, kMaxReadBytes);
  return found ? leading_number(*found) : std::nullopt;
}

std::vector<std::string> SystemFiles::names(const std::string& folder) const {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir((root_ + folder).c_str()), ::closedir);
  std::vector<std::string> names;
  while (const dirent* entry = open ? ::readdir(open.get()) : nullptr)
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  std::ranges::sort(names);
  return names;
}

bool SystemFiles::has(const std::string& path) const { return ::access((root_ + path).c_str(), F_OK) == 0; }

std::optional<double> leading_number(std::string_view text) {
  text = trimmed(text);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::optional<std::string> value_of_key(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (!line.starts_with(key)) continue;
    const std::string_view rest = trimmed(line.substr(key.size()));
    if (rest.starts_with(':')) return std::string(trimmed(rest.substr(1)));
  }
  return {};
}

std::optional<int64_t> count_of_list(std::string_view list) {
  list = trimmed(list);
  int64_t count = 0;
  do {
    const std::string_view part = list.substr(0, list.find(','));
    list.remove_prefix(std::min(part.size() + 1, list.size()));
    const size_t dash = part.find('-');
    const auto first = whole_number<int32_t>(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : whole_number<int32_t>(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first) return {};
    count += int64_t{*last} - *first + 1;
  } while (!list.empty());
  return count;
}

std::vector<std::string> words_in(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(std::move(word));
  return words;
}

std::optional<CpuTimes> cpu_times(const SystemFiles& files) {
  // cpu user nice system idle iowait irq softirq steal ...: user includes the time of our own guests.
  const std::string stat = files.text("/proc/stat", kMaxReadBytes).value_or("");
  const auto words = words_in(std::string_view(stat).substr(0, stat.find('\n')));
  if (words.size() < 5 || words[0] != "cpu") return {};
  CpuTimes times;
  for (size_t i = 1; i < std::min<size_t>(words.size(), 9); ++i)
    (i == 4 || i == 5 ? times.idle : i == 8 ? times.steal : times.busy) += leading_number(words[i]).value_or(0);
  return times.total() > 0 ? std::optional(times) : std::nullopt;
}

int64_t online_cores(const SystemFiles& files) {
  if (const auto count = count_of_list(files.text("/sys/devices/system/cpu/online").value_or(""))) return *count;
  const std::string stat = files.text("/proc/stat").value_or("");
  int64_t cores = 0;
  for (size_t at = stat.find("\ncpu"); at != std::string::npos; at = stat.find("\ncpu", at + 1)) ++cores;
  return std::max<int64_t>(cores, 1);
}

std::optional<double> memory_bytes(const SystemFiles& files, std::string_view key) {
  const auto value = value_of_key(files.text("/proc/meminfo").value_or(""), key);
  const auto kib = value ? leading_number(*value) : std::nullopt;
  return kib && *kib >= 0 && *kib < kMaxKiB ? std::optional(*kib * kKiB) : std::nullopt;
}

std::optional<double> pressure_of(const SystemFiles& files, const std::string& resource) {
  constexpr std::string_view kKey = "avg10=";
  const std::string text = files.text("/proc/pressure/" + resource).value_or("");
  const size_t at = text.find(kKey);
  if (!text.starts_with("some") || at == std::string::npos) return {};
  const auto percent = leading_number(std::string_view(text).substr(at + kKey.size()));
  return percent ? std::optional(*percent / 100) : std::nullopt;
}

namespace {

constexpr double kNoLimitBytes = 0x1p62;  // version 1 reports the largest number of pages if there is no limit

// Calls `read` with the folder of the group that has the controller, and with those above it. In a container, the path
// may be that of the host and not exist here.
template <class Read>
void for_groups(const SystemFiles& files, const std::string& controller, Read read) {
  std::istringstream groups(files.text("/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(groups, line);) {  // ID:CONTROLLERS:PATH
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const bool unified = controllers == ",,";
    if (!unified && controllers.find(fmt::format(",{},", controller)) == std::string::npos) continue;
    const std::string root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controller;
    read(unified, root);
    for (std::string path = line.substr(second + 1); path.size() > 1 && path[0] == '/'; path.resize(path.rfind('/')))
      read(unified, root + path);
  }
}

// Returns a group's quota in cores, from "150000 100000" or, in version 1, from two files; none for "max" or -1.
std::optional<double> quota_of(const SystemFiles& files, bool unified, const std::string& group) {
  std::optional<double> quota, period;
  if (unified) {
    const auto words = words_in(files.text(group + "/cpu.max").value_or(""));
    if (words.size() == 2) quota = leading_number(words[0]), period = leading_number(words[1]);
  } else {
    quota = files.number(group + "/cpu.cfs_quota_us");
    period = files.number(group + "/cpu.cfs_period_us");
  }
  return quota && period && *quota > 0 && *period > 0 ? std::optional(*quota / *period) : std::nullopt;
}

}  // namespace

std::optional<double> cpu_quota(const SystemFiles& files) {
  std::optional<double> least;
  for_groups(files, "cpu", [&](bool unified, const std::string& group) {
    const auto quota = quota_of(files, unified, group);
    if (quota && (!least || *quota < *least)) least = quota;
  });
  return least;
}

std::optional<MemoryLimit> memory_limit(const SystemFiles& files) {
  std::optional<MemoryLimit> least;
  for_groups(files, "memory", [&](bool unified, const std::string& group) {
    const auto limit = files.number(group + (unified ? "/memory.max" : "/memory.limit_in_bytes"));
    if (!limit || *limit <= 0 || *limit >= kNoLimitBytes || (least && least->limit_bytes <= *limit)) return;
    const auto used = files.number(group + (unified ? "/memory.current" : "/memory.usage_in_bytes"));
    least = MemoryLimit{*limit, used.value_or(0)};
  });
  return least;
}

}  // namespace moe
