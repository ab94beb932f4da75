#pragma once
// The data that reproductions of one run share, and their table.
#include <string_view>
#include <vector>

#include "commands/reproduce/assume.h"
#include "commands/reproduce/measured_runs.h"
#include "commands/reproduce/report.h"
#include "commands/shared/record_files.h"

namespace moe::reproduce {

struct Study {
  SweepStore sweeps;
  const Assumptions* assumed = nullptr;         // null: only numbers that papers print
  const commands::FileRun* measured = nullptr;  // runs for a column of real times; null: none
  std::string runs = {};                        // a file of measured steps; empty: the published ones
};

Report fsmoe_table2(Study& study);
Report fsmoe_table5(Study& study);
Report fsmoe_degrees(Study& study);
Report fsmoe_fig5(Study& study);
Report fsmoe_fig6(Study& study);
Report fsmoe_fig7(Study& study);
Report fsmoe_fig8(Study& study);
Report fsmoe_table6(Study& study);
Report parm_table4(Study& study);
Report parm_table5(Study& study);
Report lina_training(Study& study);
Report lina_inference(Study& study);
Report monta_table8(Study& study);
Report monta_fig13(Study& study);
Report monta_fig14(Study& study);
Report monta_memory(Study& study);
Report published(Study& study);
Report training(Study& study);
Report beyond(Study& study);

/// Returns every combination of FSMoE's open conventions for Table 5 and the count of layers with r_f != r_b.
Report fsmoe_audit(Study& study);

/// Returns the reproduction of a table by its key. Throws BadInput listing the known keys, or if the assumptions are
/// not for this table.
Report reproduce(std::string_view key, Study& study);

}  // namespace moe::reproduce
