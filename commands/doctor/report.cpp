#include <algorithm>
#include <fmt/format.h>

#include "commands/doctor/doctor.h"
#include "moe/base/json.h"
#include "moe/base/table.h"
#include "moe/base/units.h"
#include "moe/record/record_json.h"

namespace moe::doctor {
namespace {

constexpr size_t kMaxRows = 20, kMaxCommands = 12;  // rows and commands that fit on a screen, without --all

int64_t count(const Report& report, Level level) { return std::ranges::count(report.findings, level, &Finding::level); }

/// Returns a summary: "A CPU, 16 cores, 2 NUMA nodes, 62.5 GiB, 8 x NVIDIA H200".
std::string described(const Fields& machine) {
  std::string text = fmt::format("{}, {} cores", machine.text("cpu", "machine"), machine.whole("cores", "machine"));
  if (const Scalar* nodes = machine.find("numa_nodes"); nodes != nullptr && *nodes > Scalar(int64_t{1}))
    text += fmt::format(", {} NUMA nodes", std::get<int64_t>(*nodes));
  text += ", " + human_bytes(machine.number("memory_bytes", "machine"));
  if (machine.has("gpu")) text += ", " + machine.text("gpu", "machine");
  return text;
}

}  // namespace

std::string_view name_of(Level level) { return level == Level::ok ? "ok" : level == Level::note ? "note" : "warn"; }

std::string text_of(const Report& report, bool all) {
  Table table({"level", "area", "found", "meaning"});
  std::string commands;
  size_t rows = 0, hidden = 0, commanded = 0;
  for (const auto& [level, area, found, meaning, command] : report.findings) {
    if (level == Level::ok && !all) continue;
    if (!all && rows == kMaxRows) {
      ++hidden;
      continue;
    }
    ++rows;
    table.add({std::string(name_of(level)), area, found, meaning});
    const std::string line = fmt::format("  {:<8}  {}\n", area, command);
    if (command.empty() || (!all && commanded == kMaxCommands) || commands.find(line) != std::string::npos) continue;
    ++commanded;
    commands += line;
  }
  std::string text =
      fmt::format("machine {}: {}\n", report.machine.text("fingerprint", "machine"), described(report.machine));
  text += fmt::format("warnings: {}, notes: {}, ok: {}{}\n\n", count(report, Level::warn), count(report, Level::note),
                      count(report, Level::ok), all ? "" : " (--all shows them)");
  if (!table.empty()) text += table.text();
  if (hidden > 0) text += fmt::format("  and {} more (--all)\n", hidden);
  if (!commands.empty())
    text += "\ncommands that change or show these conditions (none of them was run):\n\n" + commands;
  return text;
}

std::string json_of(const Report& report) {
  Json findings = Json::array();
  for (const auto& [level, area, found, meaning, command] : report.findings)
    findings.push_back(
        {{"level", name_of(level)}, {"area", area}, {"found", found}, {"meaning", meaning}, {"command", command}});
  const Json document{{"fingerprint", report.machine.text("fingerprint", "machine")},
                      {"machine", to_json(report.machine)},
                      {"conditions", to_json(report.conditions)},
                      {"warnings", count(report, Level::warn)},
                      {"findings", std::move(findings)}};
  return document_text(document) + "\n";
}

}  // namespace moe::doctor
