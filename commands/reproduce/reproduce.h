#pragma once
// The verb `reproduce`: a paper's table or figure beside our numbers.
#include <string>

#include "moe/record/record.h"

namespace moe::reproduce {

struct ReproduceOptions {
  std::string table;     // a key of kPaperTables
  std::string assume;    // assumption NAME or FILE; empty: only numbers that papers print
  bool measure = false;  // adds a column of real runs, by default of those shipped with the program
  std::string records;   // file with other runs for that column
  std::string runs;      // for `training`: file with other measured steps
  bool audit = false;    // computes every combination of FSMoE's open conventions
  bool all = false;      // computes every table, with and without the example assumptions, and the audit
  std::string write;     // with `all`: the Markdown file to write
  std::string out;       // file of the records; empty: results/reproduce-TABLE.jsonl
  bool json = false;
  Invocation invocation;
};

int run_reproduce(const ReproduceOptions& options);

}  // namespace moe::reproduce
