#include "regress/case_list.h"

#include <set>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/config_files.h"
#include "regress/process.h"

namespace moe::regress {
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
  for (const TableReader& table : root.tables("launch", {"name", "command", "demanded"})) {
    LaunchLine line{table.name("name"), words_of(table.text("command", false), table.where("command")),
                    table.has("demanded") && table.boolean("demanded")};
    if (!names.insert(line.name).second) table.fail("name", shown(line.name), "a name of its own");
    list.launches.push_back(std::move(line));
  }
  require<BadInput>(!list.launches.empty(), "{}: launch: found none, expected at least one", list.path);
  for (const TableReader& table : root.tables("waiver", {"case", "reason", "until"}))
    list.waivers.push_back({table.text("case"), table.text("reason"), date_from(table, "until")});
  return list;
}

}  // namespace

CaseList case_list_of(const std::string& verb, const std::string& cases, const std::vector<std::string>& command) {
  require<BadInput>(cases.empty() != command.empty(), "{}: found {}, expected --cases or -- VERB and its flags", verb,
                    cases.empty() ? "neither" : "both");
  return cases.empty() ? CaseList{{}, {{"", command}}, {}} : read_case_list(cases);
}

}  // namespace moe::regress
