#include "commands/reproduce/report.h"

#include <algorithm>

#include "moe/base/check.h"
#include "moe/base/table.h"

namespace moe::reproduce {
namespace {

std::string value_text(std::optional<double> value, const Quantity& q) {
  return value ? fmt::format("{:.{}f}", *value * q.scale, q.digits) : "-";
}

std::vector<std::string> conventions_of(const Comparison& c) {
  std::vector<std::string> names;
  for (const Figure& f : c.figures)
    if (std::ranges::find(names, f.convention) == names.end()) names.push_back(f.convention);
  return names;
}

size_t columns_of(ReportStyle style) {
  return style == ReportStyle::markdown ? kColumns : static_cast<size_t>(limited_output_columns(kColumns));
}

std::string table_text(const TextTable& t, ReportStyle style) {
  Table table(t.header);
  for (const auto& row : t.rows) table.add(row);
  const bool markdown = style == ReportStyle::markdown;
  std::string text = t.caption.empty() ? "" : wrapped(t.caption, "", columns_of(style)) + (markdown ? "\n" : "");
  return text + (markdown ? "```text\n" + table.text(std::nullopt) + "```\n" : table.text()) + "\n";
}

std::string list_text(std::string_view title, const std::vector<std::string>& items, ReportStyle style) {
  if (items.empty()) return "";
  std::string text = style == ReportStyle::markdown ? fmt::format("**{}**\n\n", title) : fmt::format("{}\n", title);
  for (const std::string& item : items)
    text += wrapped(item, style == ReportStyle::markdown ? "- " : "  - ", columns_of(style));
  return text + "\n";
}

}  // namespace

std::string difference(std::optional<double> ours, std::optional<double> paper) {
  if (!ours || !paper || *paper == 0) return "-";
  return fmt::format("{:+.1f} %", 100 * (*ours / *paper - 1));
}

std::string wrapped(std::string_view text, std::string_view first, size_t columns) {
  std::string lines(first);
  size_t used = first.size();
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (used > first.size() && used + 1 + word.size() > columns) {
      lines += '\n' + std::string(first.size(), ' ');
      used = first.size();
    }
    if (used > first.size()) lines += ' ', ++used;
    lines += word;
    used += word.size();
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines + '\n';
}

TextTable comparison_table(const Comparison& c) {
  const auto names = conventions_of(c);
  TextTable table{c.caption, c.label_names, {}};
  table.header.push_back(fmt::format("paper, {}", c.quantity.unit));
  for (const std::string& name : names) {
    table.header.push_back(name.empty() ? "ours" : name);
    table.header.emplace_back("difference");
  }
  const size_t labels = c.label_names.size();
  for (const Figure& f : c.figures) {
    require_equal(f.labels.size(), labels, "comparison: labels of a figure");
    auto row = std::ranges::find_if(
        table.rows, [&](const auto& cells) { return std::equal(f.labels.begin(), f.labels.end(), cells.begin()); });
    if (row == table.rows.end()) {
      table.rows.push_back(f.labels);
      table.rows.back().resize(table.header.size(), "-");
      row = table.rows.end() - 1;
    }
    const size_t at = static_cast<size_t>(std::ranges::find(names, f.convention) - names.begin());
    if (f.paper) (*row)[labels] = value_text(f.paper, c.quantity);
    (*row)[labels + 1 + 2 * at] = value_text(f.ours, c.quantity);
    (*row)[labels + 2 + 2 * at] = difference(f.ours, f.paper);
  }
  return table;
}

std::string tables_text(const Report& report, ReportStyle style) {
  std::string text;
  for (const Comparison& c : report.comparisons)
    if (c.comparison_table && !c.figures.empty()) text += table_text(comparison_table(c), style);
  for (const TextTable& table : report.tables) text += table_text(table, style);
  return text;
}

std::string name_of(const Report& report) {
  return report.assuming.empty() ? report.key : fmt::format("{}, assuming {}", report.key, report.assuming);
}

std::string report_text(const Report& report, ReportStyle style) {
  const bool markdown = style == ReportStyle::markdown;
  std::string text =
      fmt::format("{}{}: {}\n{}", markdown ? "## " : "", name_of(report), report.title, markdown ? "\n" : "");
  text += wrapped(report.source, "", columns_of(style)) + "\n" + tables_text(report, style);
  text += list_text("assumed", report.assumed, style);
  text += list_text("shows", report.shows, style);
  text += list_text("unexplained", report.unexplained, style);
  text += list_text("not computable from print", report.not_computable, style);
  text += list_text("conventions", report.conventions, style);
  return text;
}

namespace {

Json number(std::optional<double> value) { return value ? Json(*value) : Json(nullptr); }

CaseRecord record_of(const Report& report, const Comparison& c, const Figure& f) {
  CaseRecord record;
  record.key = fmt::format("reproduce/{}/{}", name_of(report), c.caption);
  record.parameters = {{"table", report.key}, {"comparison", c.caption}};
  for (size_t i = 0; i < f.labels.size(); ++i) {
    record.parameters.set(c.label_names[i], f.labels[i]);
    record.key += "/" + f.labels[i];
  }
  record.key += "/" + f.convention;
  record.parameters.set("convention", f.convention);
  record.parameters.set("assuming", report.assuming);
  record.parameters.set("summary_from", std::string("paper"));
  record.backend = "none";
  if (f.paper) record.summary.set(c.quantity.name, *f.paper);
  if (f.ours) record.prediction.set(c.quantity.name, *f.ours);
  if (!f.ours) {
    record.status = CaseStatus::unsupported;
    record.reason = fmt::format("not computable from print: {}", fmt::join(report.not_computable, "; "));
  }
  return record;
}

}  // namespace

Json to_json(const Report& report) {
  Json figures = Json::array();
  for (const Comparison& c : report.comparisons)
    for (const Figure& f : c.figures) {
      Json figure{{"comparison", c.caption}};
      for (size_t i = 0; i < f.labels.size(); ++i) figure[c.label_names[i]] = f.labels[i];
      figure["convention"] = f.convention;
      figure["quantity"] = c.quantity.name;
      figure["paper"] = number(f.paper);
      figure["ours"] = number(f.ours);
      if (f.paper && f.ours && *f.paper != 0) figure["difference"] = *f.ours / *f.paper - 1;
      figures.push_back(std::move(figure));
    }
  Json document{{"table", report.key},
                {"title", report.title},
                {"source", report.source},
                {"assuming", report.assuming},
                {"figures", figures},
                {"assumed", report.assumed},
                {"shows", report.shows},
                {"unexplained", report.unexplained},
                {"not_computable_from_print", report.not_computable},
                {"conventions", report.conventions}};
  if (!report.runs.is_null()) document["runs"] = report.runs;
  return document;
}

std::vector<CaseRecord> records_of(const Report& report) {
  std::vector<CaseRecord> records;
  for (const Comparison& c : report.comparisons)
    for (const Figure& f : c.figures) records.push_back(record_of(report, c, f));
  return records;
}

}  // namespace moe::reproduce
