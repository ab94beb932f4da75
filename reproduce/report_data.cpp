#include "reproduce/report_data.h"

#include "moe/base/check.h"

namespace moe::reproduce {
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
    record.reason = "not computable from print";
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
  return {{"table", report.key},
          {"title", report.title},
          {"source", report.source},
          {"assuming", report.assuming},
          {"figures", figures},
          {"assumed", report.assumed},
          {"shows", report.shows},
          {"unexplained", report.unexplained},
          {"not_computable_from_print", report.not_computable},
          {"conventions", report.conventions}};
}

std::vector<CaseRecord> records_of(const Report& report) {
  std::vector<CaseRecord> records;
  for (const Comparison& c : report.comparisons)
    for (const Figure& f : c.figures) records.push_back(record_of(report, c, f));
  return records;
}

}  // namespace moe::reproduce
