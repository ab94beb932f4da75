#include "regress/compare_report.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "moe/base/table.h"
#include "moe/base/units.h"
#include "moe/base/utf8.h"

namespace moe::regress {
namespace {

constexpr size_t kShownNames = 3;
constexpr size_t kShownDigits = 12;  // of a commit

std::string commit_of(const RunHeader& run) {
  const Scalar* commit = run.git.find("commit");
  const Scalar* dirty = run.git.find("dirty");
  if (!commit || !std::holds_alternative<std::string>(*commit)) return "unknown";
  return std::get<std::string>(*commit).substr(0, kShownDigits) + (dirty && *dirty == Scalar(true) ? "-dirty" : "");
}

/// Returns "a, b, c and 2 more".
std::string names(const std::vector<std::string>& all, bool every) {
  const size_t shown = every ? all.size() : std::min(all.size(), kShownNames);
  std::string text = fmt::format("{}", fmt::join(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  return text + (shown < all.size() ? fmt::format(" and {} more", all.size() - shown) : "");
}

std::string value_text(Metric metric, double value) {
  return metric == Metric::time ? human_seconds(value) : human_bytes(value);
}

/// Puts the parts together, as paragraphs.
class Text {
 public:
  explicit Text(ReportLook look) : look_(look) {}

  void line(const std::string& text) {
    text_ += look_.markdown ? fmt::format("- {}\n", markdown_text(text)) : fmt::format("{}\n", printable(text));
  }
  void table(const Table& table) { text_ += fmt::format("\n{}\n", look_.markdown ? table.markdown() : table.text()); }
  std::string take() { return std::move(text_); }

 private:
  ReportLook look_;
  std::string text_;
};

void add_side(Text& text, std::string_view name, const Side& side) {
  for (const Side::OfFile& of : side.files)
    text.line(fmt::format("{}: {}, {}, {}{}", name, of.file, of.run.header.started, commit_of(of.run.header),
                          of.run.ended ? "" : "; this run was broken off"));
}

void add_cases(Text& text, const Comparison& c, bool all) {
  Table table({"case", "metric", "BASE", "HEAD", "ratio", "verdict"});
  size_t same = 0;
  for (const ComparedCase& one : c.cases) {
    same += one.verdict == Verdict::same;
    if (one.verdict != Verdict::same || all)
      table.add({one.key, std::string(name_of(one.metric)), value_text(one.metric, one.base),
                 value_text(one.metric, one.head), fmt::format("{:.3f}x", one.ratio()),
                 std::string(name_of(one.verdict))});
  }
  if (!table.empty()) text.table(table);
  text.line(fmt::format("SAME: {} of {}{}", same, c.cases.size(), same && !all ? " (--all shows them)" : ""));
}

void add_groups(Text& text, const Comparison& c) {
  Table table({"geometric mean", "metric", "cases", "ratio"});
  for (const GroupRatio& group : c.groups)
    table.add({group.group, std::string(name_of(group.metric)), fmt::format("{}", group.cases),
               fmt::format("{:.3f}x", group.ratio)});
  text.table(table);
}

void add_refused(Text& text, const Comparison& c, bool all) {
  std::map<std::string, std::vector<std::string>> keys;  // by reason
  for (const CaseRemark& one : c.refused) keys[one.why].push_back(one.key);
  for (const auto& [why, of] : keys)
    text.line(fmt::format("not compared: {} ({}): {}", of.size(), names(of, all), why));
}

void add_floor(Text& text, const Comparison& c) {
  if (std::ranges::find(c.cases, Verdict::ambiguous, &ComparedCase::verdict) != c.cases.end())
    text.line(
        "AMBG: how far sessions of the same code differ on this machine is not known, so that no time is called "
        "SLOW; a self-test measures it");
}

Json remarks(const std::vector<CaseRemark>& all) {
  Json json = Json::array();
  for (const CaseRemark& one : all) json.push_back({{"key", one.key}, {"reason", one.why}});
  return json;
}

Json side_json(const Side& side) {
  Json json{{"path", side.path}, {"runs", Json::array()}};
  for (const Side::OfFile& of : side.files)
    json["runs"].push_back({{"file", of.file},
                            {"started", of.run.header.started},
                            {"commit", commit_of(of.run.header)},
                            {"ended", of.run.ended}});
  return json;
}

}  // namespace

std::string comparison_text(const Side& base, const Side& head, const Comparison& c, ReportLook look) {
  Text text(look);
  for (const CaseRemark& one : c.broken) text.line(fmt::format("broken: {}: {}", one.key, one.why));
  add_side(text, "BASE", base);
  add_side(text, "HEAD", head);
  if (!c.cases.empty()) {
    add_cases(text, c, look.all);
    add_groups(text, c);
  }
  add_floor(text, c);
  add_refused(text, c, look.all);
  for (const auto& [name, keys] : {std::pair("BASE", &c.only_in_base), std::pair("HEAD", &c.only_in_head)})
    if (!keys->empty()) text.line(fmt::format("only in {}: {} ({})", name, keys->size(), names(*keys, look.all)));
  return text.take();
}

Json to_json(const Side& base, const Side& head, const Comparison& c) {
  Json json{{"base", side_json(base)},        {"head", side_json(head)},       {"broken", remarks(c.broken)},
            {"cases", Json::array()},         {"groups", Json::array()},       {"refused", remarks(c.refused)},
            {"only_in_base", c.only_in_base}, {"only_in_head", c.only_in_head}};
  for (const ComparedCase& one : c.cases)
    json["cases"].push_back({{"key", one.key},
                             {"group", one.group},
                             {"metric", name_of(one.metric)},
                             {"base", one.base},
                             {"head", one.head},
                             {"ratio", one.ratio()},
                             {"floor", one.floor ? Json(*one.floor) : Json()},
                             {"verdict", name_of(one.verdict)}});
  for (const GroupRatio& group : c.groups)
    json["groups"].push_back(
        {{"group", group.group}, {"metric", name_of(group.metric)}, {"cases", group.cases}, {"ratio", group.ratio}});
  return json;
}

}  // namespace moe::regress
