#pragma once
// The result of an import: times of operations, as records that `fit` reads.
#include <map>
#include <string>
#include <vector>

#include "commands/exchange/exchange.h"
#include "moe/plan/op.h"

namespace moe::exchange {

/// One measurement of a collective or of a GEMM.
struct ImportedSample {
  Op op = Op::none;
  std::string network = {};  // "inter" or "intra"; empty for a GEMM
  int ranks = 0;
  double bytes = 0;        // volume as FSMoE counts it: for an allgather the gathered size
  std::string dtype = {};  // for a GEMM
  double flops = 0;        // for a GEMM
  double seconds = 0;
};

/// The size of the cluster according to the files; 0: unknown.
struct ClusterSize {
  int nodes = 0, ranks_per_node = 0;
};

class ImportedSamples {
 public:
  explicit ImportedSamples(std::string backend) : backend_(std::move(backend)) {}

  void add(const ImportedSample& sample);
  /// Records that the cluster is at least this large.
  void note_cluster_size(const ClusterSize& size);
  bool empty() const { return by_key_.empty(); }

  /// Appends one record for each operation, group and size, with its samples as iterations, and reports on stderr the
  /// number of records and the rows that fit. Throws BadInput if neither files nor flags give the size of the cluster,
  /// or if a group is larger than the cluster.
  void write(const ImportOptions& options) const;

 private:
  struct Case {
    ImportedSample first;
    std::vector<double> seconds;
  };
  std::string backend_;
  std::map<std::string, Case> by_key_;
  ClusterSize size_;
};

/// Returns the network of --network, for files that name none. Throws BadInput naming `what` of the file.
std::string requested_network(const ImportOptions& options, const std::string& what);

// The rows of a profile that imported records can provide, printed at the end of an import.

/// Fits the records that an import wrote and reports on stderr which rows are good, weak or unusable and why, what else
/// a plan needs, and the next command.
void report_fit(const ImportOptions& options);

}  // namespace moe::exchange
