#pragma once
// The verbs `export` and `import`: profiles, records and plans in other people's formats, and theirs as records.
// docs/exchange.md says what each format can't.
#include <optional>
#include <string>
#include <vector>

#include "moe/record/record.h"

namespace moe::exchange {

struct ExportOptions {
  std::string format, file;
  std::string cluster;       // profile that prices a plan; empty: the records' cluster, if it is one of ours
  std::string only;          // layer of the records to export; empty: they have only one
  std::string schedule;      // schedule whose plan to export; empty: the fastest
  std::string out;           // empty: standard output
  bool per_element = false;  // betas of a float32 element
  bool samples = false;      // every sample, in the place of their median
};

struct ImportOptions {
  std::string format;
  std::vector<std::string> files;
  std::string cluster = "imported";
  std::string op, network;  // empty: as the files say
  std::optional<int> nodes, ranks, ranks_per_node;
  std::optional<int> experts;  // of a test that prints rates alone
  bool in_place = false;
  std::string dtype;  // of GEMMs whose kernels' names say none; empty: they are left out
  std::string map;    // CSV of kernels' kinds; empty: none
  std::string out;
  Asked asked;
};

/// Return the formats' names, "csv|tutel|...".
std::string export_formats();
std::string import_formats();

/// Writes one document, and on stderr what the format can't say. Throws BadInput.
int run_export(const ExportOptions& options);
/// Appends records that `fit` takes, and says on stderr what was understood and what was left out. Throws BadInput.
int run_import(const ImportOptions& options);

}  // namespace moe::exchange
