#pragma once
// The verbs `export` and `import`: write profiles, records and plans in other programs' formats, and read theirs into
// records. docs/exchange.md lists what each format cannot express.
#include <optional>
#include <string>
#include <vector>

#include "moe/record/record.h"

namespace moe::exchange {

struct ExportOptions {
  std::string format, file;
  std::string cluster;       // profile that prices a plan; empty: the records' cluster, if a profile has its name
  std::string only;          // layer of the records to export; empty: they have only one
  std::string schedule;      // schedule whose plan to export; empty: the fastest
  std::string out;           // empty: standard output
  bool per_element = false;  // betas per float32 element instead of per byte
  bool samples = false;      // every sample instead of the median
};

struct ImportOptions {
  std::string format;
  std::vector<std::string> files;
  std::string cluster = "imported";
  std::string op, network;  // empty: read from the files
  std::optional<int> nodes, ranks, ranks_per_node;
  std::optional<int> experts;  // number of experts, for tests that only print rates
  bool in_place = false;
  std::string dtype;  // type of GEMMs whose kernels' names do not contain it; empty: such GEMMs are left out
  std::string map;    // CSV file with kinds of kernels; empty: none
  std::string out;
  Invocation invocation;
};

/// Return the names of the formats, "csv|tutel|...".
std::string export_formats();
std::string import_formats();

/// Writes one document, and notes on stderr on what the format cannot express. Throws BadInput.
int run_export(const ExportOptions& options);
/// Appends records for `fit`, and reports on stderr what was read and what was left out. Throws BadInput.
int run_import(const ImportOptions& options);

}  // namespace moe::exchange
