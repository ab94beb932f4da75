#include "commands/regress/launches.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fmt/ranges.h>
#include <limits>
#include <set>
#include <unistd.h>

#include "commands/regress/compare.h"
#include "commands/regress/process.h"
#include "commands/regress/rule.h"
#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/config_files.h"
#include "moe/base/random.h"
#include "moe/base/statistics.h"
#include "moe/record/pass_times.h"
#include "moe/record/reader.h"

namespace moe::regress {

namespace fs = std::filesystem;

std::string program_in(const std::string& dir, const std::string& what) {
  const fs::path folder(dir);
  std::error_code ignored;
  if (fs::is_regular_file(folder, ignored) && ::access(dir.c_str(), X_OK) == 0) return fs::absolute(folder);
  for (const char* place : {"build/release/moetune", "moetune", "bin/moetune", "build/plan/moetune"})
    if (fs::is_regular_file(folder / place, ignored)) return fs::absolute(folder / place);
  bad_input(
      "{}: found no built moetune in '{}', expected a checkout where ./moetune was used, a build folder, or the "
      "program",
      what, dir);
}

std::string own_program() { return fs::read_symlink("/proc/self/exe"); }

namespace {

ptrdiff_t metrics_of(const CaseList& list) {
  return std::ranges::count_if(list.launches, [](const LaunchLine& line) { return line.metric.has_value(); });
}

}  // namespace

Arm arm_in(const std::string& name, const std::string& dir, std::vector<std::string> flags, const CaseList& list,
           const std::string& what) {
  Arm arm;
  arm.name = name;
  arm.flags = std::move(flags);
  if (const ptrdiff_t metrics = metrics_of(list); metrics > 0) {
    arm.folder = dir.empty() ? fs::current_path().string() : dir;
    require<BadInput>(fs::is_directory(arm.folder), "{}: found '{}', expected a folder in which commands can run", what,
                      dir);
    if (metrics == std::ssize(list.launches)) return arm;
  }
  arm.program = dir.empty() ? own_program() : program_in(dir, what);
  return arm;
}

std::string text_of(const Arm& arm) {
  const std::string& where = arm.program.empty() ? arm.folder : arm.program;
  return arm.flags.empty() ? where : fmt::format("{} {}", where, fmt::join(arm.flags, " "));
}

std::optional<OutputMetric> metric_of(const std::string& metric, const std::string& unit) {
  require<BadInput>(unit.empty() || !metric.empty(), "--unit: found {}, expected --metric beside it", shown(unit));
  if (metric.empty()) return std::nullopt;
  return OutputMetric(metric, unit, "--metric");
}

void ask_anew(const CaseList& list, Asked& asked) {
  if (metrics_of(list) == 0) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  asked.flags.push_back(fmt::format("asked {}", std::chrono::duration_cast<std::chrono::microseconds>(now).count()));
}

std::vector<std::string> files_of_program(const std::string& program) {
  std::vector<std::string> files{program};
  if (fs::exists(program + "-run")) files.push_back(program + "-run");
  return files;
}

std::optional<CaseTimes> times_of(const CaseRecord& record, std::string_view sample) {
  if (record.status != CaseStatus::ok || is_repeat(record)) return std::nullopt;
  for (const Samples& samples : record.samples)
    if (samples.name == sample && !samples.values.empty() && !samples.values.front().empty()) {
      const bool counted = record.summary.has("peak_bytes");
      return CaseTimes{samples.values, counted ? record.summary.number("peak_bytes", record.where) : 0};
    }
  return std::nullopt;
}

Launcher::Launcher(std::vector<std::string> before) : before_(std::move(before)) {
  std::error_code error;
  const fs::path temporary = fs::temp_directory_path(error);
  require<BadInput>(!error, "TMPDIR: {}", error.message());
  std::string name = temporary / "moetune-gate-XXXXXX";
  require<BadInput>(::mkdtemp(name.data()) != nullptr, "{}: cannot be made", name);
  folder_ = name;
}

Launcher::~Launcher() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::vector<std::string> Launcher::argv(const Arm& arm, const LaunchLine& line) const {
  std::vector<std::string> words = before_;
  if (!line.metric) words.push_back(arm.program);
  words.insert(words.end(), line.words.begin(), line.words.end());
  words.insert(words.end(), arm.flags.begin(), arm.flags.end());
  return words;
}

std::string Launcher::shown(const Arm& arm, const LaunchLine& line) const {
  return fmt::format("{}", fmt::join(argv(arm, line), " "));
}

LaunchEnd Launcher::run(const Arm& arm, const LaunchLine& line, double timeout_s) const {
  if (line.metric) return run_other(arm, line, timeout_s);
  const std::string records = folder_ + "/records.jsonl";
  fs::remove(records);
  std::vector<std::string> words = argv(arm, line);
  words.insert(words.end(), {"--out", records});
  const ProcessEnd process = run_process(words, timeout_s);
  LaunchEnd end{process.code, process.timed_out, process.wall_s, process.last_line, {}, {}};
  const bool told = process.code == kOk || process.code == kBadInput;  // or nothing of the line could be run
  if (!told || !fs::exists(records)) return end;
  const std::string prefix = line.name.empty() ? "" : line.name + "/";
  const std::vector<Run> runs = read_runs(records);
  for (const std::string_view sample : {kOfLayers, kOfOps}) {
    for (const Run& run : runs)
      for (const CaseRecord& record : run.cases)
        if (auto times = times_of(record, sample)) end.cases[prefix + record.key] = std::move(*times);
    if (!end.cases.empty()) break;
  }
  for (const Run& run : runs)
    for (const CaseRecord& record : run.cases)
      if (record.status != CaseStatus::ok)
        end.not_ok[prefix + record.key] = fmt::format("{}: {}", name_of(record.status), record.reason);
  return end;
}

LaunchEnd Launcher::run_other(const Arm& arm, const LaunchLine& line, double timeout_s) const {
  const OutputMetric::Place place{arm.folder, fs::file_time_type::clock::now()};
  const ProcessEnd process = run_process(argv(arm, line), timeout_s, {arm.folder, true});
  LaunchEnd end{process.code, process.timed_out, process.wall_s, process.last_line, {}, {}};
  if (process.code != kOk) return end;
  OutputMetric::Found found = line.metric->in(process.output, place);
  const auto name_of = [&](const std::string& name) {
    if (name.empty()) return line.name.empty() ? "command" : line.name;
    return line.name.empty() ? name : line.name + "/" + name;
  };
  for (auto& [name, times] : found.cases) end.cases[name_of(name)] = std::move(times);
  for (const auto& [name, why] : found.not_ok) end.not_ok[name_of(name)] = why;
  return end;
}

namespace {

std::chrono::year_month_day date_from(const TableReader& table, std::string_view key) {
  const std::string text = table.text(key);
  int year = 0;
  unsigned month = 0, day = 0;
  char beyond = 0;
  const bool read = std::sscanf(text.c_str(), "%4d-%2u-%2u%c", &year, &month, &day, &beyond) == 3;
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month), std::chrono::day(day)};
  if (!read || !date.ok()) table.fail(key, shown(text), "a date in quotes, \"2030-12-31\"");
  return date;
}

CaseList read_case_list(const std::string& name_or_path) {
  CaseList list;
  list.path = find_config("ci", name_or_path);
  const ConfigFile file = read_toml(list.path);
  const TableReader root(file, {"schema", "launch", "waiver"});
  root.integer("schema", {.least = 1, .most = 1});
  std::set<std::string> names;
  for (const TableReader& table : root.tables("launch", {"name", "command", "demanded", "metric", "unit"})) {
    LaunchLine line{table.name("name"), words_of(table.text("command", false), table.where("command")),
                    table.has("demanded") && table.boolean("demanded")};
    if (table.has("metric"))
      line.metric.emplace(table.text("metric"), table.has("unit") ? table.text("unit") : "", table.where("metric"));
    else if (table.has("unit"))
      table.fail("unit", shown(table.text("unit")), "a metric beside it");
    if (!names.insert(line.name).second) table.fail("name", shown(line.name), "a name of its own");
    list.launches.push_back(std::move(line));
  }
  require<BadInput>(!list.launches.empty(), "{}: launch: found none, expected at least one", list.path);
  for (const TableReader& table : root.tables("waiver", {"case", "reason", "until"}))
    list.waivers.push_back({table.text("case"), table.text("reason"), date_from(table, "until")});
  return list;
}

}  // namespace

CaseList case_list_of(const std::string& verb, const std::string& cases, const std::vector<std::string>& command,
                      std::optional<OutputMetric> metric) {
  require<BadInput>(cases.empty() != command.empty(), "{}: found {}, expected --cases or -- VERB and its flags", verb,
                    cases.empty() ? "neither" : "both");
  if (!cases.empty()) return read_case_list(cases);
  CaseList one;
  one.launches.push_back({"", command, false, std::move(metric)});
  return one;
}

namespace {

constexpr size_t kBlock = 4;  // neighbouring rounds
constexpr double kFloorShare = 0.99;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double log_seconds(const std::optional<CaseTimes>& times) { return times ? std::log(times->seconds()) : kNone; }

// Draws rounds for one gate.
class Draws {
 public:
  Draws(size_t rounds, uint64_t seed, std::string_view what, uint64_t gate)
      : rounds_(rounds), seed_(seed), stream_(stream_of(what, gate)) {}
  size_t next_round() {
    if (left_-- == 0) {
      at_ = draw(rounds_);
      left_ = kBlock - 1;
    } else {
      at_ = (at_ + 1) % rounds_;
    }
    return at_;
  }
  size_t draw(size_t below) { return random_bits(seed_, stream_, index_++) % std::max<size_t>(below, 1); }
  bool happens(double share) { return random_uniform(seed_, stream_, index_++) < share; }

 private:
  size_t rounds_, at_ = 0, left_ = 0;
  uint64_t seed_, stream_, index_ = 0;
};

double slowed_log_seconds(const CaseTimes& times, const Injection& injection, size_t rank, bool slow) {
  if (!slow) return std::log(times.seconds());
  CaseTimes slowed = times;
  for (std::vector<double>& ranks : slowed.samples)
    for (size_t r = 0; r < ranks.size(); ++r)
      if (!injection.one_rank || r == rank % ranks.size()) ranks[r] *= 1 + injection.slowdown;
  return std::log(slowed.seconds());
}

}  // namespace

const std::vector<Injection>& injections() {
  static const std::vector<Injection> kAll{{"none"},
                                           {"+5 % of a case", 0.05},
                                           {"+10 % of a case", 0.10},
                                           {"+10 % of one rank", 0.10, true},
                                           {"a slow mode: +20 % of 1 launch in 4", 0.20, false, 0.25}};
  return kAll;
}

ResampledGates resample(const std::vector<Round>& rounds, const Rule& rule, const Injection& injection, int64_t gates,
                        uint64_t seed) {
  const size_t cases = rounds.front().base.size();
  std::vector<std::vector<Pair>> logs;  // [round][case]
  for (const Round& round : rounds) {
    std::vector<Pair>& of_round = logs.emplace_back();
    for (size_t i = 0; i < cases; ++i) of_round.push_back({log_seconds(round.base[i]), log_seconds(round.head[i])});
  }
  ResampledGates found{gates, 0, 0, 0};
  for (int64_t gate = 0; gate < gates; ++gate) {
    Draws draws(rounds.size(), seed, injection.name, static_cast<uint64_t>(gate));
    const size_t slowed = draws.draw(cases), rank = draws.draw(1 << 16);
    const auto measure = [&](int, const std::vector<bool>&) {
      const size_t r = draws.next_round();
      const bool swapped = draws.happens(0.5), slow = draws.happens(injection.share_of_launches);
      std::vector<Pair> pairs = logs[r];
      if (swapped)
        for (Pair& pair : pairs) std::swap(pair.base, pair.head);
      const std::optional<CaseTimes>& head = (swapped ? rounds[r].base : rounds[r].head)[slowed];
      if (injection.slowdown > 0 && head) pairs[slowed].head = slowed_log_seconds(*head, injection, rank, slow);
      return pairs;
    };
    const GateOutcome outcome = run_gate(cases, rule, measure);
    found.any_slow += std::ranges::any_of(outcome.judged, [](const Judged& j) { return j.verdict == Verdict::slower; });
    found.found += outcome.judged[slowed].verdict == Verdict::slower;
    found.unsure += outcome.judged[slowed].verdict == Verdict::ambiguous;
  }
  return found;
}

double launch_deviation(const std::vector<Round>& rounds, size_t of_case) {
  std::vector<double> ratios;
  for (const Round& round : rounds)
    if (round.base[of_case] && round.head[of_case])
      ratios.push_back(log_seconds(round.head[of_case]) - log_seconds(round.base[of_case]));
  return trimmed_mean(ratios).deviation / std::sqrt(2.0);
}

double floor_of(const std::vector<Round>& rounds, int pairs, int64_t samples, uint64_t seed) {
  const size_t cases = rounds.front().base.size();
  std::vector<std::vector<double>> ratios(rounds.size());  // [round][case]
  for (size_t r = 0; r < rounds.size(); ++r)
    for (size_t i = 0; i < cases; ++i)
      ratios[r].push_back(log_seconds(rounds[r].head[i]) - log_seconds(rounds[r].base[i]));
  std::vector<double> worst;
  for (int64_t sample = 0; sample < samples; ++sample) {
    Draws draws(rounds.size(), seed, "floor", static_cast<uint64_t>(sample));
    std::vector<std::vector<double>> of_case(cases);
    for (int pair = 0; pair < pairs; ++pair) {
      const size_t r = draws.next_round();
      const double sign = draws.happens(0.5) ? -1 : 1;
      for (size_t i = 0; i < cases; ++i)
        if (std::isfinite(ratios[r][i])) of_case[i].push_back(sign * ratios[r][i]);
    }
    double most = 0;
    for (const std::vector<double>& one : of_case) most = std::max(most, std::abs(trimmed_mean(one).mean));
    worst.push_back(most);
  }
  return quantile(std::move(worst), kFloorShare);
}

namespace {

std::optional<double> share_of(const CaseRecord& record, std::string_view name) {
  if (!record.summary.has(name)) return std::nullopt;
  const double share = record.summary.number(name, record.where);
  require<BadInput>(std::isfinite(share) && share >= 0, "{}: {}: found {}, expected a number from 0", record.where,
                    name, share);
  return share;
}

}  // namespace

NoiseFloors::NoiseFloors(const std::string& path) {
  std::error_code ignored;
  if (path.empty() && !std::filesystem::exists(kSelfTestRecords, ignored)) return;
  for (const Run& run : read_runs(path.empty() ? kSelfTestRecords : path))
    for (const CaseRecord& record : run.cases)
      if (record.key == kFloorKey)
        floors_.push_back(
            {run.header.machine, {share_of(record, "within_session"), share_of(record, "between_sessions")}});
}

Floor NoiseFloors::of(const Fields& machine) const {
  Floor last;
  for (const OfMachine& one : floors_) {
    if (!machine_difference(one.machine, machine).empty()) continue;
    if (one.floor.within_session) last.within_session = one.floor.within_session;
    if (one.floor.between_sessions) last.between_sessions = one.floor.between_sessions;
  }
  return last;
}

namespace {

constexpr double kSpike = 0.2, kSlower = 0.12, kNeighbourLasts = 20;

}  // namespace

const std::vector<MachineNoise>& machine_noises() {
  static const std::vector<MachineNoise> kAll{{"quiet", 0.005},
                                              {"even", 0.015},
                                              {"rough", 0.03},
                                              {"drift", 0.015, 0.005},
                                              {"spikes", 0.015, 0, 0.05},
                                              {"two modes", 0.015, 0, 0, 0.2},
                                              {"busy neighbour", 0.015, 0, 0, 0, 0.08},
                                              {"all of it", 0.02, 0.005, 0.03, 0.1, 0.08}};
  return kAll;
}

NoisyLaunches::NoisyLaunches(const MachineNoise& noise, size_t cases, uint64_t seed, uint64_t gate)
    : noise_(noise), seed_(seed), stream_(stream_of(noise.name, gate)), times_(cases) {
  busy_ = noise.neighbour > 0 && uniform() < 0.5;
}

const std::vector<double>& NoisyLaunches::next() {
  if (noise_.drift > 0) level_ += noise_.drift * random_normal(seed_, stream_, index_++);
  if (noise_.neighbour > 0 && uniform() < 1 / kNeighbourLasts) busy_ = !busy_;
  double shared = level_ + (busy_ ? std::log1p(noise_.neighbour) : 0);
  if (noise_.spikes > 0 && uniform() < noise_.spikes) shared += std::log1p(-kSpike * std::log1p(-uniform()));
  for (double& time : times_) {
    time = shared + (busy_ ? 2 : 1) * noise_.launch * random_normal(seed_, stream_, index_++);
    if (noise_.slow_mode > 0 && uniform() < noise_.slow_mode) time += std::log1p(kSlower);
  }
  return times_;
}

}  // namespace moe::regress
