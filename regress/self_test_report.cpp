#include "regress/self_test_report.h"

#include <cmath>
#include <fmt/format.h>

#include "moe/base/json.h"
#include "moe/base/statistics.h"
#include "moe/base/table.h"
#include "moe/base/units.h"

namespace moe::regress {
namespace {

constexpr double kConfidence = 0.95;

std::string share_text(int64_t hits, int64_t of) {
  const Interval interval = share_interval(hits, of, kConfidence);
  return fmt::format("{:.2f} % ({:.2f} to {:.2f})", 100 * static_cast<double>(hits) / static_cast<double>(of),
                     100 * interval.least, 100 * interval.most);
}

Json share_json(int64_t hits, int64_t of) {
  const Interval interval = share_interval(hits, of, kConfidence);
  return {{"share", static_cast<double>(hits) / static_cast<double>(of)},
          {"least", interval.least},
          {"most", interval.most},
          {"of", of}};
}

double visible(const SelfTestedCase& c, const SelfTestResults& results) {
  return smallest_visible(c.launch_deviation * std::sqrt(2.0), results.cases.size(), results.rule);
}

}  // namespace

std::string text_of(const SelfTestResults& results) {
  std::string text = fmt::format("{}: equal programs, {} gates of six pairs, {} pairs in all\n\n", results.program,
                                 results.live_gates, results.live_pairs);
  Table cases({"case", "median ms", "a launch's deviation", "slowdown that 19 of 20 gates find"});
  for (const SelfTestedCase& c : results.cases)
    cases.add({c.name, fmt::format("{:.3f}", 1e3 * c.median_s), percent(c.launch_deviation, 2),
               percent(visible(c, results))});
  text += cases.text() + "\n";
  Table gates({"done to the head", "gates", "found SLOW", "left AMBG"});
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
  text += fmt::format("floor within a session {:.1f} %: gates here take delta = {:.1f} %\n", 100 * within,
                      100 * results.rule.delta);
  text +=
      results.floor.between_sessions
          ? fmt::format("floor between {} sessions {:.1f} %\n", results.sessions, 100 * *results.floor.between_sessions)
          : "floor between sessions: not known; it takes another self-test of this build, later\n";
  return text + fmt::format("time {}\nrecords  {}", human_seconds(results.wall_s), results.records);
}

std::string json_of(const SelfTestResults& results) {
  Json cases = Json::array(), gates = Json::array();
  for (const SelfTestedCase& c : results.cases)
    cases.push_back({{"case", c.name},
                     {"median_s", c.median_s},
                     {"launch_deviation", c.launch_deviation},
                     {"visible", visible(c, results)}});
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
  return "gates of 38 cases with a SLOW; where one case is slower, gates that find it\n\n" + table.text();
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

}  // namespace moe::regress
