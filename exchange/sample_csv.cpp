// Samples as CSV: op, network, ranks, bytes, seconds; of GEMMs dtype and flops.
#include "exchange/csv.h"
#include "exchange/formats.h"
#include "exchange/imported_samples.h"
#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/log.h"
#include "moe/base/units.h"

namespace moe::exchange {
namespace {

constexpr int kMostRanks = 1 << 20;

// Holds the places of the columns; a column that the file lacks is at columns.size().
struct SampleColumns {
  explicit SampleColumns(const CsvTable& csv)
      : op(csv.column("op")),
        seconds(csv.column("seconds")),
        network(csv.find("network")),
        ranks(csv.find("ranks")),
        bytes(csv.find("bytes")),
        dtype(csv.find("dtype")),
        flops(csv.find("flops")) {}
  size_t op, seconds, network, ranks, bytes, dtype, flops;
};

ImportedSample sample_of_row(const CsvTable& csv, const CsvTable::Row& row, const SampleColumns& at) {
  ImportedSample s;
  const std::string& op = row.cells[at.op];
  const auto found = find_op(op);
  require<BadInput>(found && (*found == Op::gemm || facts_of(*found).table == OpTable::comm),
                    "{}: found {}, expected a collective or gemm", csv.where(row, at.op), shown(op));
  s.op = *found;
  s.seconds = csv.number(row, at.seconds, 1e-12);
  if (s.op == Op::gemm) {
    csv.column("flops");
    s.flops = csv.number(row, at.flops, 1);
    s.dtype = at.dtype < csv.columns.size() && !row.cells[at.dtype].empty() ? row.cells[at.dtype] : "float32";
    dtype_from(s.dtype, csv.where(row, std::min(at.dtype, at.op)));
    return s;
  }
  for (const char* needed : {"network", "ranks", "bytes"}) csv.column(needed);
  s.network = row.cells[at.network];
  require<BadInput>(s.network == "inter" || s.network == "intra", "{}: found {}, expected inter or intra",
                    csv.where(row, at.network), shown(s.network));
  s.ranks = static_cast<int>(csv.whole(row, at.ranks, 2, kMostRanks));
  s.bytes = csv.number(row, at.bytes, 1);
  return s;
}

}  // namespace

void import_csv(const ImportOptions& options) {
  ImportedSamples samples("none");  // nothing ran here
  size_t rows = 0;
  for (const std::string& path : options.files) {
    const CsvTable csv = read_csv(path);
    const SampleColumns at(csv);
    for (const CsvTable::Row& row : csv.rows) samples.add(sample_of_row(csv, row, at));
    rows += csv.rows.size();
  }
  require<BadInput>(rows > 0, "{}: found no sample, expected rows below the columns' names", options.files.front());
  log_info(fmt::format("csv: {} samples", rows));
  samples.write(options);
}

}  // namespace moe::exchange
