#pragma once
// The verb `reproduce`: a paper's table or figure beside ours.
#include <string>

#include "moe/record/record.h"

namespace moe::reproduce {

struct ReproduceOptions {
  std::string table;     // a key of kPaperTables
  std::string assume;    // assumption NAME or FILE; empty: what the papers print alone
  bool measure = false;  // a column of what really ran, of the runs that come with the program
  std::string records;   // of these instead
  std::string runs;      // of `training`: a file of other steps
  bool audit = false;    // every combination of FSMoE's open conventions
  bool all = false;      // every table, with and without the example assumptions, and the audit
  std::string write;     // with `all`: Markdown FILE
  std::string out;       // records; empty: results/reproduce-TABLE.jsonl
  bool json = false;
  Asked asked;
};

int run_reproduce(const ReproduceOptions& options);

}  // namespace moe::reproduce
