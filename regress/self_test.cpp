#include "regress/self_test.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fmt/ranges.h>
#include <set>

#include "moe/base/check.h"
#include "moe/base/exit_code.h"
#include "moe/base/log.h"
#include "moe/base/progress.h"
#include "moe/base/statistics.h"
#include "moe/base/units.h"
#include "moe/record/reader.h"
#include "moe/record/stamp.h"
#include "regress/floor.h"
#include "regress/live_gate.h"
#include "regress/process.h"
#include "regress/rule_study.h"
#include "regress/self_test_report.h"

namespace moe::regress {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kStudiedCases = 38;

class SelfTest {
 public:
  explicit SelfTest(const SelfTestOptions& options)
      : options_(options),
        list_(case_list_of("self-test", options.cases, options.command)),
        program_(options.base.empty() ? own_program() : program_in(options.base, "--base")),
        before_(earlier_sessions()),
        writer_(path(), question()),
        gate_(setup(), writer_) {
    results_.rule.delta = options.delta_percent / 100;
    results_.program = program_;
    results_.records = writer_.path();
  }

  int run() {
    const auto start = Clock::now();
    gate_.warm_up();
    if (gate_.cases().empty()) {
      require<BadInput>(!gate_.absent().empty(), "nothing was timed: no case of {} is ok", program_);
      log_info(fmt::format("nothing to run: the hardware of {} is not here", fmt::join(gate_.absent(), ", ")));
      return kNoHardware;
    }
    measure();
    find_floors();
    results_.rule.delta = std::max(results_.rule.delta, *results_.floor.within_session);  // as gates here take it
    resample_gates();
    record();
    results_.wall_s = std::chrono::duration<double>(Clock::now() - start).count();
    fmt::print("{}\n", options_.json ? json_of(results_) : text_of(results_));
    return kOk;
  }

 private:
  std::string path() const { return options_.out.empty() ? kSelfTestRecords : options_.out; }

  LiveGate::Setup setup() {
    const Arm arm{"base", program_, {}};
    LiveGate::Setup setup{arm,
                          {"again", program_, {}},
                          list_.launches,
                          words_of(options_.launcher, "--launcher"),
                          options_.timeout_s,
                          options_.seed,
                          "self-test"};
    setup.tell = [this](int pair, bool head, size_t of_case, const CaseTimes& times) {
      const auto number = static_cast<size_t>(pair);
      if (number >= rounds_.size()) return;  // a suspect's fresh pair: of some cases alone
      (head ? rounds_[number].head : rounds_[number].base)[of_case] = times;
    };
    return setup;
  }

  Question question() const {
    std::vector<std::string> files = files_of_program(program_);
    files.push_back(list_.path);
    Asked asked = options_.asked;
    asked.flags.insert(asked.flags.end(), options_.command.begin(), options_.command.end());
    return {asked, files, {}};
  }

  // Returns the medians of the cases of earlier runs of the same question: program, cases, machine.
  std::vector<std::map<std::string, double>> earlier_sessions() const {
    std::vector<std::map<std::string, double>> sessions;
    if (!std::filesystem::exists(path())) return sessions;
    const std::string digest = stamp_run(question()).config_digest;
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

  // The first pairs of all gates are the rounds that are resampled; fresh pairs of suspects stand behind them.
  void measure() {
    const int first = results_.rule.first_pairs;
    const size_t cases = gate_.cases().size();
    const std::vector<std::optional<CaseTimes>> none(cases);
    rounds_.assign(static_cast<size_t>(options_.gates * first), {none, none});
    const double pair_s = 2 * gate_.launch_s();
    log_info(fmt::format("{} cases, {} gates of {} pairs of launches: about {}, and fresh pairs of what is suspect",
                         cases, options_.gates, first, human_seconds(options_.gates * first * pair_s)));
    Progress progress("gates of equal programs", options_.gates * first * pair_s);
    int fresh = options_.gates * first;
    for (int g = 0; g < options_.gates; ++g) {
      const GateOutcome outcome = run_gate(cases, results_.rule, [&](int pair, const std::vector<bool>& wanted) {
        progress.at(static_cast<double>(g * first + std::min(pair, first)) / (options_.gates * first));
        return gate_.pair(pair < first ? g * first + pair : fresh++, wanted);
      });
      const auto is = [](Verdict verdict) { return [=](const Judged& j) { return j.verdict == verdict; }; };
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
    progress.done();
    results_.live_gates = options_.gates;
  }

  void resample_gates() {
    Progress progress("gates made of the recorded launches");
    for (const Injection& injection : injections()) {
      progress.at(static_cast<double>(results_.rows.size()) / static_cast<double>(injections().size()));
      results_.rows.push_back(
          {injection, resample(rounds_, results_.rule, injection, options_.resamples, options_.seed)});
    }
    progress.done();
  }

  void find_floors() {
    for (size_t i = 0; i < gate_.cases().size(); ++i) {
      std::vector<double> seconds;
      for (const Round& round : rounds_)
        for (const auto* times : {&round.base[i], &round.head[i]})
          if (*times) seconds.push_back((*times)->seconds());
      if (!seconds.empty()) results_.cases.push_back({gate_.cases()[i], median(seconds), launch_deviation(rounds_, i)});
    }
    const double log_floor = floor_of(rounds_, results_.rule.least_pairs, options_.resamples, options_.seed);
    results_.floor.within_session = std::expm1(log_floor);
    double apart = 0;
    for (const SelfTestedCase& c : results_.cases) {
      double least = c.median_s, most = c.median_s;
      for (const auto& session : before_)
        if (const auto then = session.find(c.name); then != session.end())
          least = std::min(least, then->second), most = std::max(most, then->second);
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
  std::string program_;
  std::vector<std::map<std::string, double>> before_;
  RecordWriter writer_;
  LiveGate gate_;
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

}  // namespace moe::regress
