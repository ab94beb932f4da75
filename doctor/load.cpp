#include <algorithm>
#include <fmt/format.h>
#include <unistd.h>

#include "doctor/probes.h"

namespace moe::doctor {
namespace {

constexpr double kBusyShare = 0.05;                         // of all cores: a measurement notices
constexpr double kStolenShare = 0.005;                      // likewise
constexpr double kBusyProcess = 0.05, kHeavyProgram = 0.2;  // of one core
constexpr double kPressure = 0.01, kHighPressure = 0.05;    // share of the time
constexpr size_t kShownPrograms = 3;

constexpr Area kLoad{"load"};

struct Process {
  std::string name;
  double ticks = 0;
};
using Processes = std::map<std::string, Process>;  // by id

std::string printable(std::string name) {
  std::erase_if(name, [](unsigned char c) { return c < ' ' || c > '~'; });
  return name.starts_with('/') ? name.substr(name.rfind('/') + 1) : name;  // "kworker/0:1" is no path
}

// Reads "ID (NAME) STATE ...": user and system time are the 14th and 15th; a name may hold blanks and parentheses.
Processes processes(const SystemFiles& files) {
  Processes found;
  for (const std::string& id : files.names("/proc")) {
    if (id.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string stat = files.text("/proc/" + id + "/stat").value_or("");
    const size_t open = stat.find('('), close = stat.rfind(')');
    if (open == std::string::npos || close == std::string::npos || close < open) continue;
    const auto words = words_in(std::string_view(stat).substr(close + 1));
    if (words.size() < 13) continue;
    const auto user = leading_number(words[11]), system = leading_number(words[12]);
    if (user && system) found[id] = {printable(stat.substr(open + 1, close - open - 1)), *user + *system};
  }
  return found;
}

/// Adds up the processes of one name.
struct Program {
  std::string name;
  int processes = 0;
  double cores = 0;  // whose time they took
};

/// Returns the programs that were busy in between, the busiest first; one core had `ticks`.
std::vector<Program> busiest(const Processes& before, const Processes& after, double ticks) {
  const std::string own = std::to_string(::getpid());
  std::vector<Program> busy;
  for (const auto& [id, process] : after) {
    const auto was = before.find(id);
    const double cores = was == before.end() ? 0 : (process.ticks - was->second.ticks) / ticks;
    if (cores < kBusyProcess || id == own) continue;
    auto known = std::ranges::find(busy, process.name, &Program::name);
    if (known == busy.end()) known = busy.insert(busy.end(), Program{process.name});
    ++known->processes;
    known->cores += cores;
  }
  std::ranges::stable_sort(busy, std::greater{}, &Program::cores);
  return busy;
}

Finding processes_finding(const std::vector<Program>& busy) {
  if (busy.empty()) return kLoad(Level::ok, "no busy process", "nothing that is seen competes");
  std::string text;
  for (size_t i = 0; i < std::min(busy.size(), kShownPrograms); ++i)
    text += fmt::format("{}{}{} {:.0f} %", i > 0 ? ", " : "",
                        busy[i].processes > 1 ? fmt::format("{} x ", busy[i].processes) : "", busy[i].name,
                        100 * busy[i].cores);
  if (busy.size() > kShownPrograms) text += ", ...";
  return kLoad(busy.front().cores >= kHeavyProgram ? Level::warn : Level::note, "of a core: " + text,
               "others take cores, caches and memory's bandwidth", "top");
}

Findings times(const CpuTimes& before, const CpuTimes& after) {
  const double total = after.total() - before.total();
  const double busy = (after.busy - before.busy) / total, stolen = (after.steal - before.steal) / total;
  Findings all;
  all.push_back(busy > kBusyShare
                    ? kLoad(Level::warn, fmt::format("{:.0f} % of all cores busy", 100 * busy),
                            "timings have to share the cores", "top")
                    : kLoad(Level::ok, fmt::format("{:.1f} % of all cores busy", 100 * busy), "the cores are free"));
  all.push_back(stolen > kStolenShare
                    ? kLoad(Level::warn, fmt::format("{:.1f} % of the time stolen", 100 * stolen),
                            "the host gave cores to others: times too long, at random",
                            "ask for a machine, or cores, of one's own")
                    : kLoad(Level::ok, fmt::format("{:.1f} % of the time stolen", 100 * std::max(stolen, 0.0)),
                            "the host lets it run"));
  return all;
}

Findings pressures(const SystemFiles& files) {
  struct Row {
    const char *resource, *meaning;
  };
  constexpr Row kRows[] = {{"cpu", "threads wait for a core"},
                           {"memory", "threads wait for pages that were pushed out"},
                           {"io", "something waits for the disk"}};
  Findings all;
  for (const auto& [resource, meaning] : kRows)
    if (const auto share = pressure_of(files, resource))
      all.push_back(kLoad(*share >= kHighPressure ? Level::warn
                          : *share >= kPressure   ? Level::note
                                                  : Level::ok,
                          fmt::format("{} pressure {:.1f} % of the last 10 s", resource, 100 * *share),
                          *share >= kPressure ? meaning : "nothing waits for it"));
  return all;
}

Findings load_average(const SystemFiles& files) {
  const auto load = files.number("/proc/loadavg");
  if (!load) return {};
  const auto cores = static_cast<double>(online_cores(files));
  const Level level = *load >= cores / 2 ? Level::warn : *load >= 0.5 ? Level::note : Level::ok;
  return {kLoad(level, fmt::format("load average {:.2f} on {} cores", *load, cores),
                level == Level::ok ? "the last minute was quiet" : "so many threads wanted to run")};
}

}  // namespace

Findings load_findings(const SystemFiles& files, const std::function<void()>& wait) {
  Findings all = load_average(files);
  for (Finding& one : pressures(files)) all.push_back(std::move(one));
  const auto before = cpu_times(files);
  const Processes running = processes(files);
  wait();
  const auto after = cpu_times(files);
  if (!before || !after || !(after->total() > before->total())) {
    all.push_back(kLoad(Level::note, "times of the cores are not told", "noise of others can't be seen here"));
    return all;
  }
  const double ticks = (after->total() - before->total()) / static_cast<double>(online_cores(files));
  all.push_back(processes_finding(busiest(running, processes(files), ticks)));
  for (Finding& one : times(*before, *after)) all.push_back(std::move(one));
  return all;
}

}  // namespace moe::doctor
