#include "commands/regress/self_test.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

#include "commands/regress/launches.h"
#include "commands/regress/live_gate.h"
#include "commands/regress/noise_floors.h"
#include "commands/regress/process.h"
#include "commands/regress/resampling.h"
#include "commands/regress/rule.h"
#include "moe/base/check.h"
#include "moe/base/enum_array.h"
#include "moe/base/json.h"
#include "moe/base/log.h"
#include "moe/base/random.h"
#include "moe/base/statistics.h"
#include "moe/base/table.h"
#include "moe/base/terminal.h"
#include "moe/base/units.h"
#include "moe/record/machine.h"
#include "moe/record/reader.h"

namespace moe::regress {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kStudiedCases = 38;

class SelfTest {
 public:
  explicit SelfTest(const SelfTestOptions& options)
      : options_(options),
        list_(case_list_of("self-test", options.cases, options.command, metric_of(options.metric, options.unit))),
        base_(arm_in_checkout("base", options.base, {}, list_, "--base")),
        before_(earlier_sessions()),
        writer_(path(), inputs()),
        gate_(setup(), writer_) {
    results_.rule.delta = options.delta_percent / 100;
    results_.program = text_of(base_);
    results_.records = writer_.path();
  }

  int run() {
    const auto start = Clock::now();
    gate_.warm_up();
    if (gate_.cases().empty()) {
      require<BadInput>(!gate_.absent().empty(),
                        "nothing was timed: found no successful case of {}, expected at least one", text_of(base_));
      log_info(fmt::format("nothing to run: this machine lacks the hardware for {}", fmt::join(gate_.absent(), ", ")));
      return kNoHardware;
    }
    measure();
    find_floors();
    results_.rule.delta =
        std::max(results_.rule.delta, *results_.floor.within_session);  // gates on this machine do the same
    resample_gates();
    record();
    results_.wall_s = std::chrono::duration<double>(Clock::now() - start).count();
    fmt::print("{}\n", options_.json ? json_of(results_) : text_of(results_));
    return kOk;
  }

 private:
  std::string path() const { return options_.out.empty() ? kSelfTestRecords : options_.out; }

  PairedRuns::Setup setup() {
    Arm again = base_;
    again.name = "again";
    PairedRuns::Setup setup{
        base_,         again,      list_.launches, words_of(options_.launcher, "--launcher"), options_.timeout_s,
        options_.seed, "self-test"};
    setup.tell = [this](int pair, bool head, size_t of_case, const CaseTimes& times) {
      const auto number = static_cast<size_t>(pair);
      if (number >= rounds_.size()) return;  // a second-stage pair, which only has the suspects
      (head ? rounds_[number].head : rounds_[number].base)[of_case] = times;
    };
    return setup;
  }

  RunInputs inputs() const {
    std::vector<std::string> files = files_of_program(base_.program);
    files.push_back(list_.path);
    Invocation invocation = options_.invocation;
    invocation.flags.insert(invocation.flags.end(), options_.command.begin(), options_.command.end());
    return {invocation, files, {}};
  }

  // Returns the cases' medians by name, for each earlier self-test of the same program and cases on this machine.
  std::vector<std::map<std::string, double>> earlier_sessions() const {
    std::vector<std::map<std::string, double>> sessions;
    if (!std::filesystem::exists(path())) return sessions;
    const std::string digest = stamp_run(inputs()).config_digest;
    for (const Run& run : read_runs(path())) {
      if (!run.ended || run.header.config_digest != digest) continue;
      for (const CaseRecord& record : run.cases)
        if (record.key.starts_with(kSession)) {
          if (record.key == kSession + std::string("0")) sessions.emplace_back();
          sessions.back()[record.parameters.text("case", record.where)] =
              record.summary.number("median_s", record.where);
        }
    }
    return sessions;
  }

  // First pairs are numbered from 0 and become the rounds that are resampled. Second-stage pairs have higher numbers.
  void measure() {
    const int first = results_.rule.first_pairs;
    const size_t cases = gate_.cases().size();
    const std::vector<std::optional<CaseTimes>> none(cases);
    rounds_.assign(options_.gates * first, {none, none});
    const double pair_s = 2 * gate_.launch_s();
    log_info(fmt::format("{} cases, {} gates of {} pairs of launches: about {}, plus more pairs of suspect cases",
                         cases, options_.gates, first, human_seconds(options_.gates * first * pair_s)));
    Progress progress("gates of equal programs", options_.gates * first * pair_s);
    int fresh = options_.gates * first;
    for (int g = 0; g < options_.gates; ++g) {
      const GateOutcome outcome = run_gate(cases, results_.rule, [&](int pair, const std::vector<bool>& wanted) {
        progress.at(static_cast<double>(g * first + std::min(pair, first)) / (options_.gates * first));
        return gate_.pair(pair < first ? g * first + pair : fresh++, wanted);
      });
      const auto is = [](Verdict verdict) { return [=](const CaseJudgement& j) { return j.verdict == verdict; }; };
      const bool slow = std::ranges::any_of(outcome.judged, is(Verdict::slower));
      const bool fast = std::ranges::any_of(outcome.judged, is(Verdict::faster));
      results_.live_slow += slow;
      results_.live_fast += fast;
      log_info(fmt::format("gate {} of {}: {}", g + 1, options_.gates,
                           slow   ? "false SLOW"
                           : fast ? "false FAST"
                                  : counted(outcome.pairs, "pair") + ", none"));
      results_.live_pairs += outcome.pairs;
    }
    progress.finish();
    results_.live_gates = options_.gates;
  }

  void resample_gates() {
    Progress progress("gates made of the recorded launches");
    for (const Injection& injection : injections()) {
      progress.at(static_cast<double>(results_.rows.size()) / static_cast<double>(injections().size()));
      results_.rows.push_back(
          {injection, resample(rounds_, results_.rule, injection, options_.resamples, options_.seed)});
    }
    progress.finish();
  }

  void find_floors() {
    for (size_t i = 0; i < gate_.cases().size(); ++i) {
      std::vector<double> seconds;
      for (const Round& round : rounds_)
        for (const auto* times : {&round.base[i], &round.head[i]})
          if (*times) seconds.push_back((*times)->seconds());
      if (!seconds.empty()) results_.cases.push_back({gate_.cases()[i], median(seconds), launch_deviation(rounds_, i)});
    }
    const double log_floor = noise_floor_of(rounds_, results_.rule.min_pairs, options_.resamples, options_.seed);
    results_.floor.within_session = std::expm1(log_floor);
    double apart = 0;
    for (const SelfTestedCase& c : results_.cases) {
      double least = c.median_s, most = c.median_s;
      for (const auto& session : before_)
        if (const auto then = session.find(c.name); then != session.end()) {
          least = std::min(least, then->second);
          most = std::max(most, then->second);
        }
      apart = std::max(apart, std::log(most / least));
    }
    if (!before_.empty()) results_.floor.between_sessions = std::expm1(apart);
    results_.sessions = static_cast<int>(before_.size()) + 1;
  }

  void record() {
    for (size_t i = 0; i < results_.cases.size(); ++i) {
      const SelfTestedCase& c = results_.cases[i];
      CaseRecord record;
      record.key = fmt::format("{}{}", kSession, i);
      record.backend = "none";
      record.parameters = {{"case", c.name}};
      record.summary = {{"median_s", c.median_s}, {"launch_deviation", c.launch_deviation}};
      writer_.append(record);
    }
    CaseRecord record;
    record.key = kFloorKey;
    record.backend = "none";
    record.parameters = {{"sessions", int64_t{results_.sessions}}};
    record.summary = {{"within_session", *results_.floor.within_session}};
    if (results_.floor.between_sessions) record.summary.set("between_sessions", *results_.floor.between_sessions);
    writer_.append(record);
    writer_.end();
  }

  static constexpr const char* kSession = "self-test/session/";

  const SelfTestOptions& options_;
  CaseList list_;
  Arm base_;
  std::vector<std::map<std::string, double>> before_;
  RecordWriter writer_;
  PairedRuns gate_;
  std::vector<Round> rounds_;
  SelfTestResults results_;
};

}  // namespace

int run_self_test(const SelfTestOptions& options) {
  if (options.simulate) {
    const auto rows = study_rules({.delta = options.delta_percent / 100}, kStudiedCases, options.resamples,
                                  {0, 0.05, 0.10}, options.seed);
    fmt::print("{}\n", options.json ? json_of(rows) : text_of(rows));
    return kOk;
  }
  return run_interruptibly([&] { return SelfTest(options).run(); });
}

namespace {

constexpr double kConfidence = 0.95;

std::string share_text(int64_t hits, int64_t of) {
  const Interval interval = share_interval(hits, of, kConfidence);
  return fmt::format("{:.2f} % ({:.2f} to {:.2f})", 100 * static_cast<double>(hits) / static_cast<double>(of),
                     100 * interval.min, 100 * interval.max);
}

Json share_json(int64_t hits, int64_t of) {
  const Interval interval = share_interval(hits, of, kConfidence);
  return {{"share", static_cast<double>(hits) / static_cast<double>(of)},
          {"least", interval.min},
          {"most", interval.max},
          {"of", of}};
}

double visible_slowdown(const SelfTestedCase& c, const SelfTestResults& results) {
  return min_detectable_change(c.launch_deviation * std::sqrt(2.0), results.cases.size(), results.rule);
}

}  // namespace

std::string text_of(const SelfTestResults& results) {
  std::string text = fmt::format("{}: equal programs, {} gates of six pairs, {} pairs in all\n\n", results.program,
                                 results.live_gates, results.live_pairs);
  Table cases({"case", "median ms", "deviation of a launch", "slowdown that 19 of 20 gates find"});
  for (const SelfTestedCase& c : results.cases)
    cases.add({c.name, fmt::format("{:.3f}", 1e3 * c.median_s), percent(c.launch_deviation, 2),
               percent(visible_slowdown(c, results))});
  text += cases.text() + "\n";
  Table gates({"change to the head", "gates", "found SLOW", "left AMBG"});
  gates.add({"nothing (live)", fmt::format("{}", results.live_gates), share_text(results.live_slow, results.live_gates),
             "-"});
  for (const SelfTestResults::Row& row : results.rows) {
    const bool none = row.injection.slowdown == 0;
    gates.add({none ? "nothing" : std::string(row.injection.name), fmt::format("{}", row.gates.gates),
               share_text(none ? row.gates.any_slow : row.gates.found, row.gates.gates),
               none ? "-" : share_text(row.gates.unsure, row.gates.gates)});
  }
  text += gates.text() + "\n";
  const double within = *results.floor.within_session;
  text += fmt::format("floor within a session {:.1f} %: gates on this machine use delta = {:.1f} %\n", 100 * within,
                      100 * results.rule.delta);
  text +=
      results.floor.between_sessions
          ? fmt::format("floor between {} sessions {:.1f} %\n", results.sessions, 100 * *results.floor.between_sessions)
          : "floor between sessions: unknown; run self-test on this build again later to measure it\n";
  return text + fmt::format("time {}\nrecords  {}", human_seconds(results.wall_s), results.records);
}

std::string json_of(const SelfTestResults& results) {
  Json cases = Json::array(), gates = Json::array();
  for (const SelfTestedCase& c : results.cases)
    cases.push_back({{"case", c.name},
                     {"median_s", c.median_s},
                     {"launch_deviation", c.launch_deviation},
                     {"visible", visible_slowdown(c, results)}});
  for (const SelfTestResults::Row& row : results.rows)
    gates.push_back({{"injected", row.injection.name},
                     {"any_slow", share_json(row.gates.any_slow, row.gates.gates)},
                     {"found", share_json(row.gates.found, row.gates.gates)},
                     {"ambiguous", share_json(row.gates.unsure, row.gates.gates)}});
  return document_text(
      Json{{"program", results.program},
           {"delta", results.rule.delta},
           {"live_gates", results.live_gates},
           {"live_pairs", results.live_pairs},
           {"live_slow", results.live_slow},
           {"live_fast", results.live_fast},
           {"cases", cases},
           {"gates", gates},
           {"within_session", *results.floor.within_session},
           {"between_sessions", results.floor.between_sessions ? Json(*results.floor.between_sessions) : Json()},
           {"sessions", results.sessions},
           {"wall_s", results.wall_s},
           {"records", results.records}});
}

std::string text_of(const std::vector<StudyRow>& rows) {
  Table table({"machine", "slower", "gates", "ours", "pairs", "U-test", "ratio", "Welch"});
  for (size_t i = 0; i + kGateRules <= rows.size(); i += kGateRules) {
    std::vector<std::string> cells{std::string(rows[i].noise),
                                   rows[i].slowdown == 0 ? "none" : percent(rows[i].slowdown, 0),
                                   fmt::format("{}", rows[i].gates), share_text(rows[i].found, rows[i].gates),
                                   fmt::format("{:.1f}", rows[i].pairs)};
    for (size_t r = 1; r < kGateRules; ++r)
      cells.push_back(fmt::format(
          "{:.2f} %", 100 * static_cast<double>(rows[i + r].found) / static_cast<double>(rows[i + r].gates)));
    table.add(std::move(cells));
  }
  return "share of gates (38 cases each) with a SLOW case; if one case is slower, share of gates that find it\n\n" +
         table.text();
}

std::string json_of(const std::vector<StudyRow>& rows) {
  Json json = Json::array();
  for (const StudyRow& row : rows)
    json.push_back({{"machine", row.noise},
                    {"rule", name_of(row.rule)},
                    {"slowdown", row.slowdown},
                    {"found", share_json(row.found, row.gates)},
                    {"pairs", row.pairs}});
  return document_text(json);
}

namespace {

// Launches of simulated machines, to find out how often a rule is wrong.

// The noise of a simulated machine, in shares of a launch's time. Drift, spikes and neighbours affect all cases of a
// launch alike.
struct MachineNoise {
  std::string_view name;
  double launch = 0.015;  // standard deviation of a case in a launch
  double drift = 0;       // standard deviation of a random walk's step from launch to launch
  double spikes = 0;      // share of disturbed launches, which take 20 % longer in the mean (exponentially)
  double slow_mode = 0;   // share of a case's launches that are 12 % slower
  double neighbour = 0;   // slowdown while a neighbour is busy, which starts or ends about every 20 launches
};
// Generates launches in the order of time; the same seed and gate give the same launches.
class NoisyLaunches {
 public:
  NoisyLaunches(const MachineNoise& noise, size_t cases, uint64_t seed, uint64_t gate);
  // Returns the log seconds of every case in the next launch; they scatter around 0.
  const std::vector<double>& next();
  // Returns a uniform random number in [0, 1).
  double uniform() { return random_uniform(seed_, stream_, index_++); }

 private:
  const MachineNoise& noise_;
  uint64_t seed_, stream_, index_ = 0;
  double level_ = 0;  // current value of the random walk
  bool busy_ = false;
  std::vector<double> times_;
};

constexpr double kSpike = 0.2, kSlower = 0.12, kNeighbourLasts = 20;

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
    : noise_(noise), seed_(seed), stream_(random_stream_id(noise.name, gate)), times_(cases) {
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

constexpr EnumArray<GateRule, std::string_view, kGateRules> kStudied{"ours", "U-test", "ratio", "Welch"};
constexpr double kOthersLevel = 0.05, kOthersRatio = 1.05;

// One gate on a simulated machine; the head of the case `slowed` takes `log_slowdown` more log seconds.
struct StudiedGate {
  const MachineNoise& noise;
  size_t cases = 0;
  uint64_t seed = 0, number = 0;
  size_t slowed = 0;
  double log_slowdown = 0;
  NoisyLaunches launches() const { return {noise, cases, seed, number}; }
};

// Returns whether the gate calls the slowed case (without one, any case) slower. Adds the gate's pairs to `pairs`.
bool finds_slower(const StudiedGate& gate, const Rule& rule, int& pairs) {
  NoisyLaunches launches = gate.launches();
  const auto measure = [&](int, const std::vector<bool>&) {
    std::vector<Pair> measured(gate.cases);
    const bool head_first = launches.uniform() < 0.5;
    for (const bool head : {head_first, !head_first}) {
      const std::vector<double>& times = launches.next();
      for (size_t i = 0; i < gate.cases; ++i) (head ? measured[i].head : measured[i].base) = times[i];
    }
    if (gate.log_slowdown > 0) measured[gate.slowed].head += gate.log_slowdown;
    return measured;
  };
  const GateOutcome outcome = run_gate(gate.cases, rule, measure);
  pairs += outcome.pairs;
  if (gate.log_slowdown > 0) return outcome.judged[gate.slowed].verdict == Verdict::slower;
  return std::ranges::any_of(outcome.judged, [](const CaseJudgement& j) { return j.verdict == Verdict::slower; });
}

// Launches of both programs: all of the base, then all of the head.
struct Blocked {
  std::vector<std::vector<double>> base, head;  // [case][launch]
};

Blocked blocked_launches(const StudiedGate& gate) {
  NoisyLaunches launches = gate.launches();
  Blocked blocked{std::vector<std::vector<double>>(gate.cases), std::vector<std::vector<double>>(gate.cases)};
  for (auto* arm : {&blocked.base, &blocked.head})
    for (int n = 0; n < kBlockedLaunches; ++n) {
      const std::vector<double>& times = launches.next();
      for (size_t i = 0; i < gate.cases; ++i) (*arm)[i].push_back(times[i]);
    }
  if (gate.log_slowdown > 0)
    for (double& time : blocked.head[gate.slowed]) time += gate.log_slowdown;
  return blocked;
}

bool is_slower(GateRule rule, const std::vector<double>& base, const std::vector<double>& head) {
  const double ratio = std::exp(median(head) - median(base));
  if (rule == GateRule::ratio) return ratio > kOthersRatio;
  return ratio > 1 && (rule == GateRule::welch ? welch_p(base, head) : rank_sum_p(base, head)) <= kOthersLevel;
}

bool other_rule_finds(GateRule rule, const Blocked& blocked, bool any, size_t slowed) {
  for (size_t i = 0; i < blocked.base.size(); ++i)
    if ((any || i == slowed) && is_slower(rule, blocked.base[i], blocked.head[i])) return true;
  return false;
}

}  // namespace

std::string_view name_of(GateRule rule) { return kStudied[rule]; }

std::vector<StudyRow> study_rules(const Rule& rule, size_t cases, int64_t gates, const std::vector<double>& slowdowns,
                                  uint64_t seed) {
  std::vector<StudyRow> rows;
  for (const MachineNoise& noise : machine_noises())
    for (const double slowdown : slowdowns) {
      EnumArray<GateRule, StudyRow, kGateRules> of_rule;
      for (size_t r = 0; r < of_rule.size(); ++r) of_rule[r] = {noise.name, static_cast<GateRule>(r), slowdown, gates};
      int pairs = 0;
      for (int64_t gate = 0; gate < gates; ++gate) {
        const auto number = static_cast<uint64_t>(gate);
        const StudiedGate studied{
            noise, cases, seed, number, static_cast<size_t>(number) % cases, std::log1p(slowdown)};
        of_rule[0].found += finds_slower(studied, rule, pairs);
        const Blocked blocked = blocked_launches(studied);
        for (size_t r = 1; r < of_rule.size(); ++r)
          of_rule[r].found += other_rule_finds(static_cast<GateRule>(r), blocked, slowdown == 0, studied.slowed);
      }
      of_rule[0].pairs = static_cast<double>(pairs) / static_cast<double>(gates);
      for (size_t r = 1; r < of_rule.size(); ++r) of_rule[r].pairs = kBlockedLaunches;
      rows.insert(rows.end(), of_rule.begin(), of_rule.end());
    }
  return rows;
}

}  // namespace moe::regress
