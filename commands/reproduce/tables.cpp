#include "commands/reproduce/study.h"
#include "commands/shared/printed.h"
#include "moe/base/check.h"
#include "moe/base/registry.h"

namespace moe::reproduce {
namespace {

struct TableRow {
  std::string_view name;
  Report (*reproduce)(Study&);
};

constexpr std::array<TableRow, commands::kPaperTables.size()> kRows{{{"fsmoe-table2", fsmoe_table2},
                                                                     {"fsmoe-table5", fsmoe_table5},
                                                                     {"fsmoe-table6", fsmoe_table6},
                                                                     {"fsmoe-degrees", fsmoe_degrees},
                                                                     {"fsmoe-fig5", fsmoe_fig5},
                                                                     {"fsmoe-fig6", fsmoe_fig6},
                                                                     {"fsmoe-fig7", fsmoe_fig7},
                                                                     {"fsmoe-fig8", fsmoe_fig8},
                                                                     {"parm-table4", parm_table4},
                                                                     {"parm-table5", parm_table5},
                                                                     {"monta-table8", monta_table8},
                                                                     {"monta-fig13", monta_fig13},
                                                                     {"monta-fig14", monta_fig14},
                                                                     {"monta-memory", monta_memory},
                                                                     {"lina-training", lina_training},
                                                                     {"lina-inference", lina_inference},
                                                                     {"published", published},
                                                                     {"training", training},
                                                                     {"beyond", beyond}}};

constexpr bool same_names() {
  for (size_t i = 0; i < kRows.size(); ++i)
    if (kRows[i].name != commands::kPaperTables[i].name) return false;
  return true;
}
static_assert(same_names());

}  // namespace

Report reproduce(std::string_view key, Study& study) {
  const TableRow& row = find_named(kRows, key, "TABLE");
  if (study.assumed != nullptr)
    require<BadInput>(study.assumed->applies_to_table(key),
                      "{}: tables: found none that is {}, expected it to be named", study.assumed->file, key);
  Report report = row.reproduce(study);
  if (study.assumed != nullptr) {
    report.assuming = study.assumed->name;
    report.assumed = lines_of(*study.assumed);
  }
  return report;
}

}  // namespace moe::reproduce
