#include "commands/regress/live_gate.h"

#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>
#include <limits>
#include <numeric>

#include "moe/base/check.h"
#include "moe/base/log.h"
#include "moe/base/random.h"

namespace moe::regress {
namespace {

constexpr double kMinTimeout = 60, kTimeoutOfFirst = 20;  // seconds; multiple of the first launch's time

std::string label_of(const LaunchLine& line) { return line.name.empty() ? "" : fmt::format(" of {}", line.name); }

}  // namespace

PairedRuns::PairedRuns(Setup setup, RecordWriter& writer)
    : setup_(std::move(setup)), writer_(writer), launcher_(setup_.launcher) {}

LaunchResult PairedRuns::run_launch(const Arm& arm, const LaunchLine& line) const {
  const auto known = timeouts_s_.find(line.name);
  const double timeout_s = setup_.timeout_s > 0         ? setup_.timeout_s
                           : known != timeouts_s_.end() ? known->second
                                                        : std::numeric_limits<int32_t>::max();
  LaunchResult end = launcher_.run(arm, line, timeout_s);
  const auto what = [&] { return fmt::format("{}: a launch{}", arm.name, label_of(line)); };
  require<RankFailure>(!end.timed_out, "{} timed out after {:.0f} s: {}", what(), end.wall_s,
                       launcher_.command_text(arm, line));
  if (end.code == kOk || (end.code == kNoHardware && !line.demanded)) return end;
  if (end.code == kBadInput && !end.not_ok.empty()) return end;  // its records give the reasons why no case ran
  const std::string why = end.last_line.empty() ? "nothing on stderr" : end.last_line;
  throw RankFailure(
      fmt::format("{} ended with code {} ({}): {}", what(), end.code, why, launcher_.command_text(arm, line)));
}

void PairedRuns::warm_up() {
  std::set<std::string> of_base, of_head;
  for (const LaunchLine& line : setup_.lines) {
    const LaunchResult base = run_launch(setup_.base, line);
    if (line.metric && base.cases.empty()) {
      const std::string why = base.not_ok.empty() ? "found no case" : base.not_ok.begin()->second;
      bad_input("--metric {}: {}: {}", line.metric->text(), why, launcher_.command_text(setup_.base, line));
    }
    timeouts_s_[line.name] = std::max(kMinTimeout, kTimeoutOfFirst * base.wall_s);
    const LaunchResult head = run_launch(setup_.head, line);
    require<RankFailure>(base.code == kNoHardware || head.code != kNoHardware,
                         "head: a launch{} found no hardware, but base's launch did ({})", label_of(line),
                         head.last_line);
    if (head.code == kNoHardware) {
      absent_.push_back(line.name.empty() ? "the command" : line.name);
      continue;
    }
    launch_s_ += (base.wall_s + head.wall_s) / 2;
    for (const auto& [name, times] : base.cases) of_base.insert(name), line_of_[name] = line.name;
    for (const auto& [name, times] : head.cases) of_head.insert(name), line_of_[name] = line.name;
    for (const auto& [name, why] : head.not_ok)
      if (base.cases.contains(name) && !head.cases.contains(name)) broken_[name] = why;
  }
  std::ranges::set_intersection(of_base, of_head, std::back_inserter(cases_));
  std::ranges::set_difference(of_base, of_head, std::back_inserter(only_in_base_));
  std::ranges::set_difference(of_head, of_base, std::back_inserter(only_in_head_));
  std::erase_if(only_in_base_, [&](const std::string& name) { return broken_.contains(name); });
}

PairedRuns::Missing PairedRuns::missing(bool head, const std::string& name) const {
  const auto found = missing_.find({head, name});
  return found == missing_.end() ? Missing() : found->second;
}

double PairedRuns::peak_bytes(bool head, const std::string& name) const {
  const auto found = peak_bytes_.find({head, name});
  return found == peak_bytes_.end() ? 0 : found->second;
}

std::vector<LaunchLine> PairedRuns::shuffled(int number) const {
  std::vector<LaunchLine> lines = setup_.lines;
  const uint64_t stream = random_stream_id("order of lines", static_cast<uint64_t>(number));
  for (size_t i = lines.size(); i > 1; --i) std::swap(lines[i - 1], lines[random_bits(setup_.seed, stream, i) % i]);
  return lines;
}

std::set<std::string> PairedRuns::line_cases(const LaunchLine& line, const std::vector<bool>& wanted) const {
  std::set<std::string> names;
  for (size_t i = 0; i < cases_.size(); ++i)
    if (wanted[i] && line_of_.at(cases_[i]) == line.name) names.insert(cases_[i]);
  return names;
}

// Returns the line limited to the layers of the wanted cases ("run/LAYER/SCHEDULE"), if it runs a grid of which only
// some cases are wanted.
LaunchLine PairedRuns::with_these_alone(LaunchLine line, const std::set<std::string>& wanted) const {
  const auto has = [&](std::string_view flag) {
    return std::ranges::any_of(line.words, [&](std::string_view word) {
      return word.starts_with(flag) && (word.size() == flag.size() || word[flag.size()] == '=');
    });
  };
  // --only is a flag of layerbench alone, and does not apply to --drawn layers.
  if (line.metric || std::ranges::find(line.words, "layerbench") == line.words.end() || !has("--grid") ||
      has("--drawn"))
    return line;
  if (wanted == line_cases(line, std::vector<bool>(cases_.size(), true))) return line;
  const size_t before = line.name.empty() ? 0 : line.name.size() + 1;
  std::set<std::string> layers;
  for (const std::string& name : wanted) {
    const size_t begin = name.find('/', before) + 1;
    layers.insert(name.substr(begin, name.rfind('/') - begin));
  }
  line.words.insert(line.words.end(), {"--only", fmt::format("{}", fmt::join(layers, ","))});
  return line;
}

PairedRuns::Times PairedRuns::measured(const Arm& arm, const LaunchLine& line, int number,
                                       const std::set<std::string>& wanted) {
  const auto key_of = [&](const std::string& name) {
    return fmt::format("{}/{}/{}/{}", setup_.key, number, arm.name, name);
  };
  Times times;
  for (const std::string& name : wanted)
    if (const CaseRecord* known = writer_.find(key_of(name))) times[name] = *times_of(*known, kOpTimeField);
  if (times.size() == wanted.size()) return times;
  LaunchResult end = run_launch(arm, with_these_alone(line, wanted));
  for (const std::string& name : wanted) {
    const auto found = end.cases.find(name);
    if (found == end.cases.end()) {
      Missing& missing = missing_[{&arm == &setup_.head, name}];
      missing.why = end.not_ok.contains(name) ? end.not_ok.at(name) : "the launch did not run it";
      ++missing.launches;
      log_warning(fmt::format("{}: pair {} has no time for {}: {}", arm.name, number + 1, name, missing.why));
      continue;
    }
    if (!times.contains(name)) {
      CaseRecord record;
      record.key = key_of(name);
      record.backend = "none";
      record.parameters = {{"case", name}, {"pair", int64_t{number}}, {"arm", arm.name}};
      record.samples = {{std::string(kOpTimeField), found->second.samples}};
      record.summary = {{"median_s", found->second.seconds()}};
      if (found->second.peak_bytes > 0) record.summary.set("peak_bytes", found->second.peak_bytes);
      writer_.append(record);
    }
    times[name] = std::move(found->second);
  }
  return times;
}

std::vector<Pair> PairedRuns::pair(int number, const std::vector<bool>& wanted) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  std::vector<Pair> pairs(cases_.size(), {kNone, kNone});
  for (const LaunchLine& line : shuffled(number)) {
    const std::set<std::string> names = line_cases(line, wanted);
    if (names.empty()) continue;
    // Pairs 2 i and 2 i + 1 begin with different programs.
    const uint64_t stream = random_stream_id("first program of " + line.name, static_cast<uint64_t>(number / 2));
    const bool head_first = (random_bits(setup_.seed, stream, 0) + static_cast<uint64_t>(number)) % 2 == 1;
    for (const bool head : {head_first, !head_first})
      for (const auto& [name, times] : measured(head ? setup_.head : setup_.base, line, number, names)) {
        const auto i = static_cast<size_t>(std::ranges::lower_bound(cases_, name) - cases_.begin());
        (head ? pairs[i].head : pairs[i].base) = std::log(times.seconds());
        if (setup_.tell) setup_.tell(number, head, i, times);
        const auto [peak, first] = peak_bytes_.try_emplace({head, name}, times.peak_bytes);
        peak->second = std::min(peak->second, times.peak_bytes);
      }
  }
  return pairs;
}

}  // namespace moe::regress
