#include "commands/reproduce/printed_rows.h"

#include "commands/shared/csv_rows.h"

namespace moe::reproduce {
namespace {

// Returns the rows of configs/papers/NAME.csv.
template <class Row, class... Cells>
std::vector<Row> rows_of(const std::string& name, const std::array<const char*, sizeof...(Cells)>& columns,
                         Cells Row::*... cells) {
  return commands::csv_rows<Row>("papers/" + name, columns, cells...);
}

}  // namespace

std::vector<PrintedOp> printed_fsmoe_table2() {
  using R = PrintedOp;
  return rows_of<R>("fsmoe-table2", {"testbed", "model", "phase", "op", "ms"}, &R::testbed, &R::model, &R::phase,
                    &R::op, &R::ms);
}

std::vector<PrintedFit> printed_fsmoe_fits() {
  using R = PrintedFit;
  return rows_of<R>("fsmoe-fig5", {"op", "r_squared"}, &R::op, &R::r_squared);
}

std::vector<PrintedGate> printed_fsmoe_table6() {
  using R = PrintedGate;
  return rows_of<R>("fsmoe-table6", {"gate", "deepspeed_moe_ms", "fsmoe_ms"}, &R::gate, &R::deepspeed_moe_ms,
                    &R::fsmoe_ms);
}

std::vector<PrintedFigure> printed_fsmoe_figures() {
  using R = PrintedFigure;
  return rows_of<R>("fsmoe-figures", {"figure", "axis", "value", "schedule", "over", "stat", "speedup"}, &R::figure,
                    &R::axis, &R::value, &R::schedule, &R::over, &R::stat, &R::speedup);
}

std::vector<PrintedParmLayer> printed_parm_table4() {
  using R = PrintedParmLayer;
  return rows_of<R>("parm-table4", {"schedule", "n_mp", "n_esp", "testbed", "speedup"}, &R::schedule, &R::n_mp,
                    &R::n_esp, &R::testbed, &R::speedup);
}

std::vector<PrintedParmModel> printed_parm_table5() {
  using R = PrintedParmModel;
  return rows_of<R>("parm-table5", {"model", "testbed", "deepspeed_moe_ms", "parm_ms"}, &R::model, &R::testbed,
                    &R::deepspeed_moe_ms, &R::parm_ms);
}

std::vector<PrintedStatistic> printed_parm_fig7() {
  using R = PrintedStatistic;
  return rows_of<R>("parm-fig7", {"what", "value"}, &R::what, &R::value);
}

double printed_parm(std::string_view what, std::string_view testbed) {
  struct R {
    std::string what, testbed;
    double value = 0;
  };
  for (const R& row : rows_of<R>("parm-text", {"what", "testbed", "value"}, &R::what, &R::testbed, &R::value))
    if (row.what == what && row.testbed == testbed) return row.value;
  bad_input("parm-text: found no {} of {}, expected one", what, testbed);
}

std::vector<PrintedCoefficient> printed_parm_coefficients() {
  using R = PrintedCoefficient;
  return rows_of<R>("parm-coefficients", {"testbed", "op", "alpha_s", "beta_s_per_element"}, &R::testbed, &R::op,
                    &R::alpha_s, &R::beta_s_per_element);
}

std::vector<PrintedBandwidth> printed_monta_table5() {
  using R = PrintedBandwidth;
  return rows_of<R>("monta-table5", {"chip", "gb_per_s"}, &R::chip, &R::gb_per_s);
}

std::vector<PrintedPrimitive> printed_monta_table8() {
  using R = PrintedPrimitive;
  return rows_of<R>("monta-table8", {"strategy", "primitive", "volume_m", "efficiency", "latency_ms"}, &R::strategy,
                    &R::primitive, &R::volume_m, &R::efficiency, &R::latency_ms);
}

std::vector<PrintedEfficiency> printed_monta_fig13() {
  using R = PrintedEfficiency;
  return rows_of<R>("monta-fig13", {"primitive", "volume_m", "efficiency"}, &R::primitive, &R::volume_m,
                    &R::efficiency);
}

std::vector<PrintedRatio> printed_monta_text() {
  using R = PrintedRatio;
  return rows_of<R>("monta-text", {"what", "seq", "value"}, &R::what, &R::seq, &R::value);
}

std::vector<PrintedChoice> printed_monta_choices() {
  using R = PrintedChoice;
  return rows_of<R>("monta-choices", {"seq", "choice"}, &R::seq, &R::choice);
}

std::vector<PrintedLina> printed_lina_training() {
  using R = PrintedLina;
  return rows_of<R>("lina-training", {"metric", "experts", "speedup"}, &R::metric, &R::experts, &R::speedup);
}

std::vector<PrintedLinaShare> printed_lina_table1() {
  using R = PrintedLinaShare;
  return rows_of<R>("lina-table1", {"experts", "layers", "alltoall_ms", "share"}, &R::experts, &R::layers,
                    &R::alltoall_ms, &R::share);
}

std::vector<PrintedPipelining> printed_lina_table3() {
  using R = PrintedPipelining;
  return rows_of<R>("lina-table3", {"model", "without", "with", "experts_a_device"}, &R::model, &R::without, &R::with,
                    &R::experts_per_device);
}

std::vector<PrintedUtilization> printed_lina_table4() {
  using R = PrintedUtilization;
  return rows_of<R>("lina-table4", {"model", "utilization", "utilization_lina", "memory", "memory_lina", "offloads"},
                    &R::model, &R::baseline, &R::lina, &R::memory, &R::memory_lina, &R::offloads);
}

std::vector<PrintedInference> printed_lina_inference() {
  using R = PrintedInference;
  return rows_of<R>("lina-inference", {"metric", "model", "experts", "length", "value"}, &R::metric, &R::model,
                    &R::experts, &R::length, &R::value);
}

double printed_lina_text(std::string_view what) {
  using R = PrintedStatistic;
  for (const R& row : rows_of<R>("lina-text", {"what", "value"}, &R::what, &R::value))
    if (row.what == what) return row.value;
  bad_input("{}/papers/lina-text.csv: found no {}, expected one", config_dir(), what);
}

double printed_monta_ratio(std::string_view what, int seq) {
  for (const PrintedRatio& row : printed_monta_text())
    if (row.what == what && row.seq == seq) return row.value;
  bad_input("{}/papers/monta-text.csv: found no {} at seq {}, expected one", config_dir(), what, seq);
}

}  // namespace moe::reproduce
